// Packing for 8 and for 16 rows: the bits come back as they went in, at the
// places that the kernels take them from, and take no more bytes than before.
#include "models/cpu/kernels/packing.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/backend/kernels/weights.h"

namespace millrace::models {
namespace {

template <int kRows>
void Check() {
  std::mt19937 rng(1);
  for (const FileFormat& f : kFileFormats) {
    using P = Packing<kRows>;
    const GgmlTypeInfo& info = InfoOf(f.type);
    SCOPED_TRACE(info.name);
    const int64_t k = 768;
    const int32_t num_rows = kRows - 3;
    std::vector<std::vector<uint8_t>> rows;
    std::vector<const void*> pointers;
    for (int32_t r = 0; r < num_rows; ++r) {
      rows.push_back(RandomRow(rng, f, k));
      pointers.push_back(rows[r].data());
    }
    const int64_t bytes = P::GroupBytes(f.format, k);
    EXPECT_EQ(
        bytes,
        (int64_t{info.block_bytes} * (k / info.block_values) * kRows + 63) /
            64 * 64);
    std::vector<uint8_t> group(static_cast<size_t>(bytes), 0xee);
    ASSERT_TRUE(P::Pack(f.format, pointers.data(), num_rows, k, group.data()));
    const PackedMatrix matrix{group.data(), f.format, num_rows, k, bytes};
    std::vector<float> got(k), want(k);
    for (int32_t r = 0; r < num_rows; ++r) {
      P::UnpackRow(matrix, r, got.data());
      ASSERT_TRUE(DequantizeRow(f.type, rows[r].data(), k, want.data()));
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                  std::bit_cast<uint32_t>(want[i]))
            << "row " << r << " column " << i;
      }
    }
    for (int32_t r = num_rows; r < kRows; ++r) {  // padding weighs nothing
      P::UnpackRow(matrix, r, got.data());
      // MXFP4 has no zero exponent, but a zero code.
      for (int64_t i = 0; i < k; ++i) ASSERT_EQ(got[i], 0.0f);
    }
  }
}

TEST(Packing, EveryFormatComesBackFromEightRows) { Check<8>(); }
TEST(Packing, EveryFormatComesBackFromSixteenRows) { Check<16>(); }

// The places of bits, worked by hand for one row of a block.
TEST(Packing, PlanesHoldTheColumnsThatKernelsExpect) {
  using P = Packing<8>;
  std::vector<uint8_t> block(210);
  // Q6_K: column 21 (low bits: byte 21; high bits: byte 128 + 21, lowest) is
  // 0b10'1101, its half's scale 7, d is 1.
  block[21] = 0x0d;
  block[128 + 21] = 2;
  block[192 + 1] = 7;
  block[209] = 0x3c;
  std::vector<uint8_t> group(P::GroupBytes(WeightFormat::kQ6_K, 256));
  const void* rows[] = {block.data(), block.data(), block.data()};
  ASSERT_TRUE(P::Pack(WeightFormat::kQ6_K, rows, 3, 256, group.data()));
  const uint8_t* part = group.data() + P::PartsAt(WeightFormat::kQ6_K);
  // Column 21 = 16 + 4 * 1 + 1: high half of byte 1 of vector 1.
  EXPECT_EQ(part[1 * P::kVector + 4 * 2 + 1], 0xd0);
  // The second vector of two-bit codes, byte 1, bits 2 and 3.
  EXPECT_EQ(part[P::TwoAt(WeightFormat::kQ6_K) + P::kVector + 4 * 2 + 1],
            2 << 2);
  EXPECT_EQ(group[P::FieldAt(WeightFormat::kQ6_K, 0) + 2 * 2 + 1], 0x3c);
  EXPECT_EQ(group[P::FieldAt(WeightFormat::kQ6_K, 1) + 4 * 2 + 1], 7);

  // Q5_0: column 30 (bit 6 of the fourth byte of high bits) is 0b1'0000.
  std::vector<uint8_t> small(22);
  small[2 + 3] = 1 << 6;
  group.assign(P::GroupBytes(WeightFormat::kQ5_0, 32), 0);
  const void* small_rows[] = {small.data(), small.data()};
  ASSERT_TRUE(P::Pack(WeightFormat::kQ5_0, small_rows, 2, 32, group.data()));
  // 30 = 4 * 7 + 2: bit 7 of byte 2.
  EXPECT_EQ(group[P::OneAt(WeightFormat::kQ5_0) + 4 * 1 + 2], 1 << 7);
}

}  // namespace
}  // namespace millrace::models
