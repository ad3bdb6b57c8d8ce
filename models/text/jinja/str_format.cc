// str.format with the fields that templates use: by place or by name, with
// fill, alignment, sign, zeros, width, precision and type. Attributes and items
// inside of a field are refused.
#include "models/text/jinja/str_format.h"

#include <algorithm>
#include <string>

#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/text_ops.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

constexpr int64_t kMaxWidth = 100000;

bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

// [[fill]align][sign][0][width][.precision][type]
StatusOr<Text> Apply(Runtime& runtime, const Value& value,
                     std::string_view spec, bool spec_from_user) {
  size_t at = 0;
  const auto peek = [&](size_t ahead = 0) {
    return at + ahead < spec.size() ? spec[at + ahead] : '\0';
  };
  std::string fill = " ";
  char align = '\0';
  const auto aligns = [](char c) { return c == '<' || c == '>' || c == '^'; };
  if (!spec.empty()) {
    size_t next = 0;
    NextCodePoint(spec, next);
    if (next < spec.size() && aligns(spec[next])) {
      fill = spec.substr(0, next);
      align = spec[next];
      at = next + 1;
    } else if (aligns(peek())) {
      align = spec[at++];
    }
  }
  std::string percent = "%";  // the same, for the % operator
  bool zeros = false;
  if (peek() == '+' || peek() == '-' || peek() == ' ') {
    if (peek() != '-') percent += peek();
    ++at;
  }
  if (peek() == '0') {
    zeros = align == '\0';
    ++at;
  }
  int64_t width = 0;
  for (; IsDecimal(peek()); ++at) {
    width = std::min<int64_t>(width * 10 + (peek() - '0'), kMaxWidth + 1);
  }
  if (width > kMaxWidth) return InvalidArgument("a width is above 100000");
  RETURN_IF_ERROR(runtime.Make(width));
  const bool number = value.IsNumber() && !value.Is(Value::Kind::kBool);
  if (zeros && number) percent += "0" + std::to_string(width);
  bool has_precision = false;
  if (peek() == '.') {
    has_precision = true;
    percent += '.';
    for (++at; IsDecimal(peek()); ++at) percent += peek();
  }
  char type = peek();
  if (type != '\0') ++at;
  if (at != spec.size()) {
    return InvalidArgument("the format '" + std::string(spec) +
                           "' is not supported");
  }
  Text out;
  if (type == '\0' && !(number && has_precision)) {
    if (zeros && number && value.IsInteger()) {
      percent += 'd';
    } else {
      percent = has_precision ? percent + 's' : "%s";
    }
  } else {
    percent += type == '\0' ? 'g' : type;
  }
  ASSIGN_OR_RETURN(Value one, runtime.MakeItems(Value::Kind::kTuple, {value}));
  ASSIGN_OR_RETURN(out,
                   FormatPercent(runtime, Text(percent, spec_from_user), one));
  const Side side = align == '^'                        ? Side::kBoth
                    : align == '>'                      ? Side::kLeft
                    : align == '\0' && value.IsNumber() ? Side::kLeft
                                                        : Side::kRight;
  return Pad(out, width, fill, side);
}

}  // namespace

StatusOr<Text> FormatBraces(Runtime& runtime, const Text& format,
                            const Args& args) {
  const std::string& text = format.bytes();
  Text out;
  size_t next = 0;  // of the positional arguments
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find_first_of("{}", at), text.size());
    out.Append(format, at, mark);
    if (mark == text.size()) break;
    if (mark + 1 < text.size() && text[mark + 1] == text[mark]) {
      out.Append(format, mark, mark + 1);
      at = mark + 2;
      continue;
    }
    const size_t close = text.find('}', mark);
    if (text[mark] == '}' || close == std::string::npos) {
      return InvalidArgument("a single '{' or '}' in the format");
    }
    std::string_view field =
        std::string_view(text).substr(mark + 1, close - mark - 1);
    at = close + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec =
        colon < field.size() ? field.substr(colon + 1) : std::string_view();
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    const Value* value = nullptr;
    if (name.empty() || std::all_of(name.begin(), name.end(), IsDecimal)) {
      const size_t i =
          name.empty()
              ? next++
              : static_cast<size_t>(std::stoul(std::string(name.substr(0, 9))));
      if (i < args.positional.size()) value = &args.positional[i];
    } else {
      for (const auto& [key, named] : args.named) {
        if (key == name) value = &named;
      }
    }
    if (value == nullptr) {
      return InvalidArgument("the format's field '" + std::string(name) +
                             "' has no argument");
    }
    Value shown = *value;
    if (conversion == 'r' || conversion == 's') {
      ASSIGN_OR_RETURN(Text printed, conversion == 'r'
                                         ? ToRepr(runtime, *value)
                                         : ToText(runtime, *value));
      shown = Value::String(std::move(printed));
    }
    ASSIGN_OR_RETURN(const Text written,
                     Apply(runtime, shown, spec, format.FromUserAt(mark)));
    RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(written.size())));
    out.Append(written);
  }
  return out;
}

}  // namespace millrace::models::jinja
