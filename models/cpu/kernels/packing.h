// Weights re-laid for vector kernels that keep kRows rows in their lanes. The
// same bits as in the file, only interleaved, a block of 32 columns at a time:
//
//   Q4_*  4 vectors; vector j holds for row r, in bytes 4r…4r+3, the columns
//         4j…4j+3 in the low and 16+4j…16+4j+3 in the high halves
//   Q8_0  8 vectors; vector j holds for row r columns 4j…4j+3
//   then  kRows scales (f16), and for Q4_1 kRows minima (f16)
//
// so that four neighbouring columns of every row meet one broadcast of four
// activations. Float weights lie as [column][row]. Needs F16C. Anonymous
// namespace: every instruction set compiles its own copy.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels.h"

namespace millrace::models {
namespace {

template <int kRows>
struct Packing {
  static constexpr int64_t kMins = 2 * kRows;  // bytes of scales, or of minima

  static constexpr int64_t QuantBytes(WeightFormat format) {
    return (format == WeightFormat::kQ8_0 ? 32 : 16) * kRows;
  }
  // Bytes of one block of 32 columns, or of one column of float weights.
  static constexpr int64_t BlockBytes(WeightFormat format) {
    switch (format) {
      case WeightFormat::kF32:
        return 4 * kRows;
      case WeightFormat::kF16:
      case WeightFormat::kBF16:
        return 2 * kRows;
      case WeightFormat::kQ8_0:
      case WeightFormat::kQ4_0:
        return QuantBytes(format) + kMins;
      case WeightFormat::kQ4_1:
        return QuantBytes(format) + 2 * kMins;
    }
    return 0;
  }
  static constexpr bool IsInteger(WeightFormat format) {
    return format == WeightFormat::kQ8_0 || format == WeightFormat::kQ4_0 ||
           format == WeightFormat::kQ4_1;
  }

  static int64_t GroupBytes(WeightFormat format, int64_t k) {
    const int64_t blocks = IsInteger(format) ? k / 32 : k;
    return (blocks * BlockBytes(format) + 63) / 64 * 64;
  }

  static bool Pack(WeightFormat format, const void* const* rows,
                   int32_t num_rows, int64_t k, void* group) {
    auto* out = static_cast<uint8_t*>(group);
    __builtin_memset(out, 0, GroupBytes(format, k));
    for (int32_t r = 0; r < num_rows; ++r) {
      const auto* row = static_cast<const uint8_t*>(rows[r]);
      if (IsInteger(format)) {
        PackIntegers(format, row, r, k / 32, out);
      } else {
        const int64_t size = format == WeightFormat::kF32 ? 4 : 2;
        for (int64_t i = 0; i < k; ++i) {
          __builtin_memcpy(out + (i * kRows + r) * size, row + i * size, size);
        }
      }
    }
    return true;
  }

  static void PackIntegers(WeightFormat format, const uint8_t* row, int32_t r,
                           int64_t blocks, uint8_t* out) {
    const int64_t scales = QuantBytes(format);
    for (int64_t b = 0; b < blocks; ++b, out += BlockBytes(format)) {
      __builtin_memcpy(out + scales + 2 * r, row, 2);
      row += 2;
      if (format == WeightFormat::kQ4_1) {
        __builtin_memcpy(out + scales + kMins + 2 * r, row, 2);
        row += 2;
      }
      // The file's byte i already pairs columns i and i + 16, as we do.
      const int vectors = format == WeightFormat::kQ8_0 ? 8 : 4;
      for (int j = 0; j < vectors; ++j) {
        __builtin_memcpy(out + (j * kRows + r) * 4, row + 4 * j, 4);
      }
      row += 4 * vectors;
    }
  }

  static float Half(const uint8_t* p) {
    uint16_t bits;
    __builtin_memcpy(&bits, p, 2);
    return _cvtsh_ss(bits);
  }

  static void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
    const auto* p =
        static_cast<const uint8_t*>(w.data) + row / kRows * w.group_bytes;
    const int64_t r = row % kRows;
    if (!IsInteger(w.format)) {
      for (int64_t i = 0; i < w.k; ++i) out[i] = Float(w.format, p, i, r);
      return;
    }
    const int64_t scales = QuantBytes(w.format);
    for (int64_t b = 0; b < w.k / 32; ++b, p += BlockBytes(w.format)) {
      const float d = Half(p + scales + 2 * r);
      for (int i = 0; i < 32; ++i) {
        float& x = out[b * 32 + i];
        if (w.format == WeightFormat::kQ8_0) {
          const uint8_t q = p[(i / 4 * kRows + r) * 4 + i % 4];
          x = static_cast<float>(static_cast<int8_t>(q)) * d;
          continue;
        }
        const uint8_t pair = p[(i % 16 / 4 * kRows + r) * 4 + i % 4];
        const int q = i < 16 ? pair & 15 : pair >> 4;
        if (w.format == WeightFormat::kQ4_0) {
          x = static_cast<float>(q - 8) * d;
        } else {
          const float m = Half(p + scales + kMins + 2 * r);
          x = __builtin_fmaf(static_cast<float>(q), d, m);
        }
      }
    }
  }

  static float Float(WeightFormat format, const uint8_t* p, int64_t i,
                     int64_t r) {
    const int64_t at = i * kRows + r;
    if (format == WeightFormat::kF16) return Half(p + at * 2);
    uint32_t bits = 0;
    if (format == WeightFormat::kBF16) {
      uint16_t high;
      __builtin_memcpy(&high, p + at * 2, 2);
      bits = uint32_t{high} << 16;
    } else {
      __builtin_memcpy(&bits, p + at * 4, 4);
    }
    return __builtin_bit_cast(float, bits);
  }
};

}  // namespace
}  // namespace millrace::models
