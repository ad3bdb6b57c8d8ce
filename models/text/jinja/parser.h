// Template source to tree.
#pragma once

#include <string_view>

#include "config/base/status.h"
#include "models/text/jinja/ast.h"

namespace millrace::models::jinja {

// INVALID_ARGUMENT names line and construct. The source must be valid UTF-8.
StatusOr<Body> Parse(std::string_view source, int max_depth);

}  // namespace millrace::models::jinja
