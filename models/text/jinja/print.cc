// Printing. Brackets, commas and quotes count as the request's text when the
// container came from the request, so that no mixture of template and request
// can spell a special token between them.
#include "models/text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void AppendHex(std::string& out, char32_t code, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out.push_back(kHex[code >> shift & 15]);
  }
}

void AppendStringRepr(const Text& text, Text& out, bool from_user) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view mark(&quote, 1);
  out.Append(mark, from_user);
  text.ForEachRun([&](std::string_view run, bool run_from_user) {
    std::string written;
    for (size_t at = 0; at < run.size();) {
      const size_t begin = at;
      const char32_t code = NextCodePoint(run, at);
      if (code == '\\' || code == static_cast<char32_t>(quote)) {
        written.push_back('\\');
        written.push_back(static_cast<char>(code));
      } else if (code == '\n') {
        written += "\\n";
      } else if (code == '\r') {
        written += "\\r";
      } else if (code == '\t') {
        written += "\\t";
      } else if (IsPrintable(code)) {
        written += run.substr(begin, at - begin);
      } else if (code < 0x100) {
        AppendHex(written += "\\x", code, 2);
      } else if (code < 0x10000) {
        AppendHex(written += "\\u", code, 4);
      } else {
        AppendHex(written += "\\U", code, 8);
      }
    }
    out.Append(written, run_from_user);
  });
  out.Append(mark, from_user);
}

// Refuses output that no longer fits, whatever is still to come.
Status CheckSize(Runtime& runtime, const Text& out) {
  RETURN_IF_ERROR(runtime.Step());
  if (static_cast<int64_t>(out.size()) <= runtime.limits().max_output_bytes) {
    return OkStatus();
  }
  return InvalidArgument("a printed value is longer than " +
                         std::to_string(runtime.limits().max_output_bytes) +
                         " bytes");
}

Status AppendRepr(Runtime& runtime, const Value& value, Text& out);

Status AppendItems(Runtime& runtime, const Value& value, Text& out) {
  bool first = true;
  for (const Value& item : value.items()) {
    if (!first) out.Append(", ", value.from_user());
    first = false;
    RETURN_IF_ERROR(AppendRepr(runtime, item, out));
  }
  return OkStatus();
}

Status AppendRepr(Runtime& runtime, const Value& value, Text& out) {
  RETURN_IF_ERROR(CheckSize(runtime, out));
  const bool user = value.from_user();
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      out.Append("Undefined", user);
      break;
    case Value::Kind::kNone:
      out.Append("None", user);
      break;
    case Value::Kind::kBool:
      out.Append(value.integer() != 0 ? "True" : "False", user);
      break;
    case Value::Kind::kInt:
      out.Append(IntegerToString(value.integer()), user);
      break;
    case Value::Kind::kFloat:
      out.Append(FloatToString(value.number()), user);
      break;
    case Value::Kind::kString:
      AppendStringRepr(value.text(), out, user);
      break;
    case Value::Kind::kList:
      out.Append("[", user);
      RETURN_IF_ERROR(AppendItems(runtime, value, out));
      out.Append("]", user);
      break;
    case Value::Kind::kTuple:
      out.Append("(", user);
      RETURN_IF_ERROR(AppendItems(runtime, value, out));
      out.Append(value.items().size() == 1 ? ",)" : ")", user);
      break;
    case Value::Kind::kView:
      out.Append(value.sequence().name, user);
      out.Append("([", user);
      RETURN_IF_ERROR(AppendItems(runtime, value, out));
      out.Append("])", user);
      break;
    case Value::Kind::kDict: {
      bool first = true;
      out.Append("{", user);
      for (const auto& [key, item] : value.dict().entries()) {
        if (!first) out.Append(", ", user);
        first = false;
        RETURN_IF_ERROR(AppendRepr(runtime, key, out));
        out.Append(": ", user);
        RETURN_IF_ERROR(AppendRepr(runtime, item, out));
      }
      out.Append("}", user);
      break;
    }
    case Value::Kind::kMacro:
      out.Append("<Macro '" + value.macro()->name + "'>", user);
      break;
    default:
      out.Append("<", user);
      out.Append(value.TypeName(), user);
      out.Append(">", user);
  }
  return OkStatus();
}

