// The % operator on strings: Python's printf.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

constexpr int64_t kMaxField = 100000;

struct Field {
  std::string key;  // %(key)s
  bool has_key = false;
  bool left = false, plus = false, space = false, zero = false,
       alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

class Formatter {
 public:
  Formatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  StatusOr<Text> Run() {
    const std::string& text = format_.bytes();
    size_t at = 0;
    while (at < text.size()) {
      const size_t mark = std::min(text.find('%', at), text.size());
      out_.Append(format_, at, mark);
      if (mark == text.size()) break;
      at = mark + 1;
      ASSIGN_OR_RETURN(const Field field, Parse(at));
      if (field.type == '%') {
        out_.Append("%", format_.FromUserAt(mark));
      } else {
        RETURN_IF_ERROR(Write(field));
      }
      RETURN_IF_ERROR(runtime_.Make(field.width));
    }
    const bool left_over = values_.Is(Value::Kind::kTuple)
                               ? next_ < values_.items().size()
                               : next_ == 0 && !values_.IsDict() &&
                                     !values_.Is(Value::Kind::kList) &&
                                     !values_.IsUndefined();
    if (left_over) {
      return InvalidArgument(
          "not all arguments converted during string formatting");
    }
    return out_;
  }

 private:
  StatusOr<Field> Parse(size_t& at) {
    const std::string& text = format_.bytes();
    const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
    Field out;
    if (peek() == '(') {
      const size_t close = text.find(')', at);
      if (close == std::string::npos) {
        return InvalidArgument("incomplete format key");
      }
      out.has_key = true;
      out.key = text.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    for (;; ++at) {
      if (peek() == '-') {
        out.left = true;
      } else if (peek() == '+') {
        out.plus = true;
      } else if (peek() == ' ') {
        out.space = true;
      } else if (peek() == '0') {
        out.zero = true;
      } else if (peek() == '#') {
        out.alternate = true;
      } else {
        break;
      }
    }
    ASSIGN_OR_RETURN(out.width, Number(at));
    if (out.width < 0) {
      out.left = true;
      out.width = -out.width;
    }
    if (peek() == '.') {
      ++at;
      ASSIGN_OR_RETURN(out.precision, Number(at));
    }
    if (out.width > kMaxField || out.precision > kMaxField) {
      return InvalidArgument("a format's width or precision is above " +
                             std::to_string(kMaxField));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at;
    out.type = peek();
    if (out.type == '\0') return InvalidArgument("incomplete format");
    ++at;
    return out;
  }

  StatusOr<int64_t> Number(size_t& at) {
    const std::string& text = format_.bytes();
    if (at < text.size() && text[at] == '*') {
      ++at;
      ASSIGN_OR_RETURN(const Value value, Next());
      if (!value.IsInteger() || value.integer() > kMaxField ||
          value.integer() < -kMaxField) {
        return InvalidArgument("* needs a small integer");
      }
      return static_cast<int64_t>(value.integer());
    }
    int64_t out = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      out = std::min<int64_t>(out * 10 + (text[at] - '0'), kMaxField + 1);
    }
    return out;
  }

  StatusOr<Value> Next() {
    if (values_.Is(Value::Kind::kTuple)) {
      if (next_ < values_.items().size()) return values_.items()[next_++];
    } else if (next_ == 0) {
      ++next_;
      return values_;
    }
    return InvalidArgument("not enough arguments for format string");
  }

  StatusOr<Value> ValueOf(const Field& field) {
    if (!field.has_key) return Next();
    if (!values_.IsDict()) return InvalidArgument("format requires a mapping");
    const Value* found = values_.dict().Find(field.key);
    if (found == nullptr) {
      return InvalidArgument("the format's key '" + field.key + "' is missing");
    }
    return *found;
  }

  Status Write(const Field& field) {
    ASSIGN_OR_RETURN(const Value value, ValueOf(field));
    const bool user = value.from_user();
    switch (field.type) {
      case 's':
      case 'r':
      case 'a': {
        ASSIGN_OR_RETURN(Text text, field.type == 's'
                                        ? ToText(runtime_, value)
                                        : ToRepr(runtime_, value));
        if (field.precision >= 0) {
          const auto offsets = CodePointOffsets(text.bytes());
          const size_t keep = static_cast<size_t>(field.precision);
          if (keep + 1 < offsets.size()) text = text.Slice(0, offsets[keep]);
        }
        Pad(field, "", text);
        return OkStatus();
      }
      case 'c': {
        std::string text;
        if (value.IsString() && CountCodePoints(value.str()) == 1) {
          Pad(field, "", value.text());
          return OkStatus();
        }
        const Integer code = value.IsInteger() ? value.integer() : -1;
        if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
          return InvalidArgument("%c requires a character");
        }
        AppendUtf8(text, static_cast<char32_t>(code));
        Pad(field, "", Text(text, user));
        return OkStatus();
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return WriteInteger(field, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!value.IsNumber()) return Wants(field, "a number", value);
        std::string pattern = field.alternate ? "%#.*" : "%.*";
        pattern += field.type;
        const int precision =
            field.precision < 0 ? 6 : static_cast<int>(field.precision);
        const double size = std::fabs(value.number());
        char* written = nullptr;
        if (asprintf(&written, pattern.c_str(), precision, size) < 0) {
          return InvalidArgument("a number could not be formatted");
        }
        const std::string digits = written;
        std::free(written);
        Pad(field, SignOf(field, std::signbit(value.number())),
            Text(digits, user));
        return OkStatus();
      }
      default:
        return InvalidArgument("unsupported format character '" +
                               std::string(1, field.type) + "'");
    }
  }

