// Methods of strings, dicts and lists: those that change nothing.
#include <algorithm>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/str_format.h"
#include "models/text/jinja/text_ops.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

template <Text (*kFunction)(const Text&)>
StatusOr<Value> Map(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  return runtime.MakeString(kFunction(self.text()));
}

template <Side kSide>
StatusOr<Value> StripMethod(Runtime& runtime, const Value& self,
                            const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"chars"}));
  if (!params.Has(0) || params[0].IsNone()) {
    return runtime.MakeString(Strip(self.text(), std::nullopt, kSide));
  }
  ASSIGN_OR_RETURN(const Text chars, params.String(0, ""));
  return runtime.MakeString(Strip(self.text(), chars.bytes(), kSide));
}

StatusOr<Value> ListOf(Runtime& runtime, std::vector<Text> parts) {
  std::vector<Value> out;
  for (Text& part : parts) {
    ASSIGN_OR_RETURN(Value text, runtime.MakeString(std::move(part)));
    out.push_back(std::move(text));
  }
  return runtime.MakeItems(Kind::kList, std::move(out));
}

template <bool kFromRight>
StatusOr<Value> SplitMethod(Runtime& runtime, const Value& self,
                            const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const int64_t most, params.Int(1, -1));
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(self.text().size())));
  if (!params.Has(0) || params[0].IsNone()) {
    return ListOf(runtime, Split(self.text(), std::nullopt, most, kFromRight));
  }
  ASSIGN_OR_RETURN(const Text separator, params.String(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  return ListOf(runtime,
                Split(self.text(), separator.bytes(), most, kFromRight));
}

StatusOr<Value> SplitLinesMethod(Runtime& runtime, const Value& self,
                                 const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"keepends"}));
  return ListOf(runtime, SplitLines(self.text(), params.Flag(0, false)));
}

template <bool kFromRight>
StatusOr<Value> Partition(Runtime& runtime, const Value& self,
                          const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"sep"}, 1));
  ASSIGN_OR_RETURN(const Text separator, params.String(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  const Text& text = self.text();
  const size_t at = kFromRight ? text.bytes().rfind(separator.bytes())
                               : FindBytes(text.bytes(), separator.bytes(), 0);
  Text parts[3];
  if (at == std::string::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    const size_t end = at + separator.size();
    parts[0] = text.Slice(0, at);
    parts[1] = text.Slice(at, end);
    parts[2] = text.Slice(end, text.size());
  }
  std::vector<Value> out;
  for (Text& part : parts) {
    ASSIGN_OR_RETURN(Value value, runtime.MakeString(std::move(part)));
    out.push_back(std::move(value));
  }
  return runtime.MakeItems(Kind::kTuple, std::move(out));
}

StatusOr<Value> ReplaceMethod(Runtime& runtime, const Value& self,
                              const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text from, params.String(0, ""));
  ASSIGN_OR_RETURN(const Text to, params.String(1, ""));
  ASSIGN_OR_RETURN(const int64_t count, params.Int(2, -1));
  return ReplaceText(runtime, self.text(), from.bytes(), to, count);
}

// The part of a string that start and end, in characters, leave.
StatusOr<std::pair<size_t, size_t>> Window(const Text& text,
                                           const Params& params) {
  const auto offsets = CodePointOffsets(text.bytes());
  const int64_t size = static_cast<int64_t>(offsets.size()) - 1;
  int64_t bounds[2] = {0, size};
  for (size_t i = 0; i < 2; ++i) {
    if (!params.Has(i + 1) || params[i + 1].IsNone()) continue;
    ASSIGN_OR_RETURN(bounds[i], params.Int(i + 1, 0));
    if (bounds[i] < 0) bounds[i] = std::max<int64_t>(bounds[i] + size, 0);
    bounds[i] = std::min(bounds[i], size + (i == 0 ? 1 : 0));
  }
  if (bounds[0] > bounds[1]) return std::pair<size_t, size_t>{1, 0};
  return std::pair<size_t, size_t>{offsets[static_cast<size_t>(bounds[0])],
                                   offsets[static_cast<size_t>(bounds[1])]};
}

