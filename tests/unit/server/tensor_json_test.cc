#include "server/tensor_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/tensor/float16.h"

namespace millrace::server {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using ::testing::HasSubstr;

StatusOr<Tensor> Read(DType dtype, const Shape& shape, const char* json) {
  TensorReader reader({"x", dtype, shape});
  RETURN_IF_ERROR(FeedArray(*ParseJson(json), reader));
  return reader.Take();
}

std::string Refusal(DType dtype, const Shape& shape, const char* json) {
  const Status status = Read(dtype, shape, json).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << json;
  EXPECT_EQ(status.field(), "x") << json;
  return std::string(status.message());
}

std::string Written(const Tensor& tensor) {
  std::string text;
  EXPECT_TRUE(AppendData("y", tensor, text).ok());
  return text;
}

TEST(TensorJson, ReadsFlatAndNested) {
  for (const char* json :
       {"[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]", "[1.0,2,3e0,4,5,6]"}) {
    auto tensor = Read(DType::kI16, {2, 3}, json);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(Written(*tensor), "[1,2,3,4,5,6]");
  }
  EXPECT_TRUE(Read(DType::kF32, {}, "[3]").ok());
  EXPECT_TRUE(Read(DType::kF32, {0}, "[]").ok());
  EXPECT_TRUE(Read(DType::kF32, {2, 0}, "[[],[]]").ok());
  EXPECT_TRUE(Read(DType::kF32, {1, 1, 1}, "[[[5]]]").ok());
}

TEST(TensorJson, EveryTypeKeepsItsExtremes) {
  const struct {
    DType dtype;
    const char* values;
  } kCases[] = {
      {DType::kBool, "[true,false]"},
      {DType::kU8, "[0,255]"},
      {DType::kU16, "[0,65535]"},
      {DType::kU32, "[0,4294967295]"},
      {DType::kU64, "[0,18446744073709551615]"},
      {DType::kI8, "[-128,127]"},
      {DType::kI16, "[-32768,32767]"},
      {DType::kI32, "[-2147483648,2147483647]"},
      {DType::kI64, "[-9223372036854775808,9223372036854775807]"},
      {DType::kF16, "[65504.0,-0.5]"},
      {DType::kBF16, "[1.5,-2.0]"},
      {DType::kF32, "[3.4028235e+38,0.1]"},
      {DType::kF64, "[1.7976931348623157e+308,0.1]"},
  };
  for (const auto& [dtype, values] : kCases) {
    auto tensor = Read(dtype, {2}, values);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(Written(*tensor), values);
  }
  EXPECT_EQ(Written(*Read(DType::kBool, {2}, "[1,0]")), "[true,false]");
  EXPECT_EQ(Written(*Read(DType::kF32, {3}, "[1,1e20,5e-324]")),
            "[1.0,1e+20,0.0]");
}

TEST(TensorJson, RefusesWhatTheTypeCannotHold) {
  EXPECT_THAT(Refusal(DType::kU8, {2}, "[1,256]"),
              HasSubstr("input 'x' is 256 at element 1 but UINT8 takes whole "
                        "numbers from 0 to 255"));
  Refusal(DType::kU8, {1}, "[-1]");
  Refusal(DType::kI8, {1}, "[128]");
  Refusal(DType::kI64, {1}, "[9223372036854775808]");
  Refusal(DType::kI64, {1}, "[1e19]");
  Refusal(DType::kU64, {1}, "[-1]");
  EXPECT_THAT(Refusal(DType::kI32, {1}, "[0.5]"), HasSubstr("is 0.5"));
  EXPECT_THAT(Refusal(DType::kBool, {1}, "[2]"),
              HasSubstr("takes true, false, 0 or 1"));
  EXPECT_THAT(Refusal(DType::kF32, {1}, "[true]"), HasSubstr("is true"));
  EXPECT_THAT(Refusal(DType::kF16, {1}, "[65520]"), HasSubstr("infinite"));
  Refusal(DType::kF32, {1}, "[3.5e38]");
  Refusal(DType::kBF16, {1}, "[3.4e38]");
  EXPECT_THAT(Refusal(DType::kF32, {1}, "[\"1\"]"), HasSubstr("a string"));
  EXPECT_THAT(Refusal(DType::kF32, {1}, "[null]"), HasSubstr("holds null"));
  EXPECT_THAT(Refusal(DType::kF32, {1}, "[{}]"), HasSubstr("an object"));
}

TEST(TensorJson, RefusesOtherSizesThanTheShapes) {
  EXPECT_THAT(Refusal(DType::kF32, {2, 2}, "[1,2,3]"),
              HasSubstr("has 3 values but its shape [2, 2] takes 4"));
  EXPECT_THAT(Refusal(DType::kF32, {2}, "[1,2,3]"), HasSubstr("more data"));
  EXPECT_THAT(Refusal(DType::kF32, {3, 2}, "[[1,2,3],[4,5,6]]"),
              HasSubstr("a list of 3 within 1 others"));
  EXPECT_THAT(Refusal(DType::kF32, {1, 2, 3}, "[[1,2,3],[4,5,6]]"),
              HasSubstr("nested 2 deep"));
  EXPECT_THAT(Refusal(DType::kF32, {2, 2}, "[[1,2],3,4]"),
              HasSubstr("mixes numbers and lists"));
  EXPECT_THAT(Refusal(DType::kF32, {2}, "[1,[2]]"),
              HasSubstr("mixes numbers and lists"));
  EXPECT_THAT(Refusal(DType::kF32, {1}, "[[[[[[[[[1]]]]]]]]]"),
              HasSubstr("nested deeper"));
}

TEST(TensorJson, CannotWriteWhatJsonCannotSay) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const std::vector<float> values = {1, bad};
    std::string text;
    const Status status =
        AppendData("y", Tensor::From<float>(DType::kF32, {2}, values), text);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("output 'y' is not finite at element 1"));
  }
}

}  // namespace
}  // namespace millrace::server
