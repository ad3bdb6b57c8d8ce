// y = W x for every weight format, and the packing that goes with it: the
// file's own rows, one after the other, eight to a group. So "packed" changes
// nothing here; it is the vector tables that interleave.

#include "models/cpu/kernels/blocks.h"
#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models::scalar {
namespace {

constexpr int kRowGroup = 8;
constexpr int kTile = 8;  // tokens that share one decoded block

uint16_t Load16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

int64_t RowBytes(WeightFormat format, int64_t k) {
  const BlockShape shape = ShapeOf(format);
  if (shape.columns != 0) return k / shape.columns * shape.bytes;
  return format == WeightFormat::kF32 ? k * 4 : k * 2;
}

const uint8_t* RowOf(const PackedMatrix& w, int64_t row) {
  const int64_t row_bytes = RowBytes(w.format, w.k);
  return static_cast<const uint8_t*>(w.data) + row / kRowGroup * w.group_bytes +
         row % kRowGroup * row_bytes;
}

float DecodeFloat(WeightFormat format, const uint8_t* row, int64_t k) {
  if (format == WeightFormat::kF16) return FloatOfHalf(Load16(row + 2 * k));
  if (format == WeightFormat::kBF16) return FloatOfBf16(Load16(row + 2 * k));
  const uint8_t* p = row + 4 * k;
  return FloatOfBits(uint32_t{Load16(p)} | uint32_t{Load16(p + 2)} << 16);
}

// Adds 32 columns to one output of one token; x is the token's values there,
// `at` the number of its block.
float AddPart(WeightFormat format, const Scales& scales, const int16_t w[32],
              const ActRows& act, const int8_t* x, int64_t at, float acc) {
  int32_t isum = 0;
  for (int h = 0; h < 2; ++h) {
    int32_t sum = 0;
    for (int i = 16 * h; i < 16 * h + 16; ++i) sum += int32_t{w[i]} * x[i];
    isum += scales.scale[h] * sum;
  }
  acc = Fma(static_cast<float>(isum), scales.d * act.d[at], acc);
  if (HasMin(format)) return Fma(scales.m, act.s[at], acc);
  if (format == WeightFormat::kQ2_K) {
    const int32_t imin =
        scales.min[0] * act.half[2 * at] + scales.min[1] * act.half[2 * at + 1];
    return Fma(static_cast<float>(imin), -(scales.m * act.d[at]), acc);
  }
  return acc;
}

// One output of `count` tokens from `first` on, integer weights.
void IntegerTile(const PackedMatrix& w, const uint8_t* block,
                 const ActRows& act, int64_t first, int count, float* acc) {
  const BlockShape shape = ShapeOf(w.format);
  for (int t = 0; t < count; ++t) acc[t] = 0.0f;
  for (int64_t k = 0; k < w.k; k += shape.columns, block += shape.bytes) {
    for (int part = 0; part < shape.columns / 32; ++part) {
      uint8_t codes[32];
      ReadCodes(w.format, block, part, codes);
      int16_t weights[32];
      for (int i = 0; i < 32; ++i) {
        weights[i] = static_cast<int16_t>(IntegerOf(w.format, codes[i]));
      }
      const Scales scales = ReadScales(w.format, block, part);
      const int64_t column = k + 32 * part;
      for (int t = 0; t < count; ++t) {
        const int8_t* x = act.q + (first + t) * act.ld_q + column;
        const int64_t at = (first + t) * act.ld_block + column / 32;
        acc[t] = AddPart(w.format, scales, weights, act, x, at, acc[t]);
      }
    }
  }
}

// One output of one token, float weights: four strands.
float FloatDot(const PackedMatrix& w, const uint8_t* row, const float* x) {
  float a[4] = {0, 0, 0, 0};
  for (int64_t k = 0; k < w.k; ++k) {
    a[k % 4] = Fma(DecodeFloat(w.format, row, k), x[k], a[k % 4]);
  }
  return (a[0] + a[1]) + (a[2] + a[3]);
}

}  // namespace

int64_t GroupBytes(WeightFormat format, int64_t k) {
  return (kRowGroup * RowBytes(format, k) + 63) / 64 * 64;
}

bool PackGroup(WeightFormat format, const void* const* rows, int32_t num_rows,
               int64_t k, void* group) {
  const int64_t row_bytes = RowBytes(format, k);
  auto* out = static_cast<uint8_t*>(group);
  __builtin_memset(out, 0, GroupBytes(format, k));
  for (int32_t r = 0; r < num_rows; ++r) {
    __builtin_memcpy(out + r * row_bytes, rows[r], row_bytes);
  }
  return true;
}

void Linear(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
            const ActRows& act, int32_t num_rows, float* y, int64_t ld_y) {
  const int64_t end = group_end * kRowGroup < w.n ? group_end * kRowGroup : w.n;
  for (int64_t n = group_begin * kRowGroup; n < end; ++n) {
    const uint8_t* row = RowOf(w, n);
    for (int32_t first = 0; first < num_rows; first += kTile) {
      const int count = num_rows - first < kTile ? num_rows - first : kTile;
      float acc[kTile];
      if (IsInteger(w.format)) {
        IntegerTile(w, row, act, first, count, acc);
      } else {
        for (int t = 0; t < count; ++t) {
          acc[t] = FloatDot(w, row, act.f32 + (first + t) * act.ld_f32);
        }
      }
      for (int t = 0; t < count; ++t) y[(first + t) * ld_y + n] = acc[t];
    }
  }
}

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  const uint8_t* p = RowOf(w, row);
  if (!IsInteger(w.format)) {
    for (int64_t k = 0; k < w.k; ++k) out[k] = DecodeFloat(w.format, p, k);
    return;
  }
  const BlockShape shape = ShapeOf(w.format);
  for (int64_t k = 0; k < w.k; k += shape.columns, p += shape.bytes) {
    for (int part = 0; part < shape.columns / 32; ++part) {
      uint8_t codes[32];
      ReadCodes(w.format, p, part, codes);
      UnpackPart(w.format, ReadScales(w.format, p, part), codes,
                 out + k + 32 * part);
    }
  }
}

}  // namespace millrace::models::scalar
