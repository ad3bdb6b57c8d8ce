// Rows rounded to blocks against the gguf Python package, bit for bit
// (tests/golden/llm/quantize.json, made by tests/data/make_quantize.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

std::string FromHex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

class Quantize : public testing::TestWithParam<GgmlType> {};

TEST_P(Quantize, GivesTheBitsOfTheGgufPackage) {
  std::ifstream in("tests/golden/llm/quantize.json");
  ASSERT_TRUE(in) << "run from the root of the repository";
  const auto golden = nlohmann::json::parse(in);
  const GgmlTypeInfo& info = InfoOf(GetParam());
  const auto& rows = golden.at("rows");
  const auto& blocks = golden.at(std::string(info.name));
  ASSERT_EQ(rows.size(), blocks.size());
  ASSERT_GE(rows.size(), 40u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string bytes = FromHex(rows[i]);
    float row[32];
    ASSERT_EQ(bytes.size(), sizeof row);
    std::memcpy(row, bytes.data(), sizeof row);
    std::string out(static_cast<size_t>(info.block_bytes), '\0');
    ASSERT_TRUE(QuantizeRow(GetParam(), row, 32, out.data()));
    EXPECT_EQ(out, FromHex(blocks[i])) << "row " << i;
  }
}

// Half a step from each value, and the rounding of step and minimum to half
// precision (2^-11 of them, met up to 2^bits times).
TEST_P(Quantize, IsAsNearAsTheTypeAllows) {
  float row[64], back[64];
  for (int i = 0; i < 64; ++i) row[i] = std::sin(0.7f * static_cast<float>(i));
  std::byte blocks[2 * 64];
  ASSERT_TRUE(QuantizeRow(GetParam(), row, 64, blocks));
  ASSERT_TRUE(DequantizeRow(GetParam(), blocks, 64, back));
  const double steps = GetParam() == GgmlType::kQ8_0   ? 254
                       : GetParam() == GgmlType::kQ5_0 ? 32
                       : GetParam() == GgmlType::kQ5_1 ? 31
                       : GetParam() == GgmlType::kQ4_0 ? 16
                                                       : 15;
  // The end opposite to the greatest value of Q4_0 and Q5_0 lies one step off.
  const bool one_sided =
      GetParam() == GgmlType::kQ4_0 || GetParam() == GgmlType::kQ5_0;
  const double step = 2.0 / steps;
  for (int i = 0; i < 64; ++i) {
    EXPECT_NEAR(back[i], row[i], (one_sided ? 1.0 : 0.5) * step + 2 * 0x1p-11)
        << i;
  }
}

TEST_P(Quantize, ValuesThatAreNoNumbersDoNoHarm) {
  float row[32] = {};
  row[3] = std::numeric_limits<float>::quiet_NaN();
  row[4] = std::numeric_limits<float>::infinity();
  row[5] = -std::numeric_limits<float>::infinity();
  std::byte block[64];
  EXPECT_TRUE(QuantizeRow(GetParam(), row, 32, block));
  EXPECT_FALSE(QuantizeRow(GgmlType::kQ4_K, row, 32, block));
}

INSTANTIATE_TEST_SUITE_P(Types, Quantize,
                         testing::Values(GgmlType::kQ8_0, GgmlType::kQ4_0,
                                         GgmlType::kQ4_1, GgmlType::kQ5_0,
                                         GgmlType::kQ5_1),
                         [](const auto& test) {
                           return std::string(InfoOf(test.param).name);
                         });

}  // namespace
}  // namespace millrace::models
