// str.format: "{} and {name:>8}".
#pragma once

#include "config/base/status.h"
#include "models/text/jinja/runtime.h"

namespace millrace::models::jinja {

StatusOr<Text> FormatBraces(Runtime& runtime, const Text& format,
                            const Args& args);

}  // namespace millrace::models::jinja
