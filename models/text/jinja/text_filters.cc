// Filters that take text. What is no string is printed first, as Jinja does.
#include <algorithm>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/text_ops.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

template <Text (*kFunction)(const Text&)>
StatusOr<Value> Map(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
  return runtime.MakeString(kFunction(text));
}

Text Same(const Text& text) { return text; }

Status NotAString(const Value& value) {
  if (value.IsUndefined()) return InvalidArgument(value.undefined_message());
  return InvalidArgument("needs a string, not " +
                         std::string(value.TypeName()));
}

StatusOr<Value> Center(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"width"}));
  ASSIGN_OR_RETURN(const int64_t width, params.Int(0, 80));
  RETURN_IF_ERROR(runtime.Make(width));
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
  return runtime.MakeString(Pad(text, width, " ", Side::kBoth));
}

StatusOr<Value> Format(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Text format, ToText(runtime, self));
  Value values;
  if (args.named.empty()) {
    ASSIGN_OR_RETURN(values,
                     runtime.MakeItems(Value::Kind::kTuple, args.positional));
  } else {
    if (!args.positional.empty()) {
      return InvalidArgument(
          "can't handle positional and keyword arguments at the same time");
    }
    Dict dict;
    for (const auto& [name, value] : args.named) dict.Set(name, value);
    ASSIGN_OR_RETURN(values, runtime.MakeDict(std::move(dict)));
  }
  ASSIGN_OR_RETURN(Text out, FormatPercent(runtime, format, values));
  return runtime.MakeString(std::move(out));
}

StatusOr<Value> IndentFilter(Runtime& runtime, const Value& self,
                             const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"width", "first", "blank"}));
  Text indention(std::string(4, ' '), false);
  if (params.Has(0) && params[0].IsString()) {
    indention = params[0].text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, params.Int(0, 4));
    RETURN_IF_ERROR(runtime.Make(width));
    indention =
        Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
             false);
  }
  if (!self.IsString()) return NotAString(self);
  const Text& text = self.text();
  const auto lines =
      2 + std::count_if(text.bytes().begin(), text.bytes().end(), [](char c) {
        return static_cast<signed char>(c) < ' ';
      });
  RETURN_IF_ERROR(runtime.Make(
      static_cast<int64_t>(static_cast<size_t>(lines) * indention.size())));
  return runtime.MakeString(
      Indent(text, indention, params.Flag(1, false), params.Flag(2, false)));
}

StatusOr<Value> ReplaceFilter(Runtime& runtime, const Value& self,
                              const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
  ASSIGN_OR_RETURN(const Text from, ToText(runtime, params[0]));
  ASSIGN_OR_RETURN(const Text to, ToText(runtime, params[1]));
  int64_t count = -1;
  if (params.Has(2) && !params[2].IsNone()) {
    ASSIGN_OR_RETURN(count, params.Int(2, -1));
  }
  return ReplaceText(runtime, text, from.bytes(), to, count);
}

StatusOr<Value> Trim(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"chars"}));
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
  if (!params.Has(0) || params[0].IsNone()) {
    return runtime.MakeString(Strip(text, std::nullopt, Side::kBoth));
  }
  ASSIGN_OR_RETURN(const Text chars, params.String(0, ""));
  return runtime.MakeString(Strip(text, chars.bytes(), Side::kBoth));
}

StatusOr<Value> Truncate(Runtime& runtime, const Value& self,
                         const Args& args) {
  ASSIGN_OR_RETURN(
      const Params params,
      Params::Bind(args, {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const int64_t length, params.Int(0, 255));
  ASSIGN_OR_RETURN(const Text end, params.String(2, "..."));
  int64_t leeway = 5;
  if (params.Has(3) && !params[3].IsNone()) {
    ASSIGN_OR_RETURN(leeway, params.Int(3, 5));
  }
  const int64_t end_size = static_cast<int64_t>(CountCodePoints(end.bytes()));
  if (length < end_size || leeway < 0) {
    return InvalidArgument("expected length >= " + std::to_string(end_size) +
                           " and leeway >= 0");
  }
  // Lists that are short enough pass, too.
  ASSIGN_OR_RETURN(const int64_t size, Length(self));
  if (size <= length + leeway) return self;
  if (!self.IsString()) return NotAString(self);
  const Text& text = self.text();
  const auto offsets = CodePointOffsets(text.bytes());
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(text.size())));
  Text out = text.Slice(0, offsets[static_cast<size_t>(length - end_size)]);
  if (!params.Flag(1, false)) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.Slice(0, space);
  }
  out.Append(end);
  return runtime.MakeString(std::move(out));
}

