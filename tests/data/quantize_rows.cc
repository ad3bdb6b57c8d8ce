// Plain rounding to every GGUF weight format: no search for the best scale, as
// real quantisers do, and the same bytes on every machine. Only for tests.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/data/tiny_gguf.h"

namespace millrace::models {
namespace {

template <typename T>
void Append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

int Nearest(float x, int low, int high) {
  return std::clamp(static_cast<int>(std::lround(x)), low, high);
}

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                          1,    13,   25,  38,  53,  69,  89,  113};
constexpr int kFp4[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                          0, -1, -2, -3, -4, -6, -8, -12};

int NearestEntry(const int (&table)[16], float x) {
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    const auto entry = static_cast<float>(table[i]);
    if (std::fabs(entry - x) < std::fabs(static_cast<float>(table[best]) - x)) {
      best = i;
    }
  }
  return best;
}

struct Range {
  float least, most;
  float extreme;  // the value of greatest magnitude, with its sign
};
Range RangeOf(const float* x, int count) {
  Range r{x[0], x[0], x[0]};
  for (int i = 1; i < count; ++i) {
    r.least = std::min(r.least, x[i]);
    r.most = std::max(r.most, x[i]);
    if (std::fabs(x[i]) > std::fabs(r.extreme)) r.extreme = x[i];
  }
  return r;
}

// ---- blocks of 32 ----

void AppendBlock32(GgmlType type, const float* x, std::string& out) {
  const Range range = RangeOf(x, 32);
  if (type == GgmlType::kQ8_0) {
    const uint16_t bits = FloatToHalf(std::fabs(range.extreme) / 127);
    const float d = HalfToFloat(bits);
    Append(out, bits);
    for (int i = 0; i < 32; ++i) {
      Append(out,
             static_cast<int8_t>(d == 0 ? 0 : Nearest(x[i] / d, -127, 127)));
    }
    return;
  }
  int code[32];
  if (type == GgmlType::kMXFP4) {
    // The least power of two that leaves the greatest value within 12.
    const float greatest = std::fabs(range.extreme);
    const int power =
        greatest == 0
            ? 0
            : static_cast<int>(std::ceil(std::log2(greatest / 12))) + 128;
    const auto exponent = static_cast<uint8_t>(std::clamp(power, 0, 254));
    Append(out, exponent);
    for (int i = 0; i < 32; ++i) {
      code[i] = NearestEntry(kFp4, std::ldexp(x[i], 128 - exponent));
    }
  } else {
    const bool five = type == GgmlType::kQ5_0 || type == GgmlType::kQ5_1;
    const bool with_min = type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
    const bool table = type == GgmlType::kIQ4_NL;
    const int levels = five ? 32 : 16;
    const int half = levels / 2;
    const float step =
        with_min
            ? (range.most - range.least) / static_cast<float>(levels - 1)
            : range.extreme / (table ? -127.0f : static_cast<float>(-half));
    const uint16_t scale_bits = FloatToHalf(step);
    const uint16_t min_bits = FloatToHalf(with_min ? range.least : 0);
    const float d = HalfToFloat(scale_bits);
    const float m = HalfToFloat(min_bits);
    Append(out, scale_bits);
    if (with_min) Append(out, min_bits);
    for (int i = 0; i < 32; ++i) {
      if (table) {
        code[i] = NearestEntry(kIq4, d == 0 ? 0 : x[i] / d);
      } else if (d == 0) {
        code[i] = with_min ? 0 : half;
      } else {
        code[i] = Nearest(
            (x[i] - m) / d + (with_min ? 0.0f : static_cast<float>(half)), 0,
            levels - 1);
      }
    }
    if (five) {
      uint32_t high = 0;
      for (int i = 0; i < 32; ++i) {
        high |= static_cast<uint32_t>(code[i] >> 4) << i;
      }
      Append(out, high);
    }
  }
  for (int i = 0; i < 16; ++i) {
    out.push_back(static_cast<char>((code[i] & 15) | (code[i + 16] & 15) << 4));
  }
}

