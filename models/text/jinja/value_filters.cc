// Filters over single values: numbers, defaults, JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/text_ops.h"

namespace millrace::models::jinja {
namespace {

StatusOr<Value> Abs(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  if (self.Is(Value::Kind::kFloat))
    return Value::Float(std::fabs(self.number()));
  if (self.IsInteger() && self.integer() >= 0)
    return Value::Int(self.integer());
  return Negate(self);
}

StatusOr<Value> Attr(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"name"}, 1));
  ASSIGN_OR_RETURN(const Text name, params.String(0, ""));
  if (self.IsDict() && self.dict().Find(name.bytes()) != nullptr &&
      FindMethod(Value::Kind::kDict, name.bytes()) == nullptr) {
    return Value::Undefined("'dict object' has no attribute '" + name.bytes() +
                            "'");  // keys are no attributes here
  }
  return GetAttribute(runtime, self, name.bytes());
}

StatusOr<Value> Default(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"default_value", "boolean"}));
  const bool replace =
      self.IsUndefined() || (params.Flag(1, false) && !self.Truth());
  if (!replace) return self;
  return params.Has(0) ? params[0] : Value::String("");
}

// A number as Python's float() and int() read it: spaces around, underscores
// between digits.
std::string Cleaned(const Text& text) {
  const std::string bytes = Strip(text, std::nullopt, Side::kBoth).bytes();
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9';
    };
    if (bytes[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out.push_back(bytes[i]);
  }
  return out;
}

std::optional<double> ReadFloat(const Text& text) {
  const std::string clean = Cleaned(text);
  // strtod also reads hexadecimal and "nan(…)", which Python does not.
  if (clean.empty() || clean.find_first_of("xXpP()") != std::string::npos) {
    return {};
  }
  char* end = nullptr;
  const double out = std::strtod(clean.c_str(), &end);
  if (end != clean.c_str() + clean.size()) return {};
  return out;
}

std::optional<Integer> ReadInteger(const Text& text, int base) {
  std::string clean = Cleaned(text);
  size_t at = 0;
  bool negative = false;
  if (!clean.empty() && (clean[0] == '-' || clean[0] == '+')) {
    negative = clean[at++] == '-';
  }
  if (clean.size() > at + 2 && clean[at] == '0') {
    const char letter = static_cast<char>(clean[at + 1] | 0x20);
    if ((letter == 'x' && base == 16) || (letter == 'o' && base == 8) ||
        (letter == 'b' && base == 2)) {
      at += 2;
    }
  }
  const auto out = IntegerFromString(std::string_view(clean).substr(at), base);
  if (out && negative) return -*out;
  return out;
}

std::optional<Integer> Truncated(double value) {
  if (!(std::fabs(value) < 0x1p126)) return {};
  return static_cast<Integer>(value);
}

StatusOr<Value> Int(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"default", "base"}));
  ASSIGN_OR_RETURN(const int64_t base, params.Int(1, 10));
  if (base < 2 || base > 36) return InvalidArgument("base must be 2 to 36");
  if (self.IsInteger()) return Value::Int(self.integer());
  std::optional<Integer> out;
  if (self.Is(Value::Kind::kFloat)) {
    out = Truncated(self.number());
  } else if (self.IsString()) {
    out = ReadInteger(self.text(), static_cast<int>(base));
    if (!out) {
      const std::optional<double> number = ReadFloat(self.text());
      if (number) out = Truncated(*number);
    }
  } else if (self.IsUndefined()) {
    return InvalidArgument(self.undefined_message());
  }
  if (out) return Value::Int(*out);
  return params.Has(0) ? params[0] : Value::Int(0);
}

StatusOr<Value> Float(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"default"}));
  if (self.IsNumber()) return Value::Float(self.number());
  if (self.IsUndefined()) return InvalidArgument(self.undefined_message());
  if (self.IsString()) {
    const std::optional<double> number = ReadFloat(self.text());
    if (number) return Value::Float(*number);
  }
  return params.Has(0) ? params[0] : Value::Float(0);
}

StatusOr<Value> Round(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"precision", "method"}));
  ASSIGN_OR_RETURN(const int64_t precision, params.Int(0, 0));
  ASSIGN_OR_RETURN(const Text method, params.String(1, "common"));
  if (!self.IsNumber()) {
    return InvalidArgument("needs a number, not " +
                           std::string(self.TypeName()));
  }
  if (precision < -300 || precision > 300) {
    return InvalidArgument("precision must be within 300");
  }
  const double power = std::pow(10.0, static_cast<double>(precision));
  if (method.bytes() == "ceil" || method.bytes() == "floor") {
    const double scaled = self.number() * power;
    return Value::Float(
        (method.bytes() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) /
        power);
  }
  if (method.bytes() != "common") {
    return InvalidArgument("method must be common, ceil or floor");
  }
  if (self.IsInteger() && precision >= 0) return Value::Int(self.integer());
  if (!std::isfinite(self.number())) return self;
  if (precision < 0) {
    const double rounded = std::nearbyint(self.number() * power) / power;
    if (!self.IsInteger()) return Value::Float(rounded);
    return Value::Int(static_cast<Integer>(rounded));
  }
  // printf rounds the exact binary value, half to even: so does Python.
  std::string digits(400 + static_cast<size_t>(precision), '\0');
  std::snprintf(digits.data(), digits.size(), "%.*f",
                static_cast<int>(precision), self.number());
  return Value::Float(std::strtod(digits.c_str(), nullptr));
}

StatusOr<Value> JsonFilter(Runtime& runtime, const Value& self,
                           const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"ensure_ascii", "indent", "separators",
                                       "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = params.Flag(0, false);
  style.sort_keys = params.Flag(3, false);
  if (params.Has(1) && params[1].IsString()) {
    style.indent = params[1].text();
  } else if (params.Has(1) && !params[1].IsNone()) {
    ASSIGN_OR_RETURN(const int64_t width, params.Int(1, 0));
    if (width > 1000) return InvalidArgument("indent is above 1000");
    style.indent =
        Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
             false);
  }
  if (style.indent) style.item_separator = Text(",", false);
  if (params.Has(2) && !params[2].IsNone()) {
    const Value& pair = params[2];
    if (!pair.IsListOrTuple() || pair.items().size() != 2 ||
        !pair.items()[0].IsString() || !pair.items()[1].IsString()) {
      return InvalidArgument("separators must be two strings");
    }
    style.item_separator = pair.items()[0].text();
    style.key_separator = pair.items()[1].text();
  }
  ASSIGN_OR_RETURN(Text out, ToJson(runtime, self, style));
  return runtime.MakeString(std::move(out));
}

constexpr Builtin kFilters[] = {
    {"abs", Abs},     {"attr", Attr}, {"d", Default},   {"default", Default},
    {"float", Float}, {"int", Int},   {"round", Round}, {"tojson", JsonFilter},
};

}  // namespace

std::span<const Builtin> ValueFilters() { return kFilters; }

}  // namespace millrace::models::jinja
