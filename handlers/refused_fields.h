// Fields that would change the completion and have no counterpart here: they
// are refused by name, unless their value asks for nothing.
//
//   RETURN_IF_ERROR(CheckNothingRefused(body, FieldDialect::kChat));
//   => "use_beam_search is true but is not supported yet; leave it out"
//
// Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/base/status.h"
#include "handlers/request_fields.h"

namespace millrace::handlers {

// INVALID_ARGUMENT with field() and the reason "unsupported_parameter".
Status CheckNothingRefused(const nlohmann::ordered_json& body,
                           FieldDialect dialect);

}  // namespace millrace::handlers
