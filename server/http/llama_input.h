// What llama.cpp's /completion and /infill ask for beside their prompts.
//
//   ASSIGN_OR_RETURN(LlamaBody wanted, ReadLlamaBody(*handler, body));
//
// Text becomes tokens here: run it on the handler pool.
// Source: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/handler.h"

namespace millrace::server::http {

struct LlamaBody {
  handlers::GenerateOptions options;  // n: completions of each prompt
  bool stream = false;
  // As it was asked for; -1: no limit. 0: the prompt alone is computed; the
  // options ask for one token, which is not to be shown.
  int64_t n_predict = -1;
  bool return_tokens = false;
  bool timings_per_token = false;
  bool post_sampling_probs = false;  // of those that options.logprobs counts
  std::vector<std::string> response_fields;  // none: all
};

// `body` is an object. INVALID_ARGUMENT with field() set.
StatusOr<LlamaBody> ReadLlamaBody(const handlers::GenerateHandler& handler,
                                  const nlohmann::ordered_json& body);

// The prompt of /infill: files of `input_extra`, what stands before and behind
// the gap (`input_prefix`, `input_suffix`), and `prompt`, which begins what
// fills it. What the client wrote never becomes a special token.
// INVALID_ARGUMENT, reason "no_infill_tokens", where the model `model` has no
// tokens for a gap.
StatusOr<handlers::TokenPrompt> ReadInfillPrompt(
    const handlers::GenerateHandler& handler,
    const nlohmann::ordered_json& body, const std::string& model);

// The body of /infill without the entry "infill" of `samplers`, which editors
// send: it ends a completion earlier where the model is not sure. Here the
// model alone ends it.
nlohmann::ordered_json WithoutInfillSampler(nlohmann::ordered_json body);

}  // namespace millrace::server::http
