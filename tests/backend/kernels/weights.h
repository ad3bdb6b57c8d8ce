// Rows of random weights in every integer format of the file, for tests: where
// a block keeps its numbers, and rows with some of them put to zero.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/tensor/quant.h"

namespace millrace::models {

inline bool IsIntegerFormat(WeightFormat format) {
  return format > WeightFormat::kBF16;
}

// Offsets in a block of the file; -1: none.
struct FileFormat {
  WeightFormat format;
  GgmlType type;
  int32_t scale_at;  // f16, but for MXFP4 an 8-bit exponent
  int32_t min_at;    // f16
  // A byte of codes that are all of greatest magnitude, and likewise of the
  // scales of parts, which stand from parts_at on and are parts_bytes long.
  uint8_t extreme_code;
  uint8_t extreme_part;
  int32_t parts_at;
  int32_t parts_bytes;
};

inline constexpr FileFormat kFileFormats[] = {
    {WeightFormat::kQ8_0, GgmlType::kQ8_0, 0, -1, 0x80, 0, 0, 0},
    {WeightFormat::kQ4_0, GgmlType::kQ4_0, 0, -1, 0x00, 0, 0, 0},
    {WeightFormat::kQ4_1, GgmlType::kQ4_1, 0, 2, 0xff, 0, 0, 0},
    {WeightFormat::kQ5_0, GgmlType::kQ5_0, 0, -1, 0x00, 0, 0, 0},
    {WeightFormat::kQ5_1, GgmlType::kQ5_1, 0, 2, 0xff, 0, 0, 0},
    {WeightFormat::kQ2_K, GgmlType::kQ2_K, 80, 82, 0xff, 0xff, 0, 16},
    {WeightFormat::kQ3_K, GgmlType::kQ3_K, 108, -1, 0x00, 0x00, 96, 12},
    {WeightFormat::kQ4_K, GgmlType::kQ4_K, 0, 2, 0xff, 0xff, 4, 12},
    {WeightFormat::kQ5_K, GgmlType::kQ5_K, 0, 2, 0xff, 0xff, 4, 12},
    {WeightFormat::kQ6_K, GgmlType::kQ6_K, 208, -1, 0x00, 0x80, 192, 16},
    {WeightFormat::kIQ4_NL, GgmlType::kIQ4_NL, 0, -1, 0x00, 0, 0, 0},
    {WeightFormat::kIQ4_XS, GgmlType::kIQ4_XS, 0, -1, 0x00, 0x00, 2, 6},
    {WeightFormat::kMXFP4, GgmlType::kMXFP4, 0, -1, 0xff, 0, 0, 0},
};

inline const FileFormat& FileFormatOf(WeightFormat format) {
  for (const FileFormat& f : kFileFormats) {
    if (f.format == format) return f;
  }
  __builtin_trap();
}

// The next whole number of blocks.
inline int64_t WholeColumns(WeightFormat format, int64_t k) {
  if (!IsIntegerFormat(format)) return k;
  const int64_t block = InfoOf(FileFormatOf(format).type).block_values;
  return (k + block - 1) / block * block;
}

// Bytes of any value but for the f16 numbers, which stay below 0.1, and
// MXFP4's exponent. Extreme: every code, and scale of a part, is the one of
// greatest magnitude, so that a 16-bit sum or a saturating add would show.
inline std::vector<uint8_t> RandomRow(std::mt19937& rng, const FileFormat& f,
                                      int64_t k, bool extreme = false) {
  const GgmlTypeInfo& info = InfoOf(f.type);
  std::uniform_real_distribution<float> number(-0.1f, 0.1f);
  std::vector<uint8_t> row(
      static_cast<size_t>(k / info.block_values * info.block_bytes));
  for (size_t at = 0; at < row.size(); at += info.block_bytes) {
    uint8_t* block = row.data() + at;
    for (int32_t i = 0; i < info.block_bytes; ++i) {
      const bool part = i >= f.parts_at && i < f.parts_at + f.parts_bytes;
      block[i] = !extreme ? static_cast<uint8_t>(rng())
                 : part   ? f.extreme_part
                          : f.extreme_code;
    }
    for (const int32_t offset : {f.scale_at, f.min_at}) {
      if (offset < 0) continue;
      const uint16_t half = FloatToHalf(number(rng));
      block[offset] = static_cast<uint8_t>(half & 255);
      if (f.format == WeightFormat::kMXFP4) {
        block[offset] = static_cast<uint8_t>(118 + half % 12);
      } else {
        block[offset + 1] = static_cast<uint8_t>(half >> 8);
      }
    }
  }
  return row;
}

// The row with the f16 at `offset` of every block put to zero.
inline std::vector<uint8_t> Without(const FileFormat& f,
                                    std::vector<uint8_t> row, int32_t offset) {
  if (offset < 0) return row;
  for (size_t at = 0; at < row.size(); at += InfoOf(f.type).block_bytes) {
    row[at + offset] = row[at + offset + 1] = 0;
  }
  return row;
}

}  // namespace millrace::models
