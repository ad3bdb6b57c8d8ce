// GPT-2's alphabet of bytes: vocabularies of byte-level BPE are written in
// printable characters, one for each of the 256 bytes ("Ġ" is the space).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::models {

class ByteAlphabet {
 public:
  ByteAlphabet();

  // The character that stands for a byte, in UTF-8.
  std::string_view Character(uint8_t byte) const;
  // The bytes a piece stands for; nothing when a character of it stands for
  // no byte.
  std::optional<std::string> Bytes(std::string_view piece) const;

 private:
  std::array<std::string, 256> characters_;  // byte → UTF-8
  std::array<int16_t, 324> bytes_;           // code point → byte, -1: none
};

// The byte of a token that is written "<0x0A>"; nothing for other texts.
std::optional<char> ByteOfToken(std::string_view text);

}  // namespace millrace::models
