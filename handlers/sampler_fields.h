// The sampling fields of llama.cpp that are no plain numbers: DRY's lengths and
// sequence breakers, and the version of mirostat.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "handlers/messages.h"

namespace millrace::handlers {

// INVALID_ARGUMENT with field() set.
Status ReadSamplerFields(const nlohmann::ordered_json& body,
                         GenerateOptions& options);

}  // namespace millrace::handlers
