#include "handlers/parsers/literal.h"

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <system_error>

#include "config/base/json.h"
#include "handlers/parsers/output_parser.h"

namespace millrace::handlers {
namespace {

constexpr int kDeepest = 64;

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '+';
}

std::string JsonText(std::string_view text) {
  return DumpJson(nlohmann::ordered_json(std::string(text)));
}

// Appends what x12, u1234 or U00012345 at the beginning of `escape` stands for,
// as UTF-8. Its bytes; 0: it stands for no character.
size_t AppendCodePoint(std::string_view escape, std::string& out) {
  const size_t digits = escape[0] == 'x' ? 2 : escape[0] == 'u' ? 4 : 8;
  const std::string_view number = escape.substr(1, digits);
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), code, 16);
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (number.size() < digits || error != std::errc() ||
      end != number.data() + digits || code > 0x10ffff || is_surrogate) {
    return 0;
  }
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  if (code >= 0x80) add(0x80 | (code & 0x3f));
  return 1 + digits;
}

}  // namespace

void LiteralReader::SkipSpace() {
  size_t i = 0;
  while (i < text_.size() && IsJsonSpace(text_[i])) ++i;
  text_.remove_prefix(i);
}

bool LiteralReader::AtEnd() {
  SkipSpace();
  return text_.empty();
}

bool LiteralReader::Take(char c) {
  SkipSpace();
  if (text_.empty() || text_.front() != c) return false;
  text_.remove_prefix(1);
  return true;
}

bool LiteralReader::TakeText(std::string_view text) {
  SkipSpace();
  if (!text_.starts_with(text)) return false;
  text_.remove_prefix(text.size());
  return true;
}

std::string LiteralReader::Word() {
  SkipSpace();
  size_t i = 0;
  while (i < text_.size() && IsWordByte(text_[i])) ++i;
  std::string word(text_.substr(0, i));
  text_.remove_prefix(i);
  return word;
}

std::optional<std::string> LiteralReader::PythonString() {
  const char quote = text_.front();
  std::string value;
  for (size_t i = 1; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == quote) {
      text_.remove_prefix(i + 1);
      return JsonText(value);
    }
    if (c != '\\') {
      value += c;
      continue;
    }
    if (++i == text_.size()) break;
    switch (text_[i]) {
      case 'n':
        value += '\n';
        break;
      case 't':
        value += '\t';
        break;
      case 'r':
        value += '\r';
        break;
      case '\\':
      case '\'':
      case '"':
        value += text_[i];
        break;
      case 'x':
      case 'u':
      case 'U':
        if (const size_t size = AppendCodePoint(text_.substr(i), value);
            size > 0) {
          i += size - 1;
          break;
        }
        [[fallthrough]];
      default:  // an unknown escape, or one of Python that is rare, stays
        value += '\\';
        value += text_[i];
    }
  }
  return std::nullopt;
}

std::optional<std::string> LiteralReader::Quoted() {
  if (notation_.quote.empty()) {
    if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) {
      return std::nullopt;
    }
    return PythonString();
  }
  if (!text_.starts_with(notation_.quote)) return std::nullopt;
  const size_t begin = notation_.quote.size();
  const size_t end = text_.find(notation_.quote, begin);
  if (end == std::string_view::npos) return std::nullopt;
  std::string value = JsonText(text_.substr(begin, end - begin));
  text_.remove_prefix(end + begin);
  return value;
}

std::optional<std::string> LiteralReader::List(char close, int depth) {
  std::string json = "[";
  while (!Take(close)) {
    if (json.size() > 1) {
      if (!Take(',')) return std::nullopt;
      if (Take(close)) break;  // Python allows a comma at the end
      json += ", ";
    }
    const auto value = Value(depth + 1);
    if (!value) return std::nullopt;
    json += *value;
  }
  return json + "]";
}

std::optional<std::string> LiteralReader::Dict(int depth) {
  std::string json = "{";
  while (!Take('}')) {
    if (json.size() > 1) {
      if (!Take(',')) return std::nullopt;
      if (Take('}')) break;
      json += ", ";
    }
    SkipSpace();
    std::optional<std::string> key = Quoted();
    if (!key && notation_.bare_keys) {
      const std::string word = Word();
      if (!word.empty()) key = JsonText(word);
    }
    if (!key || !Take(':')) return std::nullopt;
    const auto value = Value(depth + 1);
    if (!value) return std::nullopt;
    json += *key + ": " + *value;
  }
  return json + "}";
}

std::optional<std::string> LiteralReader::Value(int depth) {
  if (depth > kDeepest) return std::nullopt;
  SkipSpace();
  if (text_.empty()) return std::nullopt;
  if (const auto quoted = Quoted()) return quoted;
  if (Take('[')) return List(']', depth);
  if (Take('(')) return List(')', depth);
  if (Take('{')) return Dict(depth);
  const std::string word = Word();
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  const auto number = ParseJson(word);
  if (number.ok() && number->is_number()) return word;
  return std::nullopt;
}

}  // namespace millrace::handlers
