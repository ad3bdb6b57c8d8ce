// JSON from outside, parsed by nlohmann/json under limits. Object order is kept
// (chat templates print it).
//
//   ASSIGN_OR_RETURN(nlohmann::ordered_json body, ParseJson(bytes));
//
// Include <nlohmann/json.hpp> in the source file that looks inside.
#pragma once

#include <cstdint>
#include <functional>
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

// Takes the values of one array while it is parsed, so that millions of numbers
// never stand in a tree. A failure stops the parser and becomes its status.
class JsonArraySink {
 public:
  virtual ~JsonArraySink() = default;
  virtual Status OnInteger(int64_t value) = 0;
  virtual Status OnUnsigned(uint64_t value) = 0;
  virtual Status OnReal(double value) = 0;
  virtual Status OnBool(bool value) = 0;
  // "null", "a string" or "an object"; of the last one nothing follows.
  virtual Status OnOther(std::string_view what) = 0;
  // Of the array itself and of those within.
  virtual Status OnOpen() = 0;
  virtual Status OnClose() = 0;
};

// Asked about each array that is a member of an object: where do its values go?
// Null: into the tree. `root` and `object` hold what was parsed before; an
// array that goes to a sink stands there empty.
using JsonArrayPick = std::function<StatusOr<JsonArraySink*>(
    const nlohmann::ordered_json& root, const nlohmann::ordered_json& object,
    std::string_view key)>;

// INVALID_ARGUMENT with the byte offset for malformed text, bad UTF-8, text
// after the value, or a limit passed. Never throws.
StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text,
                                           const JsonLimits& limits = {},
                                           const JsonArrayPick& pick = nullptr);
// The same calls for an array that already stands in a tree.
Status FeedArray(const nlohmann::ordered_json& array, JsonArraySink& sink);

// Compact JSON text. Bytes that are no UTF-8 become U+FFFD; never throws.
std::string DumpJson(const nlohmann::ordered_json& value);

}  // namespace millrace
