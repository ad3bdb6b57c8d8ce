// JSON from outside, parsed by nlohmann/json under limits. Object order is kept
// (chat templates print it).
//
//   ASSIGN_OR_RETURN(nlohmann::ordered_json body, ParseJson(bytes));
//
// Include <nlohmann/json.hpp> in the source file that looks inside.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace {

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 1'000'000;
  bool unique_keys = false;  // else the last value of a key stands
};

// INVALID_ARGUMENT with the byte offset for malformed text, bad UTF-8, text
// after the value, or a limit passed. Never throws.
StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text,
                                           const JsonLimits& limits = {});

// Compact JSON text. Bytes that are no UTF-8 become U+FFFD; never throws.
std::string DumpJson(const nlohmann::ordered_json& value);

}  // namespace millrace
