#include "server/http/vector_format.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// 9 values: a last byte of bits that is not full. The largest is -2.
const std::vector<float> kRow = {1.0f, -2.0f, 0.0f,  0.5f, -0.5f,
                                 2.0f, 0.25f, -0.1f, 0.01f};

std::string Written(const Json& body, const std::vector<float>& row = kRow) {
  const StatusOr<VectorFormat> format = ReadVectorFormat(body);
  if (!format.ok()) return std::string(format.status().message());
  std::string out;
  AppendVector(row, *format, out);
  return out;
}

TEST(VectorFormat, FloatsAreTheDefault) {
  EXPECT_EQ(Written(Json::object()), "[1,-2,0,0.5,-0.5,2,0.25,-0.1,0.01]");
  EXPECT_EQ(Written({{"encoding_format", "float"}}), Written(Json::object()));
  EXPECT_EQ(Written({{"encoding_format", "base64"}}, {1.0f}), "\"AACAPw==\"");
}

// 127 x / 2: 63.5 and 31.75 are rounded, the first to an even number.
TEST(VectorFormat, BytesAreScaledByTheLargestValue) {
  EXPECT_EQ(Written({{"encoding_format", "int8"}}),
            "[64,-127,0,32,-32,127,16,-6,1]");
  EXPECT_EQ(Written({{"encoding_format", "uint8"}}),
            "[192,1,128,160,96,255,144,122,129]");
}

TEST(VectorFormat, BitsAreThoseOfPositiveValues) {
  // 1001 0110 and 1000 0000
  EXPECT_EQ(Written({{"encoding_format", "ubinary"}}), "[150,128]");
  EXPECT_EQ(Written({{"encoding_format", "binary"}}), "[22,0]");
}

TEST(VectorFormat, OtherClientsNames) {
  EXPECT_EQ(Written({{"output_dtype", "ubinary"}}), "[150,128]");
  EXPECT_EQ(Written({{"embedding_type", "ubinary"}}), "[150,128]");
  EXPECT_EQ(
      Written({{"output_dtype", "ubinary"}, {"encoding_format", "base64"}}),
      "\"loA=\"");
  EXPECT_EQ(Written({{"output_dtype", "int8"}, {"encoding_format", "base64"}},
                    {1.0f, -1.0f}),
            "\"f4E=\"");
  EXPECT_EQ(Written({{"output_dtype", "binary"}, {"encoding_format", "float"}}),
            "[22,0]");
}

TEST(VectorFormat, ZerosAndWhatIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Written({{"output_dtype", "int8"}}, {0, 0}), "[0,0]");
  EXPECT_EQ(Written({{"output_dtype", "int8"}}, {kNan, kInfinity, 3}),
            "[0,0,127]");
  EXPECT_EQ(Written({{"output_dtype", "ubinary"}}, {}), "[]");
}

TEST(VectorFormat, WhatMakesNoSenseIsNamed) {
  EXPECT_EQ(Written({{"encoding_format", "int4"}}),
            "encoding_format is 'int4' but must be float, base64, int8, uint8, "
            "binary or ubinary");
  EXPECT_EQ(Written({{"output_dtype", "base64"}}),
            "output_dtype is 'base64' but must be float, int8, uint8, binary "
            "or ubinary");
  EXPECT_EQ(
      Written({{"output_dtype", "int8"}, {"encoding_format", "binary"}}),
      "output_dtype is 'int8' but encoding_format is 'binary'; leave one of "
      "them out");
}

}  // namespace
}  // namespace millrace::server::http