void AppendJsonString(const Text& text, bool ensure_ascii, bool from_user,
                      Text& out) {
  out.Append("\"", from_user);
  text.ForEachRun([&](std::string_view run, bool run_from_user) {
    std::string written;
    for (size_t at = 0; at < run.size();) {
      const size_t begin = at;
      const char32_t code = NextCodePoint(run, at);
      if (code == '"' || code == '\\') {
        written.push_back('\\');
        written.push_back(static_cast<char>(code));
      } else if (code == '\n') {
        written += "\\n";
      } else if (code == '\r') {
        written += "\\r";
      } else if (code == '\t') {
        written += "\\t";
      } else if (code == '\b') {
        written += "\\b";
      } else if (code == '\f') {
        written += "\\f";
      } else if (code < 0x20 || (ensure_ascii && code >= 0x7F)) {
        if (code == 0x7F) {  // ASCII, and json.dumps leaves it
          written.push_back(0x7F);
        } else if (code < 0x10000) {
          AppendHex(written += "\\u", code, 4);
        } else {  // as UTF-16 has it
          AppendHex(written += "\\u", 0xD7C0 + (code >> 10), 4);
          AppendHex(written += "\\u", 0xDC00 + (code & 0x3FF), 4);
        }
      } else {
        written += run.substr(begin, at - begin);
      }
    }
    out.Append(written, run_from_user);
  });
  out.Append("\"", from_user);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, Text& out)
      : runtime_(runtime), style_(style), out_(out) {}

  Status Write(const Value& value) {
    RETURN_IF_ERROR(CheckSize(runtime_, out_));
    const bool user = value.from_user();
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_.Append("null", user);
        return OkStatus();
      case Value::Kind::kBool:
        out_.Append(value.integer() != 0 ? "true" : "false", user);
        return OkStatus();
      case Value::Kind::kInt:
      case Value::Kind::kFloat:
        out_.Append(NumberToJson(value), user);
        return OkStatus();
      case Value::Kind::kString:
        AppendJsonString(value.text(), style_.ensure_ascii, user, out_);
        return OkStatus();
      case Value::Kind::kList:
      case Value::Kind::kTuple:
        return WriteList(value);
      case Value::Kind::kDict:
        return WriteDict(value);
      default:
        return InvalidArgument("Object of type " +
                               std::string(value.TypeName()) +
                               " is not JSON serializable");
    }
  }

 private:
  static std::string NumberToJson(const Value& value) {
    if (value.Is(Value::Kind::kInt)) return IntegerToString(value.integer());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) {
      return value.number() < 0 ? "-Infinity" : "Infinity";
    }
    return FloatToString(value.number());
  }

  void Mark(const Text& mark, bool user) {
    if (user) {
      out_.Append(mark.bytes(), true);
    } else {
      out_.Append(mark);
    }
  }

  void NewLine(bool user) {
    if (!style_.indent) return;
    out_.Append("\n", user);
    for (int i = 0; i < level_; ++i) Mark(*style_.indent, user);
  }

  void Separate(bool first, bool user) {
    if (!first) Mark(style_.item_separator, user);
    NewLine(user);
  }

  Status WriteList(const Value& value) {
    out_.Append("[", value.from_user());
    if (!value.items().empty()) {
      ++level_;
      bool first = true;
      for (const Value& item : value.items()) {
        Separate(std::exchange(first, false), value.from_user());
        RETURN_IF_ERROR(Write(item));
      }
      --level_;
      NewLine(value.from_user());
    }
    out_.Append("]", value.from_user());
    return OkStatus();
  }

  Status WriteDict(const Value& value) {
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : value.dict().entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : entries) {
        if (!entry->first.IsString()) {
          return InvalidArgument("tojson sorts keys only when all are strings");
        }
      }
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) {
                  return a->first.str() < b->first.str();
                });
    }
    out_.Append("{", value.from_user());
    if (!entries.empty()) {
      ++level_;
      bool first = true;
      for (const auto* entry : entries) {
        Separate(std::exchange(first, false), value.from_user());
        RETURN_IF_ERROR(WriteKey(entry->first));
        Mark(style_.key_separator, value.from_user());
        RETURN_IF_ERROR(Write(entry->second));
      }
      --level_;
      NewLine(value.from_user());
    }
    out_.Append("}", value.from_user());
    return OkStatus();
  }

  // Keys that are no strings are written in quotes.
  Status WriteKey(const Value& key) {
    if (key.IsString()) return Write(key);
    if (!key.IsNumber() && !key.IsNone()) {
      return InvalidArgument(
          "keys of JSON must be strings, numbers or none, "
          "not " +
          std::string(key.TypeName()));
    }
    out_.Append("\"", key.from_user());
    RETURN_IF_ERROR(Write(key));
    out_.Append("\"", key.from_user());
    return OkStatus();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Text& out_;
  int level_ = 0;
};

}  // namespace

std::string FloatToString(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 std::chars_format::scientific);
  const std::string_view written(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = written.find('e');
  int exponent = 0;
  const std::string_view power = written.substr(mark + 1);
  std::from_chars(power.data() + (power[0] == '+' ? 1 : 0),
                  power.data() + power.size(), exponent);
  std::string sign, digits;
  for (const char c : written.substr(0, mark)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const int size = exponent < 0 ? -exponent : exponent;
    out += exponent < 0 ? "e-" : "e+";
    if (size < 10) out += "0";
    return out + std::to_string(size);
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') +
           digits;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  }
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

StatusOr<Text> ToText(Runtime& runtime, const Value& value) {
  if (value.IsString()) return value.text();
  Text out;
  if (value.IsUndefined()) return out;
  RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(out.size())));
  return out;
}

StatusOr<Text> ToRepr(Runtime& runtime, const Value& value) {
  Text out;
  RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(out.size())));
  return out;
}

StatusOr<Text> ToJson(Runtime& runtime, const Value& value,
                      const JsonStyle& style) {
  Text out;
  RETURN_IF_ERROR(JsonWriter(runtime, style, out).Write(value));
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(out.size())));
  return out;
}

}  // namespace millrace::models::jinja