// ---- blocks of 256 ----

// Scales of sub-blocks as integers below the block's d (and minima below
// dmin), and the codes that follow.
struct Block256 {
  uint16_t d_bits = 0, dmin_bits = 0;
  int sc[16] = {}, mn[16] = {};
  int code[256] = {};
};

struct Recipe {
  int sub;        // values that share a scale
  int levels;     // codes 0…levels - 1
  int most;       // the greatest scale
  bool with_min;  // w = d*sc * code - dmin*mn; else d*sc * (code - levels/2)
};

Block256 Quantize256(const Recipe& recipe, bool table, const float* x) {
  Block256 b;
  const int subs = 256 / recipe.sub;
  float step[16], min[16];
  float greatest_step = 0, greatest_min = 0;
  for (int s = 0; s < subs; ++s) {
    const Range range = RangeOf(x + s * recipe.sub, recipe.sub);
    min[s] = std::max(0.0f, -range.least);
    step[s] = recipe.with_min ? (std::max(range.most, -min[s]) + min[s]) /
                                    static_cast<float>(recipe.levels - 1)
              : table ? range.extreme / -127
                      : range.extreme / static_cast<float>(-recipe.levels / 2);
    greatest_step = std::max(greatest_step, std::fabs(step[s]));
    greatest_min = std::max(greatest_min, min[s]);
  }
  const auto most = static_cast<float>(recipe.most);
  b.d_bits = FloatToHalf(greatest_step / most);
  b.dmin_bits = FloatToHalf(recipe.with_min ? greatest_min / most : 0);
  const float d = HalfToFloat(b.d_bits);
  const float dmin = HalfToFloat(b.dmin_bits);
  for (int s = 0; s < subs; ++s) {
    if (d != 0) b.sc[s] = Nearest(step[s] / d, -recipe.most, recipe.most);
    if (dmin != 0) b.mn[s] = Nearest(min[s] / dmin, 0, recipe.most);
    const float scale = d * static_cast<float>(b.sc[s]);
    const float less = dmin * static_cast<float>(b.mn[s]);
    for (int i = s * recipe.sub; i < (s + 1) * recipe.sub; ++i) {
      const float q = scale == 0 ? 0 : (x[i] + less) / scale;
      const int zero = recipe.with_min ? 0 : recipe.levels / 2;
      b.code[i] =
          table ? NearestEntry(kIq4, q)
                : Nearest(q + static_cast<float>(zero), 0, recipe.levels - 1);
    }
  }
  return b;
}

Recipe RecipeOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ2_K:
      return {16, 4, 15, true};
    case GgmlType::kQ3_K:
      return {16, 8, 31, false};
    case GgmlType::kQ4_K:
      return {32, 16, 63, true};
    case GgmlType::kQ5_K:
      return {32, 32, 63, true};
    case GgmlType::kQ6_K:
      return {16, 64, 127, false};
    default:  // IQ4_XS
      return {32, 16, 31, false};
  }
}

// Where bits go; see dequantize.cc for the layouts.
void Or(std::string& block, int at, int bits) {
  block[at] = static_cast<char>(block[at] | bits);
}
void PutFour(std::string& block, int at, int i, int q) {
  Or(block, at + 32 * (i / 64) + i % 32, (q & 15) << 4 * (i / 32 % 2));
}
void PutTwo(std::string& block, int at, int i, int q) {
  Or(block, at + 32 * (i / 128) + i % 32, (q & 3) << 2 * (i / 32 % 4));
}
void PutOne(std::string& block, int at, int i, int q) {
  Or(block, at + i % 32, (q & 1) << i / 32);
}
void PutHalf(std::string& block, int at, uint16_t bits) {
  std::memcpy(block.data() + at, &bits, sizeof bits);
}
void PutScaleMins(std::string& block, int at, const Block256& b) {
  for (int i = 0; i < 4; ++i) {
    Or(block, at + i, b.sc[i] | (b.sc[i + 4] >> 4) << 6);
    Or(block, at + 4 + i, b.mn[i] | (b.mn[i + 4] >> 4) << 6);
    Or(block, at + 8 + i, (b.sc[i + 4] & 15) | (b.mn[i + 4] & 15) << 4);
  }
}

