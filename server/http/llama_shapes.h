// Parts of the answers of llama.cpp's /completion, by the names that its server
// gives.
//
// Source: github.com/ggml-org/llama.cpp, tools/server/README.md, "Result JSON".
// Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "handlers/messages.h"
#include "server/http/sampled_probabilities.h"
#include "server/lifecycle/servable.h"

namespace millrace::server::http {

struct LlamaRequest {
  bool stream = false;
  int64_t n_predict = -1;  // as it was asked for; -1: no limit
};

// `generation_settings`: what the completion was sampled with. Values are those
// of the request, else of the model, else what changes nothing. Left out is
// what has no counterpart here (n_keep, n_discard, the order of `samplers`,
// ...). A seed that the server draws is 4294967295, as there.
nlohmann::ordered_json LlamaSettings(const LlamaRequest& request,
                                     const handlers::GenerateOptions& options,
                                     const TextFacts& facts);

// `completion_probabilities`: of each token, with its likeliest alternatives.
nlohmann::ordered_json LlamaProbabilities(
    std::span<const handlers::TokenLogprobs> tokens);

// The same with post_sampling_probs.
nlohmann::ordered_json LlamaSampledProbabilities(
    const SampledProbabilities& sampled,
    std::span<const handlers::TokenLogprobs> tokens);

// `response_fields`: these parts of an answer alone, such as "content" or
// "generation_settings/n_predict", each under its whole name. None: all of it.
nlohmann::ordered_json ChosenFields(const std::vector<std::string>& fields,
                                    nlohmann::ordered_json answer);

}  // namespace millrace::server::http
