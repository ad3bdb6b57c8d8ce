// Decompose fully, order marks by class, compose again (UAX #15, sections 3.1
// and 3.11 of the Unicode Standard). What a reader would guess wrong: a mark is
// blocked from its starter by any character between of class 0, or of a class
// not below its own; and Hangul syllables are arithmetic, not table.
#include "models/text/nfc.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "models/text/nfc_tables.h"

namespace millrace::models {
namespace {

// Hangul syllables, section 3.12: L, V and T are the three kinds of parts.
constexpr uint32_t kS = 0xac00, kL = 0x1100, kV = 0x1161, kT = 0x11a7;
constexpr uint32_t kNumL = 19, kNumV = 21, kNumT = 28;
constexpr uint32_t kNumS = kNumL * kNumV * kNumT;

struct Parts {
  uint32_t first;
  uint32_t second;  // 0: none
};
struct Marked {
  uint32_t code;
  uint8_t mark_class;
};

uint64_t PairOf(uint32_t first, uint32_t second) {
  return uint64_t{first} << 32 | second;
}

// Takes a number and the character behind it off the front.
uint32_t Take(std::string_view& text, int base) {
  uint32_t number = 0;
  const auto end =
      std::from_chars(text.data(), text.data() + text.size(), number, base);
  text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
  return number;
}

struct Tables {
  std::unordered_map<uint32_t, Parts> parts;
  std::unordered_map<uint64_t, uint32_t> composed;
  std::unordered_map<uint32_t, uint8_t> classes;

  Tables() {
    for (std::string_view text = NfcDecompositions(); !text.empty();) {
      const uint32_t code = Take(text, 16);
      const bool recomposes = text[0] == '=';
      text.remove_prefix(1);
      Parts made{Take(text, 16), 0};
      if (text[0] == '+') {
        text.remove_prefix(1);
        made.second = Take(text, 16);
      }
      text.remove_prefix(1);
      parts.emplace(code, made);
      if (recomposes && made.second != 0) {
        composed.emplace(PairOf(made.first, made.second), code);
      }
    }
    for (std::string_view text = NfcClasses(); !text.empty();) {
      const uint32_t first = Take(text, 16);
      text.remove_prefix(1);
      const uint32_t last = Take(text, 16);
      text.remove_prefix(1);
      const auto number = static_cast<uint8_t>(Take(text, 10));
      text.remove_prefix(1);
      for (uint32_t code = first; code <= last; ++code) {
        classes.emplace(code, number);
      }
    }
  }

  uint8_t ClassOf(uint32_t code) const {
    const auto it = classes.find(code);
    return it == classes.end() ? 0 : it->second;
  }

  // At most four levels deep by the standard's own data.
  void Decompose(uint32_t code, std::vector<Marked>& out) const {
    if (code >= kS && code < kS + kNumS) {
      const uint32_t at = code - kS;
      out.push_back({kL + at / (kNumV * kNumT), 0});
      out.push_back({kV + at / kNumT % kNumV, 0});
      if (at % kNumT != 0) out.push_back({kT + at % kNumT, 0});
      return;
    }
    const auto it = parts.find(code);
    if (it == parts.end()) {
      out.push_back({code, ClassOf(code)});
      return;
    }
    Decompose(it->second.first, out);
    if (it->second.second != 0) Decompose(it->second.second, out);
  }

  // 0: they stay apart.
  uint32_t Compose(uint32_t first, uint32_t second) const {
    if (first >= kL && first < kL + kNumL && second >= kV &&
        second < kV + kNumV) {
      return kS + ((first - kL) * kNumV + (second - kV)) * kNumT;
    }
    if (first >= kS && first < kS + kNumS && (first - kS) % kNumT == 0 &&
        second > kT && second < kT + kNumT) {
      return first + (second - kT);
    }
    const auto it = composed.find(PairOf(first, second));
    return it == composed.end() ? 0 : it->second;
  }
};

// Of valid UTF-8.
uint32_t TakeCharacter(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code = size == 1 ? lead : lead & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) code = code << 6 | (byte(i) & 0x3fu);
  text.remove_prefix(size);
  return code;
}

void PutCharacter(uint32_t code, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

void OrderMarks(std::vector<Marked>& text) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end].mark_class != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i),
                     text.begin() + static_cast<ptrdiff_t>(end),
                     [](const Marked& a, const Marked& b) {
                       return a.mark_class < b.mark_class;
                     });
    i = end + 1;
  }
}

void ComposeAll(const Tables& tables, std::vector<Marked>& text) {
  size_t kept = 0;            // what stands before it stays
  size_t starter = SIZE_MAX;  // the last character of class 0, if any
  for (const Marked next : text) {
    if (starter != SIZE_MAX) {
      // Between starter and `next` stand only marks, the last is the greatest.
      const bool adjacent = kept == starter + 1;
      const uint8_t last = adjacent ? 0 : text[kept - 1].mark_class;
      if (adjacent || (next.mark_class != 0 && last < next.mark_class)) {
        const uint32_t made = tables.Compose(text[starter].code, next.code);
        if (made != 0) {
          text[starter].code = made;
          continue;
        }
      }
    }
    if (next.mark_class == 0) starter = kept;
    text[kept++] = next;
  }
  text.resize(kept);
}

}  // namespace

bool IsPlainlyNfc(std::string_view text) {
  // Below U+0300, whose first byte is 0xcc, nothing changes.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

std::string ToNfc(std::string_view text) {
  if (IsPlainlyNfc(text)) return std::string(text);
  static const Tables tables;
  std::vector<Marked> parts;
  parts.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    tables.Decompose(TakeCharacter(rest), parts);
  }
  OrderMarks(parts);
  ComposeAll(tables, parts);
  std::string out;
  out.reserve(text.size());
  for (const Marked& part : parts) PutCharacter(part.code, out);
  return out;
}

}  // namespace millrace::models