void AppendBlock256(GgmlType type, const float* x, std::string& out) {
  const Block256 b = Quantize256(RecipeOf(type), type == GgmlType::kIQ4_XS, x);
  std::string block(static_cast<size_t>(InfoOf(type).block_bytes), '\0');
  for (int i = 0; i < 256; ++i) {
    const int q = b.code[i];
    if (type == GgmlType::kQ2_K) {
      PutTwo(block, 16, i, q);
    } else if (type == GgmlType::kQ3_K) {
      PutTwo(block, 32, i, q);
      PutOne(block, 0, i, q >> 2);
    } else if (type == GgmlType::kQ4_K) {
      PutFour(block, 16, i, q);
    } else if (type == GgmlType::kQ5_K) {
      PutFour(block, 48, i, q);
      PutOne(block, 16, i, q >> 4);
    } else if (type == GgmlType::kQ6_K) {
      Or(block, 64 * (i / 128) + i % 64, (q & 15) << 4 * (i / 64 % 2));
      PutTwo(block, 128, i, q >> 4);
    } else {
      Or(block, 8 + 16 * (i / 32) + i % 16, q << 4 * (i / 16 % 2));
    }
  }
  switch (type) {
    case GgmlType::kQ2_K:
      for (int s = 0; s < 16; ++s) Or(block, s, b.sc[s] | b.mn[s] << 4);
      PutHalf(block, 80, b.d_bits);
      PutHalf(block, 82, b.dmin_bits);
      break;
    case GgmlType::kQ3_K:
      for (int s = 0; s < 16; ++s) {
        const int sc = b.sc[s] + 32;
        Or(block, 96 + s % 8, (sc & 15) << 4 * (s / 8));
        Or(block, 104 + s % 4, sc >> 4 << 2 * (s / 4));
      }
      PutHalf(block, 108, b.d_bits);
      break;
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      PutHalf(block, 0, b.d_bits);
      PutHalf(block, 2, b.dmin_bits);
      PutScaleMins(block, 4, b);
      break;
    case GgmlType::kQ6_K:
      for (int s = 0; s < 16; ++s) Or(block, 192 + s, b.sc[s] & 255);
      PutHalf(block, 208, b.d_bits);
      break;
    default:  // IQ4_XS
      PutHalf(block, 0, b.d_bits);
      for (int s = 0; s < 8; ++s) {
        const int ls = b.sc[s] + 32;
        Or(block, 2 + s / 4, ls >> 4 << 2 * (s % 4));
        Or(block, 4 + s / 2, (ls & 15) << 4 * (s % 2));
      }
  }
  out += block;
}

}  // namespace

std::string QuantizeRows(GgmlType type, std::span<const float> values,
                         int64_t k) {
  std::string out;
  const auto block = static_cast<size_t>(InfoOf(type).block_values);
  if (block > 1) {
    if (k % InfoOf(type).block_values != 0) return out;
    for (size_t i = 0; i + block <= values.size(); i += block) {
      (block == 32 ? AppendBlock32 : AppendBlock256)(type, values.data() + i,
                                                     out);
    }
    return out;
  }
  for (const float value : values) {
    if (type == GgmlType::kF16) {
      Append(out, FloatToHalf(value));
    } else if (type == GgmlType::kBF16) {
      Append(out, FloatToBFloat16(value));
    } else {
      Append(out, value);
    }
  }
  return out;
}

}  // namespace millrace::models
