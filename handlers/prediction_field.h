// OpenAI's `prediction`: what a client expects the completion to say.
//
//   "prediction": {"type": "content", "content": "class User {...}"}
//   "prediction": {"type": "content",
//                  "content": [{"type": "text", "text": "class User {...}"}]}
//
// The texts of several parts are joined as they are. The predicted text changes
// no completion, only how fast it comes (scheduler/prediction.h), so it may
// stand beside any other field; OpenAI refuses some of them.
//
// Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/base/status.h"

namespace millrace::handlers {

// The predicted text; empty when the field is absent. INVALID_ARGUMENT with
// field() set for any other shape.
StatusOr<std::string> ReadPrediction(const nlohmann::ordered_json& body);

}  // namespace millrace::handlers