  static Status Wants(const Field& field, const char* what,
                      const Value& value) {
    return InvalidArgument("%" + std::string(1, field.type) + " requires " +
                           what + ", not " + std::string(value.TypeName()));
  }

  Status WriteInteger(const Field& field, const Value& value) {
    Integer number = value.integer();
    const bool decimal =
        field.type == 'd' || field.type == 'i' || field.type == 'u';
    if (value.Is(Value::Kind::kFloat) && decimal) {
      const double whole = std::trunc(value.number());
      if (!(std::fabs(whole) < 0x1p126)) {
        return InvalidArgument("a float is too large for %d");
      }
      number = static_cast<Integer>(whole);
    } else if (!value.IsInteger()) {
      return Wants(field, decimal ? "a number" : "an integer", value);
    }
    const bool negative = number < 0;
    std::string digits;
    if (decimal) {
      digits = IntegerToString(number);
      if (negative) digits.erase(0, 1);
    } else {
      const int base = field.type == 'o' ? 8 : 16;
      const char* letters =
          field.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
      do {
        const int digit = static_cast<int>(number % base);
        digits.insert(digits.begin(), letters[digit < 0 ? -digit : digit]);
        number /= base;
      } while (number != 0);
    }
    if (field.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(field.precision) - digits.size(),
                    '0');
    }
    std::string sign = SignOf(field, negative);
    if (field.alternate && !decimal) sign += std::string("0") + field.type;
    Pad(field, sign, Text(digits, value.from_user()));
    return OkStatus();
  }

  static std::string SignOf(const Field& field, bool negative) {
    return negative ? "-" : field.plus ? "+" : field.space ? " " : "";
  }

  // Spaces and zeros are the format's own.
  void Pad(const Field& field, const std::string& sign, const Text& body) {
    const int64_t size = static_cast<int64_t>(CountCodePoints(body.bytes())) +
                         static_cast<int64_t>(sign.size());
    const size_t fill =
        field.width > size ? static_cast<size_t>(field.width - size) : 0;
    const bool zeros = field.zero && !field.left && field.type != 's' &&
                       field.type != 'r' && field.type != 'c';
    if (!field.left && !zeros) out_.Append(std::string(fill, ' '), false);
    out_.Append(sign, body.AnyFromUser());
    if (zeros) out_.Append(std::string(fill, '0'), false);
    out_.Append(body);
    if (field.left) out_.Append(std::string(fill, ' '), false);
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& values_;
  Text out_;
  size_t next_ = 0;  // of the values
};

}  // namespace

StatusOr<Text> FormatPercent(Runtime& runtime, const Text& format,
                             const Value& values) {
  return Formatter(runtime, format, values).Run();
}

}  // namespace millrace::models::jinja
