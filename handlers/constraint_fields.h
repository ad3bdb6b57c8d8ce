// The fields of a request that say what the completion must look like, by their
// public names:
//
//   response_format         OpenAI: text, json_object, json_schema; vLLM:
//                           structural_tag
//   structured_outputs      vLLM: {json, regex, choice, grammar, json_object,
//                           structural_tag}
//   guided_json, …          vLLM before that
//   json_schema, grammar    llama.cpp
//
// At most one of them may ask for something.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "models/grammar/output_constraint.h"

namespace millrace::handlers {

// INVALID_ARGUMENT with field() set. The text inside is checked when it is
// compiled.
StatusOr<models::OutputConstraint> ReadConstraint(
    const nlohmann::ordered_json& body);

}  // namespace millrace::handlers
