// The text of a Java .properties file, as TorchServe's config.properties is
// one: keys and values, comments, continued lines, escapes.
//
//   ASSIGN_OR_RETURN(Properties properties, ParseProperties(text));
//
// Source: java.util.Properties, load(Reader).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::torchserve {

// In the order of the file; of a key given twice the last value stands.
using Properties = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kMaxPropertiesBytes = 1 << 20;

// In place of the value that the key has.
void SetProperty(Properties& properties, const std::string& key,
                 std::string value);

// INVALID_ARGUMENT names the line: a broken escape, a NUL, too much text.
StatusOr<Properties> ParseProperties(std::string_view text);

}  // namespace millrace::server::torchserve
