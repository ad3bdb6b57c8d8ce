// Sampling fields of llama.cpp's server that have another name here, or say how
// other fields act:
//
//   repeat_penalty   repetition_penalty
//   n_probs          logprobs of completions, top_logprobs of chats
//   repeat_last_n    the tokens that penalties look at, of prompt and
//                    completion: N, -1 all, 0 none
//   samplers         the order of samplers; those not named are off
//
// Source: github.com/ggml-org/llama.cpp, tools/server/README.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/request_fields.h"

namespace millrace::handlers {

// Changes what the fields of other names have set. INVALID_ARGUMENT with
// field() set for a value out of range, for two names of one field with
// different values, for a sampler that is named twice, and for penalties or DRY
// behind a sampler that cuts.
Status ReadLlamaFields(const nlohmann::ordered_json& body,
                       GenerateOptions& options);

// Two names of one field have different values.
Status TwoNames(const char* name, const nlohmann::ordered_json& value,
                const char* other, const nlohmann::ordered_json& other_value);

// Those that are read, for descriptions of the API.
std::vector<FieldFacts> LlamaFields();

}  // namespace millrace::handlers
