#include "config/base/base64.h"

#include <cstdint>

namespace millrace {
namespace {

int ValueOf(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  int num_padding = 0;
  size_t num_digits = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '=') {
      if (++num_padding > 2) return std::nullopt;
      continue;
    }
    const int value = ValueOf(c);
    if (value < 0 || num_padding > 0) return std::nullopt;
    ++num_digits;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffff;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>(bits >> num_bits & 0xff);
    }
  }
  if (num_digits % 4 == 1) return std::nullopt;
  return bytes;
}

}  // namespace millrace
