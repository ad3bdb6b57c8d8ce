// y = W x for every weight format, and the packing that goes with it: the
// file's own rows, one after the other, eight to a group. So "packed" changes
// nothing here; it is the vector tables that interleave.
//
// GGUF blocks of 32 weights (d, m are f16):
//   Q4_0  d q[16]     w = d * (nibble - 8)   byte i holds weight i in its low
//   Q4_1  d m q[16]   w = d * nibble + m     and weight i + 16 in its high half
//   Q8_0  d q[32]     w = d * q

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
  switch (format) {
    case WeightFormat::kF32:
      return k * 4;
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return k * 2;
    case WeightFormat::kQ8_0:
      return k / 32 * 34;
    case WeightFormat::kQ4_0:
      return k / 32 * 18;
    case WeightFormat::kQ4_1:
      return k / 32 * 20;
  }
  return 0;
}

bool IsInteger(WeightFormat format) {
  return format == WeightFormat::kQ8_0 || format == WeightFormat::kQ4_0 ||
         format == WeightFormat::kQ4_1;
}

const uint8_t* RowOf(const PackedMatrix& w, int64_t row) {
  const int64_t row_bytes = RowBytes(w.format, w.k);
  return static_cast<const uint8_t*>(w.data) + row / kRowGroup * w.group_bytes +
         row % kRowGroup * row_bytes;
}

struct Block {
  int16_t q[32];  // already less the 8 of Q4_0
  float d;
  float m;  // Q4_1 only
};

// Returns the address of the next block.
const uint8_t* DecodeBlock(WeightFormat format, const uint8_t* p, Block* out) {
  out->d = FloatOfHalf(Load16(p));
  out->m = 0.0f;
  p += 2;
  if (format == WeightFormat::kQ8_0) {
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(p[i]);
    return p + 32;
  }
  int16_t less = 8;
  if (format == WeightFormat::kQ4_1) {
    out->m = FloatOfHalf(Load16(p));
    p += 2;
    less = 0;
  }
  for (int i = 0; i < 16; ++i) {
    out->q[i] = static_cast<int16_t>((p[i] & 15) - less);
    out->q[i + 16] = static_cast<int16_t>((p[i] >> 4) - less);
  }
  return p + 16;
}

float DecodeFloat(WeightFormat format, const uint8_t* row, int64_t k) {
  if (format == WeightFormat::kF16) return FloatOfHalf(Load16(row + 2 * k));
  if (format == WeightFormat::kBF16) return FloatOfBf16(Load16(row + 2 * k));
  const uint8_t* p = row + 4 * k;
  return FloatOfBits(uint32_t{Load16(p)} | uint32_t{Load16(p + 2)} << 16);
}

// One output of `count` tokens from `first` on, integer weights.
void IntegerTile(const PackedMatrix& w, const uint8_t* row, const ActRows& act,
                 int64_t first, int count, float* acc) {
  for (int t = 0; t < count; ++t) acc[t] = 0.0f;
  for (int64_t b = 0; b < w.k / 32; ++b) {
    Block block;
    row = DecodeBlock(w.format, row, &block);
    for (int t = 0; t < count; ++t) {
      const int8_t* x = act.q + (first + t) * act.ld_q + b * 32;
      int32_t isum = 0;
      for (int i = 0; i < 32; ++i) isum += int32_t{block.q[i]} * x[i];
      const int64_t at = (first + t) * act.ld_block + b;
      acc[t] = Fma(static_cast<float>(isum), block.d * act.d[at], acc[t]);
      if (w.format == WeightFormat::kQ4_1) {
        acc[t] = Fma(block.m, act.s[at], acc[t]);
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
  for (int64_t b = 0; b < w.k / 32; ++b) {
    Block block;
    p = DecodeBlock(w.format, p, &block);
    for (int i = 0; i < 32; ++i) {
      const float q = block.q[i];
      out[b * 32 + i] = w.format == WeightFormat::kQ4_1
                            ? Fma(q, block.d, block.m)
                            : q * block.d;
    }
  }
}

}  // namespace millrace::models::scalar