// Everything but letters, digits and _.-~ as %XX; in a query the space is a
// plus, elsewhere the slash stays.
void AppendQuoted(const Text& text, bool in_query, Text& out) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  text.ForEachRun([&](std::string_view run, bool from_user) {
    std::string quoted;
    for (const char c : run) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                         c == '-' || c == '~' || (c == '/' && !in_query);
      if (plain) {
        quoted.push_back(c);
      } else if (c == ' ' && in_query) {
        quoted.push_back('+');
      } else {
        const auto byte = static_cast<uint8_t>(c);
        quoted += {'%', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    out.Append(quoted, from_user);
  });
}

StatusOr<Value> UrlEncode(Runtime& runtime, const Value& self,
                          const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  Text out;
  const auto add = [&](const Value& key, const Value& value) -> Status {
    ASSIGN_OR_RETURN(const Text name, ToText(runtime, key));
    ASSIGN_OR_RETURN(const Text text, ToText(runtime, value));
    if (!out.empty()) out.Append("&", false);
    AppendQuoted(name, true, out);
    out.Append("=", false);
    AppendQuoted(text, true, out);
    return OkStatus();
  };
  if (self.IsDict()) {
    for (const auto& [key, value] : self.dict().entries()) {
      RETURN_IF_ERROR(add(key, value));
    }
  } else if (self.IsSequence()) {
    for (const Value& item : self.TakeItems()) {
      ASSIGN_OR_RETURN(const std::vector<Value> pair, Iterate(runtime, item));
      if (pair.size() != 2) return InvalidArgument("needs pairs");
      RETURN_IF_ERROR(add(pair[0], pair[1]));
    }
  } else {
    ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
    AppendQuoted(text, false, out);
  }
  return runtime.MakeString(std::move(out));
}

StatusOr<Value> WordCount(Runtime& runtime, const Value& self,
                          const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(runtime, self));
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = NextCodePoint(text.bytes(), at);
    const bool is_word = code == '_' || IsAlpha(code) || IsDigit(code);
    words += is_word && !in_word;
    in_word = is_word;
  }
  return Value::Int(words);
}

constexpr Builtin kFilters[] = {
    {"capitalize", Map<Capitalize>},
    {"center", Center},
    {"e", Map<EscapeHtml>},
    {"escape", Map<EscapeHtml>},
    {"forceescape", Map<EscapeHtml>},
    {"format", Format},
    {"indent", IndentFilter},
    {"lower", Map<Lower>},
    {"replace", ReplaceFilter},
    {"safe", Map<Same>},
    {"string", Map<Same>},
    {"title", Map<TitleWords>},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Map<Upper>},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

StatusOr<Value> ReplaceText(Runtime& runtime, const Text& text,
                            std::string_view from, const Text& to,
                            int64_t count) {
  // What may come out is paid for before it is made.
  const int64_t most = static_cast<int64_t>(text.size()) + 1;
  int64_t times = from.empty() ? most : 0;
  for (size_t at = 0; !from.empty() && (count < 0 || times < count); ++times) {
    at = FindBytes(text.bytes(), from, at);
    if (at == std::string::npos) break;
    at += from.size();
  }
  if (count >= 0) times = std::min(times, count);
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(
      std::min<size_t>(static_cast<size_t>(times) * to.size(), 1u << 31))));
  return runtime.MakeString(Replace(text, from, to, count));
}

std::span<const Builtin> TextFilters() { return kFilters; }

}  // namespace millrace::models::jinja
