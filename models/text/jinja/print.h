// Values as text: as Python's str and repr write them, and as JSON.
#pragma once

#include <optional>
#include <string>

#include "config/base/status.h"
#include "models/text/jinja/runtime.h"
#include "models/text/jinja/value.h"

namespace millrace::models::jinja {

// str(value): what {{ value }} prints; nothing for undefined.
StatusOr<Text> ToText(Runtime& runtime, const Value& value);
// repr(value): strings in quotes.
StatusOr<Text> ToRepr(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // of one level; none: all on one line
  Text item_separator{", ", false};
  Text key_separator{": ", false};
};
// json.dumps(value).
StatusOr<Text> ToJson(Runtime& runtime, const Value& value,
                      const JsonStyle& style);

// Shortest digits that read back the same, laid out as Python does.
std::string FloatToString(double value);

}  // namespace millrace::models::jinja
