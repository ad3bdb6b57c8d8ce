// Halves against their definition; blocks against values worked by hand.
#include "models/tensor/quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/data/tiny_gguf.h"

namespace millrace::models {
namespace {

TEST(Quant, EveryHalfRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    const int exponent = (half >> 10) & 31;
    const int mantissa = half & 1023;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
      continue;
    }
    if (exponent < 31) {
      // The definition, by ldexp.
      const float magnitude = std::ldexp(
          static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024),
          (exponent == 0 ? 1 : exponent) - 25);
      ASSERT_EQ(std::fabs(value), magnitude) << bits;
    }
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

TEST(Quant, HalfRoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3c00);      // tie, to even
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie, to even
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0x1p-24f), 0x8001);
}

TEST(Quant, BlocksByHand) {
  float out[32];
  std::string block = QuantizeRows(GgmlType::kF16, std::vector<float>{0.5f}, 1);
  block += std::string(32, static_cast<char>(-3));
  ASSERT_TRUE(DequantizeRow(GgmlType::kQ8_0, block.data(), 32, out));
  EXPECT_EQ(out[0], -1.5f);
  EXPECT_EQ(out[31], -1.5f);

  block.resize(2);
  block += std::string(16, '\x9a');  // low nibble 10, high nibble 9
  ASSERT_TRUE(DequantizeRow(GgmlType::kQ4_0, block.data(), 32, out));
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[15], 1.0f);
  EXPECT_EQ(out[16], 0.5f);

  block.resize(2);
  block += QuantizeRows(GgmlType::kF16, std::vector<float>{-2.0f}, 1);
  block += std::string(16, '\x9a');
  ASSERT_TRUE(DequantizeRow(GgmlType::kQ4_1, block.data(), 32, out));
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_EQ(out[31], 2.5f);

  const uint16_t bf16 = 0xc0a0;
  ASSERT_TRUE(DequantizeRow(GgmlType::kBF16, &bf16, 1, out));
  EXPECT_EQ(out[0], -5.0f);
  EXPECT_FALSE(DequantizeRow(GgmlType::kQ8_K, block.data(), 0, out));
}

// Blocks and values as the gguf Python package has them; the file's maker
// stands beside it.
TEST(Quant, EveryQuantizedTypeIsBitEqualToTheGgufPackage) {
  std::ifstream in(MILLRACE_QUANT_BLOCKS, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  int types = 0;
  for (size_t at = 0; at < bytes.size(); ++types) {
    struct {
      uint32_t number, count, block_bytes, block_values;
    } head;
    ASSERT_LE(at + sizeof head, bytes.size());
    std::memcpy(&head, bytes.data() + at, sizeof head);
    at += sizeof head;
    const GgmlTypeInfo* info = FindGgmlType(head.number);
    ASSERT_NE(info, nullptr);
    EXPECT_TRUE(info->served);
    ASSERT_EQ(info->block_bytes, static_cast<int32_t>(head.block_bytes));
    ASSERT_EQ(info->block_values, static_cast<int32_t>(head.block_values));
    const size_t k = size_t{head.count} * head.block_values;
    const size_t values_at = at + size_t{head.count} * head.block_bytes;
    ASSERT_LE(values_at + 4 * k, bytes.size());
    std::vector<float> got(k), want(k);
    ASSERT_TRUE(DequantizeRow(info->type, bytes.data() + at,
                              static_cast<int64_t>(k), got.data()));
    std::memcpy(want.data(), bytes.data() + values_at, 4 * k);
    for (size_t i = 0; i < k; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                std::bit_cast<uint32_t>(want[i]))
          << info->name << " value " << i << ": " << got[i] << ", " << want[i];
    }
    at = values_at + 4 * k;
  }
  EXPECT_EQ(types, 13);
}

// The error of plain rounding is at most half a step where one scale serves
// all; a scale or minimum that is itself rounded adds half of its own step, and
// scales with more codes on one side than on the other lose one step there.
TEST(Quant, QuantizedRowsComeBackWithinHalfAStep) {
  std::vector<float> x(256);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i));
  }
  const struct {
    GgmlType type;
    float tolerance;
  } cases[] = {{GgmlType::kF32, 0},
               {GgmlType::kF16, 0x1p-12f},
               {GgmlType::kBF16, 0x1p-9f},
               {GgmlType::kQ8_0, 0.502f / 127},
               {GgmlType::kQ4_0, 0.127f},  // one side has 7 steps only
               {GgmlType::kQ4_1, 0.51f * 2 / 15},
               {GgmlType::kQ5_0, 0.063f},
               {GgmlType::kQ5_1, 0.51f * 2 / 31},
               {GgmlType::kIQ4_NL, 0.12f},  // the table ends at 113
               {GgmlType::kMXFP4, 4.0f / 12},
               {GgmlType::kQ2_K, (1 + 0.2f) / 3 + 0.035f},
               {GgmlType::kQ3_K, 1.0f / 4 + 0.5f / 31},
               {GgmlType::kQ4_K, 1.0f / 15 + 1.5f / 63},
               {GgmlType::kQ5_K, 1.0f / 31 + 1.5f / 63},
               {GgmlType::kQ6_K, 1.0f / 32 + 0.5f / 127},
               {GgmlType::kIQ4_XS, 0.12f + 0.5f / 31}};
  for (const auto& c : cases) {
    const std::string rows = QuantizeRows(c.type, x, 256);
    std::vector<float> back(256);
    ASSERT_TRUE(DequantizeRow(c.type, rows.data(), 256, back.data()));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(back[i], x[i], c.tolerance) << InfoOf(c.type).name << i;
    }
  }
}

TEST(Quant, EveryKnownTypeHasAName) {
  int known = 0;
  for (uint32_t number = 0; number < 100; ++number) {
    const GgmlTypeInfo* info = FindGgmlType(number);
    if (info == nullptr) continue;
    ++known;
    EXPECT_FALSE(info->name.empty());
    EXPECT_LE(info->block_bytes, 8 * info->block_values);
  }
  EXPECT_EQ(known, 32);
}

}  // namespace
}  // namespace millrace::models