template <bool kAtEnd>
StatusOr<Value> Affix(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"prefix", "start", "end"}, 1));
  size_t begin = 0, end = self.text().size();
  if (params.Has(1) || params.Has(2)) {
    ASSIGN_OR_RETURN(const auto window, Window(self.text(), params));
    begin = window.first;
    end = window.second;
  }
  if (begin > end) return Value::Bool(false);
  const std::string_view text = self.str().substr(begin, end - begin);
  std::vector<Value> wanted = {params[0]};
  if (params[0].Is(Kind::kTuple)) {
    ASSIGN_OR_RETURN(wanted, Iterate(runtime, params[0]));
  }
  for (const Value& affix : wanted) {
    if (!affix.IsString()) {
      return InvalidArgument("first arg must be str or a tuple of str, not " +
                             std::string(affix.TypeName()));
    }
    if (kAtEnd ? text.ends_with(affix.str()) : text.starts_with(affix.str())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

enum class Search { kFind, kFindLast, kIndex, kIndexLast, kCount };

template <Search kSearch>
StatusOr<Value> SearchMethod(Runtime& runtime, const Value& self,
                             const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const Text part, params.String(0, ""));
  RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(self.text().size())));
  ASSIGN_OR_RETURN(const auto window, Window(self.text(), params));
  constexpr bool kLast =
      kSearch == Search::kFindLast || kSearch == Search::kIndexLast;
  size_t found = std::string::npos;
  if (window.first <= window.second) {
    const std::string_view text =
        self.str().substr(0, window.second).substr(window.first);
    if (kSearch == Search::kCount) {
      if (part.empty()) {
        return Value::Int(static_cast<Integer>(CountCodePoints(text)) + 1);
      }
      int64_t count = 0;
      for (size_t at = FindBytes(text, part.bytes(), 0);
           at != std::string::npos;
           at = FindBytes(text, part.bytes(), at + part.size())) {
        ++count;
      }
      return Value::Int(count);
    }
    found = kLast ? text.rfind(part.bytes()) : FindBytes(text, part.bytes(), 0);
    if (found != std::string::npos) {
      return Value::Int(static_cast<Integer>(
          CountCodePoints(self.str().substr(0, window.first + found))));
    }
  }
  if (kSearch == Search::kCount) return Value::Int(0);
  if (kSearch == Search::kFind || kSearch == Search::kFindLast) {
    return Value::Int(-1);
  }
  return InvalidArgument("substring not found");
}

template <bool kSuffix>
StatusOr<Value> RemoveAffix(Runtime& runtime, const Value& self,
                            const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"affix"}, 1));
  ASSIGN_OR_RETURN(const Text affix, params.String(0, ""));
  const Text& text = self.text();
  if (kSuffix && text.bytes().ends_with(affix.bytes())) {
    return runtime.MakeString(text.Slice(0, text.size() - affix.size()));
  }
  if (!kSuffix && text.bytes().starts_with(affix.bytes())) {
    return runtime.MakeString(text.Slice(affix.size(), text.size()));
  }
  return self;
}

StatusOr<Value> JoinMethod(Runtime& runtime, const Value& self,
                           const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, params[0]));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString()) {
      return InvalidArgument("sequence item " + std::to_string(i) +
                             ": expected str instance, " +
                             std::string(items[i].TypeName()) + " found");
    }
    RETURN_IF_ERROR(runtime.Make(
        static_cast<int64_t>(items[i].text().size() + self.text().size())));
    if (i > 0) out.Append(self.text());
    out.Append(items[i].text());
  }
  return runtime.MakeString(std::move(out));
}

template <Side kSide>
StatusOr<Value> Justify(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"width", "fillchar"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, params.Int(0, 0));
  ASSIGN_OR_RETURN(const Text fill, params.String(1, " "));
  if (CountCodePoints(fill.bytes()) != 1) {
    return InvalidArgument("the fill must be one character");
  }
  RETURN_IF_ERROR(runtime.Make(std::max<int64_t>(width, 0) * 4));
  return runtime.MakeString(Pad(self.text(), width, fill.bytes(), kSide));
}

StatusOr<Value> ZFill(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"width"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, params.Int(0, 0));
  RETURN_IF_ERROR(runtime.Make(std::max<int64_t>(width, 0)));
  const Text& text = self.text();
  const bool sign =
      text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text out = text.Slice(0, sign ? 1 : 0);
  out.Append(Pad(text.Slice(sign ? 1 : 0, text.size()), width - (sign ? 1 : 0),
                 "0", Side::kLeft));
  return runtime.MakeString(std::move(out));
}

