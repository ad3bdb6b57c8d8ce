// The repetition, presence and frequency penalties of one sequence. Which
// tokens they look at:
//
//   penalty_last_n  repetition             presence, frequency
//   0               prompt and output      output (OpenAI, vLLM)
//   N               the last N tokens of prompt and output (llama.cpp)
//
// Counts follow the output token by token. Made again from prompt and output
// they are the same. Draft tokens are taken for drawn, by Apply alone.
//
// Apply may run on several threads at once; nothing else beside it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/llm/step.h"

namespace millrace::models {

class Penalties {
 public:
  void Reset(const SamplingParams& params, std::span<const int32_t> prompt,
             std::span<const int32_t> output);
  bool active() const { return active_; }
  // The token joins the output.
  void Count(int32_t id);
  // Changes logits behind the output and `drafts`; `raw` gets the changed ids
  // with what stood there. Ids beyond the logits are passed over.
  void Apply(std::span<const int32_t> drafts, std::span<float> logits,
             std::vector<std::pair<int32_t, float>>& raw) const;

 private:
  // The last last_n_ tokens of the text.
  std::span<const int32_t> Window() const;

  bool active_ = false;
  float repetition_ = 1;
  float presence_ = 0;
  float frequency_ = 0;
  size_t last_n_ = 0;
  // Tokens that get penalties, and how often presence and frequency count each.
  std::unordered_map<int32_t, int32_t> times_;
  std::vector<int32_t> text_;  // prompt and output, only with last_n_
};

}  // namespace millrace::models
