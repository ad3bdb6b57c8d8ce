// A scheduler small enough to trust: runs given requests on a Runner with pages
// from a shuffled free list, in chunks, together or alone, so that tests can
// ask whether the way a request was run shows in what it got.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/llm/model.h"

namespace millrace::models {

struct DriverRequest {
  std::vector<int32_t> prompt;
  int32_t max_tokens = 8;
  SamplingParams sampling;
  std::shared_ptr<const LoraAdapter> adapter = {};
  std::shared_ptr<const PromptEmbeddings> embeddings = {};
};

struct DriverAnswer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<TokenLogprob> top;

  bool operator==(const DriverAnswer& other) const;
};

struct DriverOptions {
  int32_t chunk = 512;     // prompt rows a step and sequence
  uint64_t page_seed = 1;  // order of the free list
  // Steps after which a running sequence is put back to the start, its pages
  // freed and its tokens run again; 0: never.
  int32_t preempt_every = 0;
};

// All requests at once; answers in their order.
std::vector<DriverAnswer> Drive(Runner& runner,
                                const std::vector<DriverRequest>& requests,
                                const DriverOptions& options);

// The tiny model's file and options that load it with this many threads.
LlmOptions TinyOptions(int threads);

}  // namespace millrace::models
