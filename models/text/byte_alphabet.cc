// The alphabet: bytes that print in Latin-1 stand for themselves, the other 68
// get the code points from U+0100 on, in order. The soft hyphen (0xAD) does not
// print, although its neighbours do.
#include "models/text/byte_alphabet.h"

namespace millrace::models {
namespace {

bool Prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

}  // namespace

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = Prints(byte) ? byte : next++;
    bytes_[code] = static_cast<int16_t>(byte);
    std::string& out = characters_[byte];
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else {  // all are below U+0800
      out.push_back(static_cast<char>(0xC0 | code >> 6));
      out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
  }
}

std::string_view ByteAlphabet::Character(uint8_t byte) const {
  return characters_[byte];
}

std::optional<std::string> ByteAlphabet::Bytes(std::string_view piece) const {
  std::string out;
  out.reserve(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    size_t code = static_cast<uint8_t>(piece[i]);
    if (code >= 0x80) {
      if (code < 0xC2 || code > 0xDF || i + 1 == piece.size()) return {};
      const uint8_t low = static_cast<uint8_t>(piece[++i]);
      if ((low & 0xC0) != 0x80) return {};
      code = (code & 0x1F) << 6 | (low & 0x3F);
    }
    if (code >= bytes_.size() || bytes_[code] < 0) return {};
    out.push_back(static_cast<char>(bytes_[code]));
  }
  return out;
}

std::optional<char> ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return {};
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    const int nibble = digit >= '0' && digit <= '9'   ? digit - '0'
                       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                                      : -1;
    if (nibble < 0) return {};
    value = value * 16 + nibble;
  }
  return static_cast<char>(value);
}

}  // namespace millrace::models
