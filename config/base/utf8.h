// Whole and valid UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

// Bytes of the longest prefix that is whole, valid UTF-8.
size_t ValidUtf8Prefix(std::string_view bytes);
inline bool IsValidUtf8(std::string_view bytes) {
  return ValidUtf8Prefix(bytes) == bytes.size();
}
// How many bytes at the end may be the beginning of a character that is not
// complete yet: 0 to 3.
size_t IncompleteUtf8Suffix(std::string_view bytes);
// Each ill-formed part (maximal subpart, Unicode 15 section 3.9) becomes
// U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view bytes);
// At most the first `most` bytes of a text that goes into a sentence; a
// character that would be cut in two is left out. Bytes that are not UTF-8 stay
// as they are.
std::string Shortened(std::string_view text, size_t most);

}  // namespace millrace
