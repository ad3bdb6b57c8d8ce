#include "server/torchserve/properties.h"

#include <algorithm>
#include <cstdint>

namespace millrace::server::torchserve {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\f'; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// One character of the basic plane; halves of pairs become U+FFFD.
void AppendUtf8(uint32_t c, std::string& text) {
  if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xe0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<Properties> Parse() {
    while (at_ < text_.size()) {
      SkipBlanks();
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      if (c == '\n' || c == '\r') {
        TakeLineEnd();
      } else if (c == '#' || c == '!') {
        while (!AtLineEnd()) ++at_;
      } else {
        RETURN_IF_ERROR(ReadEntry());
      }
    }
    return std::move(properties_);
  }

 private:
  bool AtLineEnd() const {
    return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r';
  }
  void TakeLineEnd() {
    if (at_ >= text_.size()) return;
    if (text_[at_] == '\r' && at_ + 1 < text_.size() &&
        text_[at_ + 1] == '\n') {
      ++at_;
    }
    ++at_;
    ++line_;
  }
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }

  Status Wrong(std::string_view what) const {
    return InvalidArgument("line " + std::to_string(line_) + " has " +
                           std::string(what));
  }

  // Behind a backslash. A line's end means that the next line goes on.
  Status ReadEscape(std::string& out) {
    if (AtLineEnd()) {
      TakeLineEnd();
      SkipBlanks();
      return OkStatus();
    }
    const char c = text_[at_++];
    switch (c) {
      case 't':
        out += '\t';
        return OkStatus();
      case 'n':
        out += '\n';
        return OkStatus();
      case 'r':
        out += '\r';
        return OkStatus();
      case 'f':
        out += '\f';
        return OkStatus();
      case 'u':
        break;
      default:
        out += c;
        return OkStatus();
    }
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = at_ < text_.size() ? HexDigit(text_[at_]) : -1;
      if (digit < 0) return Wrong("\\u without four hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    if (value == 0) return Wrong("a NUL character");
    AppendUtf8(value, out);
    return OkStatus();
  }

  Status ReadEntry() {
    std::string key, value;
    while (!AtLineEnd()) {
      const char c = text_[at_];
      if (c == '=' || c == ':' || IsBlank(c)) break;
      RETURN_IF_ERROR(Take(key));
    }
    SkipBlanks();
    if (!AtLineEnd() && (text_[at_] == '=' || text_[at_] == ':')) ++at_;
    SkipBlanks();
    while (!AtLineEnd()) RETURN_IF_ERROR(Take(value));
    TakeLineEnd();
    const auto same =
        std::find_if(properties_.begin(), properties_.end(),
                     [&](const auto& each) { return each.first == key; });
    if (same != properties_.end()) {
      same->second = std::move(value);
    } else if (properties_.size() == kMaxKeys) {
      return Wrong("a key too many: " + std::to_string(kMaxKeys) +
                   " are allowed");
    } else {
      properties_.emplace_back(std::move(key), std::move(value));
    }
    return OkStatus();
  }

  Status Take(std::string& out) {
    const char c = text_[at_++];
    if (c == '\0') return Wrong("a NUL character");
    if (c == '\\') return ReadEscape(out);
    out += c;
    return OkStatus();
  }

  static constexpr size_t kMaxKeys = 1000;
  const std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  Properties properties_;
};

}  // namespace

void SetProperty(Properties& properties, const std::string& key,
                 std::string value) {
  for (auto& [name, old] : properties) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  properties.emplace_back(key, std::move(value));
}

StatusOr<Properties> ParseProperties(std::string_view text) {
  if (text.size() > kMaxPropertiesBytes) {
    return InvalidArgument("the file has " + std::to_string(text.size()) +
                           " bytes but " + std::to_string(kMaxPropertiesBytes) +
                           " are allowed");
  }
  return Parser(text).Parse();
}

}  // namespace millrace::server::torchserve