// All characters of a string that is not empty.
template <bool (*kTest)(char32_t)>
StatusOr<Value> All(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  const std::string_view text = self.str();
  for (size_t at = 0; at < text.size();) {
    if (!kTest(NextCodePoint(text, at))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

// Some letter has this case and none the other.
template <bool kUpper>
StatusOr<Value> OneCase(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  bool found = false;
  for (size_t at = 0; at < self.str().size();) {
    const char32_t code = NextCodePoint(self.str(), at);
    if (kUpper ? IsLower(code) : IsUpper(code)) return Value::Bool(false);
    found = found || (kUpper ? IsUpper(code) : IsLower(code));
  }
  return Value::Bool(found);
}

// Capitals begin words and small letters go on with them.
StatusOr<Value> IsTitle(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  bool in_word = false, found = false;
  for (size_t at = 0; at < self.str().size();) {
    const char32_t code = NextCodePoint(self.str(), at);
    const bool upper = IsUpper(code), lower = IsLower(code);
    if (in_word ? upper : lower) return Value::Bool(false);
    in_word = upper || lower;
    found = found || in_word;
  }
  return Value::Bool(found);
}

StatusOr<Value> IsAscii(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  return Value::Bool(std::all_of(self.str().begin(), self.str().end(),
                                 [](char c) { return (c & 0x80) == 0; }));
}

StatusOr<Value> FormatMethod(Runtime& runtime, const Value& self,
                             const Args& args) {
  ASSIGN_OR_RETURN(Text out, FormatBraces(runtime, self.text(), args));
  return runtime.MakeString(std::move(out));
}

// Here so that "is defined" is right; bytes are no value of ours.
StatusOr<Value> Encode(Runtime&, const Value&, const Args&) {
  return InvalidArgument("bytes are not supported");
}

bool IsAlnum(char32_t code) { return IsAlpha(code) || IsDigit(code); }

constexpr Builtin kStringMethods[] = {
    {"capitalize", Map<Capitalize>},
    {"casefold", Map<Lower>},
    {"center", Justify<Side::kBoth>},
    {"count", SearchMethod<Search::kCount>},
    {"encode", Encode},
    {"endswith", Affix<true>},
    {"find", SearchMethod<Search::kFind>},
    {"format", FormatMethod},
    {"index", SearchMethod<Search::kIndex>},
    {"isalnum", All<IsAlnum>},
    {"isalpha", All<IsAlpha>},
    {"isascii", IsAscii},
    {"isdecimal", All<IsDigit>},
    {"isdigit", All<IsDigit>},
    {"islower", OneCase<false>},
    {"isnumeric", All<IsDigit>},
    {"isspace", All<IsSpace>},
    {"istitle", IsTitle},
    {"isupper", OneCase<true>},
    {"join", JoinMethod},
    {"ljust", Justify<Side::kRight>},
    {"lower", Map<Lower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"replace", ReplaceMethod},
    {"rfind", SearchMethod<Search::kFindLast>},
    {"rindex", SearchMethod<Search::kIndexLast>},
    {"rjust", Justify<Side::kLeft>},
    {"rpartition", Partition<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", Affix<false>},
    {"strip", StripMethod<Side::kBoth>},
    {"swapcase", Map<SwapCase>},
    {"title", Map<Title>},
    {"upper", Map<Upper>},
    {"zfill", ZFill},
};

StatusOr<Value> DictGet(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"key", "default"}, 1));
  if (!Dict::Hashable(params[0])) {
    return InvalidArgument("unhashable type: '" +
                           std::string(params[0].TypeName()) + "'");
  }
  if (const Value* found = self.dict().Find(params[0])) return *found;
  return params.Has(1) ? params[1] : Value::None();
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
StatusOr<Value> DictView(Runtime& runtime, const Value& self,
                         const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict().entries()) {
    if (kPart == Part::kItems) {
      ASSIGN_OR_RETURN(Value pair,
                       runtime.MakeItems(Kind::kTuple, {key, value}));
      out.push_back(std::move(pair));
    } else {
      out.push_back(kPart == Part::kKeys ? key : value);
    }
  }
  return runtime.MakeItems(Kind::kView, std::move(out),
                           kPart == Part::kKeys     ? "dict_keys"
                           : kPart == Part::kValues ? "dict_values"
                                                    : "dict_items");
}

StatusOr<Value> CopyMethod(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  return self;  // values never change
}

constexpr Builtin kDictMethods[] = {
    {"copy", CopyMethod},
    {"get", DictGet},
    {"items", DictView<Part::kItems>},
    {"keys", DictView<Part::kKeys>},
    {"values", DictView<Part::kValues>},
};

StatusOr<Value> ListCount(Runtime& runtime, const Value& self,
                          const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, item, params[0]));
    count += same;
  }
  return Value::Int(count);
}

StatusOr<Value> ListIndex(Runtime& runtime, const Value& self,
                          const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"value"}, 1));
  for (size_t i = 0; i < self.items().size(); ++i) {
    ASSIGN_OR_RETURN(const bool same,
                     Equal(runtime, self.items()[i], params[0]));
    if (same) return Value::Int(static_cast<Integer>(i));
  }
  return InvalidArgument("the value is not in the list");
}

constexpr Builtin kListMethods[] = {
    {"copy", CopyMethod},
    {"count", ListCount},
    {"index", ListIndex},
};

}  // namespace

std::span<const Builtin> StringMethods() { return kStringMethods; }
std::span<const Builtin> DictMethods() { return kDictMethods; }
std::span<const Builtin> ListMethods() { return kListMethods; }

}  // namespace millrace::models::jinja
