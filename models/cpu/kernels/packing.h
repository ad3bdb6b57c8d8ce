// Weights re-laid for vector kernels that keep kRows rows in their lanes. The
// same bits as in the file, as many bytes, only interleaved. In what follows a
// vector holds 4 bytes for each row, those of row r at byte 4 r. One part of 32
// columns is, in this order, as far as its codes have such bits:
//
//   low 8   8 vectors; vector j holds columns 4j…4j+3
//   low 4   4 vectors; vector j holds columns 4j…4j+3 in the low and
//           16+4j…16+4j+3 in the high halves of its bytes
//   two     2 vectors; vector h holds columns 16h…16h+15, byte i's bits
//           2j, 2j+1 those of column 16h + 4j + i
//   one     1 vector; byte i's bit j is that of column 4j + i
//
// so that a shift and a mask leave four neighbouring columns of every row,
// which meet one broadcast of four activations. A block of the file (see
// blocks.h) of 32 columns is that part, then its header; one of 256 columns is
// its header, then eight parts. A header is its fields one after the other,
// each for all rows: halves [kRows], then scale bytes as words [kRows][4].
//
// Float weights lie as [column][row]. Anonymous namespace: every instruction
// set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/blocks.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

template <int kRows>
struct Packing {
  static constexpr int64_t kVector = 4 * kRows;
  static constexpr int64_t kMins = 2 * kRows;  // bytes of scales, or of minima

  // ---- where things stand ----

  // Bytes of the codes of a part, and where planes begin in it.
  static constexpr int64_t QuantBytes(WeightFormat format) {
    return OneAt(format) + (ShapeOf(format).one_at >= 0 ? kVector : 0);
  }
  static constexpr int64_t TwoAt(WeightFormat format) {
    return ShapeOf(format).low_bits * kVector;
  }
  static constexpr int64_t OneAt(WeightFormat format) {
    return TwoAt(format) + (ShapeOf(format).two_at >= 0 ? 2 * kVector : 0);
  }
  // Where field i of the header begins in a packed block; the first part.
  static constexpr int64_t FieldAt(WeightFormat format, int i) {
    const BlockShape shape = ShapeOf(format);
    int64_t at = shape.columns == 32 ? QuantBytes(format) : 0;
    for (int before = 0; before < i; ++before) {
      at += shape.fields[before].size * kRows;
    }
    return at;
  }
  static constexpr int64_t PartsAt(WeightFormat format) {
    return ShapeOf(format).columns == 32
               ? 0
               : FieldAt(format, ShapeOf(format).num_fields);
  }
  // Bytes of a block of 32 or 256 columns, or of one column of float weights.
  static constexpr int64_t BlockBytes(WeightFormat format) {
    if (IsInteger(format)) return int64_t{ShapeOf(format).bytes} * kRows;
    return (format == WeightFormat::kF32 ? 4 : 2) * kRows;
  }

  static int64_t GroupBytes(WeightFormat format, int64_t k) {
    const int64_t columns = IsInteger(format) ? ShapeOf(format).columns : 1;
    return (k / columns * BlockBytes(format) + 63) / 64 * 64;
  }

  // ---- packing ----

  static bool Pack(WeightFormat format, const void* const* rows,
                   int32_t num_rows, int64_t k, void* group) {
    auto* out = static_cast<uint8_t*>(group);
    __builtin_memset(out, 0, GroupBytes(format, k));
    for (int32_t r = 0; r < num_rows; ++r) {
      const auto* row = static_cast<const uint8_t*>(rows[r]);
      if (IsInteger(format)) {
        PackIntegers(format, row, r, k, out);
        continue;
      }
      const int64_t size = format == WeightFormat::kF32 ? 4 : 2;
      for (int64_t i = 0; i < k; ++i) {
        __builtin_memcpy(out + (i * kRows + r) * size, row + i * size, size);
      }
    }
    return true;
  }

  static void PackIntegers(WeightFormat format, const uint8_t* row, int32_t r,
                           int64_t k, uint8_t* out) {
    const BlockShape shape = ShapeOf(format);
    // Bytes of the file that already are as we want them, words in order.
    const bool plain =
        shape.columns == 32 && shape.two_at < 0 && shape.one_at < 0;
    const int32_t codes_at = shape.bytes - 4 * shape.low_bits;
    for (int64_t b = 0; b < k / shape.columns; ++b) {
      for (int i = 0; i < shape.num_fields; ++i) {
        const Field field = shape.fields[i];
        __builtin_memcpy(out + FieldAt(format, i) + field.size * r,
                         row + field.offset, field.size);
      }
      uint8_t* part = out + PartsAt(format) + 4 * r;
      if (plain) {
        for (int j = 0; j < shape.low_bits; ++j) {
          __builtin_memcpy(part + j * kVector, row + codes_at + 4 * j, 4);
        }
      } else {
        for (int i = 0; i < shape.columns / 32; ++i) {
          uint8_t q[32];
          ReadCodes(format, row, i, q);
          PackPart(format, q, part);
          part += QuantBytes(format);
        }
      }
      row += shape.bytes;
      out += BlockBytes(format);
    }
  }

