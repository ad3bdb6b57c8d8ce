// One walker over the well-formed sequences of RFC 3629 (no surrogates, no
// overlong forms, nothing above U+10FFFF); every question here asks it.
#include "config/base/utf8.h"

#include <cstdint>

namespace millrace {
namespace {

struct Step {
  size_t bytes;     // of the character, or of its maximal subpart when broken
  bool valid;       // a whole character
  bool incomplete;  // right so far, the end of the input cut it
};

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

Step Next(std::string_view in) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(in[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true, false};
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // bounds of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // shorter forms exist below
    if (lead == 0xED) high = 0x9F;  // surrogates above
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // U+10FFFF is the last
  } else {
    return {1, false, false};
  }
  if (in.size() < 2) return {1, false, true};
  if (at(1) < low || at(1) > high) return {1, false, false};
  for (size_t i = 2; i < length; ++i) {
    if (i >= in.size()) return {i, false, true};
    if (!IsContinuation(at(i))) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Step step = Next(bytes.substr(pos));
    if (!step.valid) break;
    pos += step.bytes;
  }
  return pos;
}

size_t IncompleteUtf8Suffix(std::string_view bytes) {
  // The cut character begins with the last byte that is no continuation.
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::string_view tail = bytes.substr(bytes.size() - back);
    if (IsContinuation(static_cast<uint8_t>(tail[0]))) continue;
    const Step step = Next(tail);
    return step.incomplete && step.bytes == back ? back : 0;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = ValidUtf8Prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    out.append("\xEF\xBF\xBD");
    bytes.remove_prefix(Next(bytes).bytes);
  }
  return out;
}

std::string Shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::string_view kept = text.substr(0, most);
  // What the end of `kept` may be the beginning of, the whole text tells.
  const size_t open = IncompleteUtf8Suffix(kept);
  const bool splits = open > 0 && Next(text.substr(most - open)).valid;
  return std::string(kept.substr(0, splits ? most - open : most));
}

}  // namespace millrace
