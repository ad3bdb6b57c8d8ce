// The lexer. lstrip_blocks strips before blocks and comments, not before {{;
// the newline after a block or comment is dropped, not the one after }}; and
// the source's own last newline is no text.
#include "models/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// Bytes of the leading spaces.
size_t SpacesAt(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!IsSpace(NextCodePoint(text, next))) break;
    at = next;
  }
  return at;
}

std::string_view WithoutTrailingSpaces(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    size_t at = last;
    if (!IsSpace(NextCodePoint(text, at))) break;
    text = text.substr(0, last);
  }
  return text;
}

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c & 0x80) != 0;
}
bool IsDecimal(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDecimal(c); }

int HexDigit(char c) {
  if (IsDecimal(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) RETURN_IF_ERROR(Data());
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool StartsWith(std::string_view prefix) const {
    return source_.substr(at_).starts_with(prefix);
  }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  // Moves on, counting lines, and notes whether a line begins here.
  void Advance(size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                   source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    if (to > at_) line_begins_ = source_[to - 1] == '\n';
    at_ = to;
  }

  void Add(Token::Kind kind, std::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }

  // Text that ends where a tag begins; the tag's sign decides what is cut.
  void AddData(std::string_view text, char sign, bool is_print) {
    if (sign == '-') {
      text = WithoutTrailingSpaces(text);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_begins_) && SpacesAt(text, line) == text.size()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) Add(Token::Kind::kData, text);
  }

  Status Data() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        Add(Token::Kind::kData, source_.substr(at_));
        Advance(source_.size());
        return OkStatus();
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddData(source_.substr(at_, tag - at_), sign, kind == '{');
    Advance(tag);
    const bool has_sign = sign == '-' || sign == '+';
    const size_t inside = tag + (has_sign ? 3 : 2);
    if (kind == '#') return Comment(inside);
    if (kind == '%') {
      ASSIGN_OR_RETURN(const bool raw, Raw(inside));
      if (raw) return OkStatus();
    }
    const bool is_print = kind == '{';
    Add(is_print ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, "");
    Advance(inside);
    line_begins_ = false;
    return Tag(is_print);
  }

  // Passes "-X}" or "+X}" or "X}", and what goes with it; false if none stands
  // here.
  bool End(char mark, bool trims_newline) {
    const size_t sign = Peek() == '-' || (Peek() == '+' && mark != '}') ? 1 : 0;
    if (Peek(sign) != mark || Peek(sign + 1) != '}') return false;
    size_t to = at_ + sign + 2;
    if (Peek() == '-') {
      to = SpacesAt(source_, to);
    } else if (sign == 0 && trims_newline && to < source_.size() &&
               source_[to] == '\n') {
      ++to;
    }
    Advance(to);
    return true;
  }

  Status Comment(size_t inside) {
    const size_t close = source_.find("#}", inside);
    if (close == std::string_view::npos) {
      return TemplateError(line_, "a comment has no end");
    }
    const char before = close > inside ? source_[close - 1] : '\0';
    Advance(before == '-' || before == '+' ? close - 1 : close);
    End('#', true);
    return OkStatus();
  }

  // "raw %}" after the block's begin: everything up to endraw is data.
  StatusOr<bool> Raw(size_t inside) {
    size_t at = SpacesAt(source_, inside);
    if (!source_.substr(at).starts_with("raw")) return false;
    at = SpacesAt(source_, at + 3);
    const bool strips = source_.substr(at).starts_with("-%}");
    if (!strips && !source_.substr(at).starts_with("%}")) return false;
    const int begin_line = line_;
    Advance(strips ? SpacesAt(source_, at + 3) : at + 2);
    for (size_t tag = at_;; ++tag) {
      tag = source_.find("{%", tag);
      if (tag == std::string_view::npos) {
        return TemplateError(begin_line, "raw has no endraw");
      }
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      size_t name = SpacesAt(source_, tag + (has_sign ? 3 : 2));
      if (!source_.substr(name).starts_with("endraw")) continue;
      name = SpacesAt(source_, name + 6);
      const std::string_view rest = source_.substr(name);
      if (!rest.starts_with("%}") && !rest.starts_with("-%}") &&
          !rest.starts_with("+%}")) {
        continue;
      }
      AddData(source_.substr(at_, tag - at_), sign, false);
      Advance(name);
      End('%', true);
      return true;
    }
  }

  Status Tag(bool is_print) {
    std::string open;  // brackets: their closers, innermost last
    for (;;) {
      Advance(SpacesAt(source_, at_));
      if (at_ == source_.size()) {
        return TemplateError(line_, is_print ? "{{ has no }}" : "{% has no %}");
      }
      if (open.empty() && End(is_print ? '}' : '%', !is_print)) {
        Add(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, "");
        return OkStatus();
      }
      const char c = Peek();
      if (IsDecimal(c)) {
        Number();
      } else if (IsNameStart(c)) {
        size_t end = at_;
        while (end < source_.size() && IsNamePart(source_[end])) ++end;
        Add(Token::Kind::kName, source_.substr(at_, end - at_));
        Advance(end);
      } else if (c == '"' || c == '\'') {
        RETURN_IF_ERROR(String(c));
      } else {
        RETURN_IF_ERROR(Symbol(open));
      }
    }
  }

  Status Symbol(std::string& open) {
    static constexpr std::array<std::string_view, 26> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!StartsWith(symbol)) continue;
      if (symbol == "(") open.push_back(')');
      if (symbol == "[") open.push_back(']');
      if (symbol == "{") open.push_back('}');
      if (symbol == ")" || symbol == "]" || symbol == "}") {
        if (open.empty() || open.back() != symbol[0]) {
          return TemplateError(line_,
                               "unexpected '" + std::string(symbol) + "'");
        }
        open.pop_back();
      }
      Add(Token::Kind::kOperator, symbol);
      Advance(at_ + symbol.size());
      return OkStatus();
    }
    return TemplateError(
        line_, "unexpected character '" + std::string(1, Peek()) + "'");
  }

  // Digits with single underscores between them.
  size_t Digits(size_t at, int base) const {
    size_t end = at;
    while (end < source_.size()) {
      const size_t digit = source_[end] == '_' && end > at ? end + 1 : end;
      if (digit >= source_.size()) break;
      const int value = HexDigit(source_[digit]);
      if (value < 0 || value >= base) break;
      end = digit + 1;
    }
    return end;
  }

  void Number() {
    size_t end = at_;
    Token::Kind kind = Token::Kind::kInteger;
    const char letter = static_cast<char>(Peek(1) | 0x20);
    const int base = Peek() != '0'   ? 10
                     : letter == 'x' ? 16
                     : letter == 'o' ? 8
                     : letter == 'b' ? 2
                                     : 10;
    if (base != 10 && Digits(at_ + 2, base) > at_ + 2) {
      end = Digits(at_ + 2, base);
    } else {
      end = Digits(at_, 10);
      // After a dot stands an index, as in "items.0.name".
      const bool index = !tokens_.empty() && tokens_.back().Is(".");
      if (!index && end < source_.size() && source_[end] == '.' &&
          Digits(end + 1, 10) > end + 1) {
        end = Digits(end + 1, 10);
        kind = Token::Kind::kFloat;
      }
      if (!index && end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t power = end + 1;
        if (power < source_.size() &&
            (source_[power] == '+' || source_[power] == '-')) {
          ++power;
        }
        if (Digits(power, 10) > power) {
          end = Digits(power, 10);
          kind = Token::Kind::kFloat;
        }
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    Add(kind, digits);
    Advance(end);
  }

  Status String(char quote) {
    const int begin_line = line_;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      return TemplateError(begin_line, "a string has no end");
    }
    ASSIGN_OR_RETURN(const std::string value,
                     Unescape(source_.substr(at_ + 1, end - at_ - 1)));
    Add(Token::Kind::kString, value);
    Advance(end + 1);
    return OkStatus();
  }

  // Python's escapes; an unknown one stays as it is written.
  StatusOr<std::string> Unescape(std::string_view text) const {
    static constexpr std::string_view kPlain = "\\'\"abfnrtv";
    static constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      const size_t plain = kPlain.find(c);
      if (plain != std::string_view::npos) {
        out.push_back(kMeant[plain]);
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        size_t end = i;
        while (end < text.size() && end < i + 3 && text[end] >= '0' &&
               text[end] <= '7') {
          code = code * 8 + static_cast<char32_t>(text[end++] - '0');
        }
        AppendUtf8(out, code);
        i = end - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t code = 0;
        for (size_t k = 1; k <= digits; ++k) {
          const int digit = i + k < text.size() ? HexDigit(text[i + k]) : -1;
          if (digit < 0) return TemplateError(line_, "a broken \\ escape");
          code = code << 4 | static_cast<char32_t>(digit);
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
          return TemplateError(line_, "an escape that is no character");
        }
        AppendUtf8(out, code);
        i += digits;
      } else if (c == 'N') {
        return TemplateError(line_, "\\N{...} is not supported");
      } else if (c != '\n') {  // an escaped line break is nothing
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // the text passed so far ends with a newline
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Lex(std::string_view source) {
  const std::string text = NormalizeNewlines(source);
  return Lexer(text).Run();
}

Status TemplateError(int line, std::string_view message) {
  return InvalidArgument("chat template, line " + std::to_string(line) + ": " +
                         std::string(message));
}

}  // namespace millrace::models::jinja