  // `out` is the row's first word.
  static void PackPart(WeightFormat format, const uint8_t q[32], uint8_t* out) {
    const BlockShape shape = ShapeOf(format);
    uint32_t four[8];  // columns 4j…4j+3, one a byte
    __builtin_memcpy(four, q, 32);
    if (shape.low_bits == 8) {
      for (int j = 0; j < 8; ++j) Put(out + j * kVector, four[j]);
    } else if (shape.low_bits == 4) {
      for (int j = 0; j < 4; ++j) {
        Put(out + j * kVector,
            (four[j] & 0x0f0f0f0f) | (four[j + 4] & 0x0f0f0f0f) << 4);
      }
    }
    if (shape.two_at >= 0) {
      for (int h = 0; h < 2; ++h) {
        uint32_t word = 0;
        for (int j = 0; j < 4; ++j) {
          word |= (four[4 * h + j] >> shape.two_at & 0x03030303) << 2 * j;
        }
        Put(out + TwoAt(format) + h * kVector, word);
      }
    }
    if (shape.one_at >= 0) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) {
        word |= (four[j] >> shape.one_at & 0x01010101) << j;
      }
      Put(out + OneAt(format), word);
    }
  }
  static void Put(uint8_t* p, uint32_t word) { __builtin_memcpy(p, &word, 4); }

  // ---- reading one row back ----

  static void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
    const auto* p =
        static_cast<const uint8_t*>(w.data) + row / kRows * w.group_bytes;
    const int64_t r = row % kRows;
    if (!IsInteger(w.format)) {
      for (int64_t i = 0; i < w.k; ++i) out[i] = Float(w.format, p, i, r);
      return;
    }
    const BlockShape shape = ShapeOf(w.format);
    for (int64_t k = 0; k < w.k; k += shape.columns) {
      uint8_t header[256];  // the fields where the file has them
      for (int i = 0; i < shape.num_fields; ++i) {
        const Field field = shape.fields[i];
        __builtin_memcpy(header + field.offset,
                         p + FieldAt(w.format, i) + field.size * r, field.size);
      }
      for (int i = 0; i < shape.columns / 32; ++i) {
        uint8_t q[32];
        UnpackCodes(w.format,
                    p + PartsAt(w.format) + i * QuantBytes(w.format) + 4 * r,
                    q);
        UnpackPart(w.format, ReadScales(w.format, header, i), q,
                   out + k + 32 * i);
      }
      p += BlockBytes(w.format);
    }
  }

  // `p` is the row's first word.
  static void UnpackCodes(WeightFormat format, const uint8_t* p,
                          uint8_t q[32]) {
    const BlockShape shape = ShapeOf(format);
    for (int i = 0; i < 32; ++i) {
      const int j = i / 4;
      const int byte = i % 4;
      int code = 0;
      if (shape.low_bits == 8) {
        code = p[j * kVector + byte];
      } else if (shape.low_bits == 4) {
        code = p[j % 4 * kVector + byte] >> (i < 16 ? 0 : 4) & 15;
      }
      if (shape.two_at >= 0) {
        const uint8_t* two = p + TwoAt(format) + j / 4 * kVector;
        code |= (two[byte] >> 2 * (j % 4) & 3) << shape.two_at;
      }
      if (shape.one_at >= 0) {
        code |= (p[OneAt(format) + byte] >> j & 1) << shape.one_at;
      }
      q[i] = static_cast<uint8_t>(code);
    }
  }

  static float Float(WeightFormat format, const uint8_t* p, int64_t i,
                     int64_t r) {
    const int64_t at = i * kRows + r;
    if (format == WeightFormat::kF32) {
      uint32_t bits;
      __builtin_memcpy(&bits, p + at * 4, 4);
      return FloatOfBits(bits);
    }
    uint16_t bits;
    __builtin_memcpy(&bits, p + at * 2, 2);
    return format == WeightFormat::kF16 ? FloatOfHalf(bits) : FloatOfBf16(bits);
  }
};

}  // namespace
}  // namespace millrace::models
