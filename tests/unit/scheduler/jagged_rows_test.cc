#include "scheduler/jagged_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Tensor;
using models::graph::JaggedFeature;
using models::graph::Port;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Port MakePort(const std::string& name, DType dtype) {
  Port port;
  port.name = name;
  port.dtype = dtype;
  port.dims = {{.symbol = 0}};
  return port;
}

const std::vector<Port> kPorts = {MakePort("ads", DType::kI64),
                                  MakePort("ads_offsets", DType::kI32),
                                  MakePort("dense", DType::kF32)};

JaggedRows Make(bool has_end) {
  return JaggedRows(
      {{.values = 0, .offsets = 1, .has_end = has_end, .num_rows = 10}},
      kPorts);
}

Tensor Offsets(std::vector<int32_t> values) {
  return Tensor::From<int32_t>(DType::kI32,
                               {static_cast<int64_t>(values.size())}, values);
}

std::vector<Tensor> Request(std::vector<int64_t> values,
                            std::vector<int32_t> offsets, int64_t rows) {
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Int64s(values));
  inputs.push_back(Offsets(std::move(offsets)));
  inputs.push_back(Tensor::Make(DType::kF32, {rows}));
  return inputs;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.num_elements()};
}

TEST(JaggedRows, ValuesFollowEachOtherAndOffsetsAreShifted) {
  const auto a = Request({7, 2, 9, 4}, {0, 2, 2}, 3);
  const auto none = Request({}, {0}, 1);
  const auto b = Request({5, 5}, {0, 1}, 2);
  const auto joined = Make(false).Join({&a, &none, &b});
  EXPECT_THAT(Values<int64_t>(joined[0]), ElementsAre(7, 2, 9, 4, 5, 5));
  EXPECT_THAT(Values<int32_t>(joined[1]), ElementsAre(0, 2, 2, 4, 4, 5));
  EXPECT_EQ(joined[2].shape()[0], 6);
}

TEST(JaggedRows, OneEndIsLeftOfThoseOfAllRequests) {
  const auto a = Request({7, 2, 9, 4}, {0, 2, 2, 4}, 3);
  const auto b = Request({5, 5}, {0, 1, 2}, 2);
  const auto joined = Make(true).Join({&a, &b});
  EXPECT_THAT(Values<int32_t>(joined[1]), ElementsAre(0, 2, 2, 4, 5, 6));
}

TEST(JaggedRows, LengthsBecomeOffsetsOfTheInputsType) {
  for (const bool has_end : {false, true}) {
    const JaggedRows rows = Make(has_end);
    EXPECT_EQ(rows.LengthsName(1), "ads_lengths");
    EXPECT_EQ(rows.LengthsName(0), "");
    auto inputs = Request({7, 2, 9, 4}, {}, 3);
    inputs[1] = Tensor::Int64s(std::vector<int64_t>{2, 0, 2});
    ASSERT_TRUE(rows.TakeLengths({1}, inputs).ok());
    EXPECT_THAT(Values<int32_t>(inputs[1]),
                has_end ? ::testing::ElementsAreArray({0, 2, 2, 4})
                        : ::testing::ElementsAreArray({0, 2, 2}));
    EXPECT_EQ(*rows.RowsOf(inputs), 3);
  }
}

TEST(JaggedRows, AnInputOfTheModelKeepsItsName) {
  std::vector<Port> ports = {MakePort("x", DType::kI64),
                             MakePort("at", DType::kI64),
                             MakePort("at.lengths", DType::kF32)};
  const std::vector<JaggedFeature> feature = {{.values = 0, .offsets = 1}};
  EXPECT_EQ(JaggedRows(feature, ports).LengthsName(1), "");
  ports[2].name = "other";
  EXPECT_EQ(JaggedRows(feature, ports).LengthsName(1), "at.lengths");
}

TEST(JaggedRows, WhatDoesNotFitIsNamed) {
  const auto refused = [](std::vector<int64_t> values,
                          std::vector<int32_t> offsets, int64_t rows,
                          bool has_end) {
    const auto got = Make(has_end).RowsOf(
        Request(std::move(values), std::move(offsets), rows));
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
    return std::string(got.status().message());
  };
  EXPECT_THAT(refused({1, 10}, {0, 1}, 2, false),
              HasSubstr("'ads' has the index 10 at place 1, but its table has "
                        "10 rows; send indices from 0 to 9"));
  EXPECT_THAT(refused({-1, 1}, {0, 1}, 2, false), HasSubstr("index -1"));
  EXPECT_THAT(refused({1, 1}, {1, 1}, 2, false), HasSubstr("1 at place 0"));
  EXPECT_THAT(refused({1, 1}, {0, 3}, 2, false), HasSubstr("3 at place 1"));
  EXPECT_THAT(refused({1, 1}, {0, 2, 1}, 3, false), HasSubstr("1 at place 2"));
  EXPECT_THAT(refused({1, 1}, {0, 1, 1}, 2, true), HasSubstr("1 at place 2"));
  EXPECT_THAT(refused({1, 1}, {0, 1}, 2, true),
              HasSubstr("'ads_offsets' has 2 offsets, but a request of 2 rows "
                        "has 3, one for each and the end"));
  const auto lengths = [](std::vector<int64_t> given) {
    auto inputs = Request({1, 2, 3}, {}, 2);
    inputs[1] = Tensor::Int64s(given);
    return std::string(Make(false).TakeLengths({1}, inputs).message());
  };
  EXPECT_THAT(lengths({1, 3}), HasSubstr("the length 3 at place 1, but 2"));
  EXPECT_THAT(lengths({-1, 3}), HasSubstr("the length -1 at place 0"));
  EXPECT_THAT(lengths({1, 1}), HasSubstr("adds up to 2, but 'ads' has 3"));
  auto floats = Request({1}, {}, 1);
  floats[1] = Tensor::Scalar(1.0f);
  EXPECT_THAT(std::string(Make(false).TakeLengths({1}, floats).message()),
              HasSubstr("'ads_lengths' is FP32"));
}

// Two features, of which the second has weights, of two rows.
const std::vector<Port> kTwo = {
    MakePort("ads", DType::kI64), MakePort("ads_offsets", DType::kI32),
    MakePort("tags", DType::kI64), MakePort("tags_offsets", DType::kI64),
    MakePort("tags_weights", DType::kF32)};
const JaggedRows kPair({{.values = 0, .offsets = 1, .num_rows = 10},
                        {.values = 2,
                         .offsets = 3,
                         .weights = {4},
                         .has_end = true,
                         .num_rows = 10}},
                       kTwo);

KeyedJagged Keyed(std::vector<int64_t> lengths) {
  KeyedJagged keyed;
  keyed.values = Tensor::Int64s(std::vector<int64_t>{7, 2, 9, 4, 5});
  keyed.lengths = Tensor::Int64s(lengths);
  keyed.weights =
      Tensor::From<float>(DType::kF32, {5}, std::vector<float>{1, 2, 3, 4, 5});
  return keyed;
}

TEST(JaggedRows, AllFeaturesMayComeTogether) {
  std::vector<Tensor> inputs(5);
  std::vector<size_t> places;
  ASSERT_TRUE(kPair.TakeKeyed(Keyed({2, 1, 0, 2}), inputs, places).ok());
  EXPECT_THAT(places, ElementsAre(1, 3));
  ASSERT_TRUE(kPair.TakeLengths(places, inputs).ok());
  EXPECT_THAT(Values<int64_t>(inputs[0]), ElementsAre(7, 2, 9));
  EXPECT_THAT(Values<int32_t>(inputs[1]), ElementsAre(0, 2));
  EXPECT_THAT(Values<int64_t>(inputs[2]), ElementsAre(4, 5));
  EXPECT_THAT(Values<int64_t>(inputs[3]), ElementsAre(0, 0, 2));
  EXPECT_THAT(Values<float>(inputs[4]), ElementsAre(4, 5));
}

TEST(JaggedRows, WhatDoesNotFitTogetherIsNamed) {
  const auto refused = [](const KeyedJagged& keyed) {
    std::vector<Tensor> inputs(5);
    std::vector<size_t> places;
    return std::string(kPair.TakeKeyed(keyed, inputs, places).message());
  };
  EXPECT_THAT(refused(Keyed({2, 1, 2})), HasSubstr("each of 2 features"));
  EXPECT_THAT(refused(Keyed({2, 1, 0, 3})),
              HasSubstr("3 at place 3, but 2 values are left"));
  EXPECT_THAT(refused(Keyed({2, -1, 0, 2})), HasSubstr("-1 at place 1"));
  EXPECT_THAT(refused(Keyed({2, 1, 0, 1})),
              HasSubstr("adds up to 4, but 'keyed_values' has 5"));
  KeyedJagged odd = Keyed({2, 1, 0, 2});
  odd.weights.reset();
  EXPECT_THAT(refused(odd), HasSubstr("'keyed_weights' is missing"));
  odd.weights = Tensor::Scalar(1.0f);
  EXPECT_THAT(refused(odd), HasSubstr("1 weights for 5 values"));
  odd = Keyed({2, 1, 0, 2});
  odd.values = Tensor::Make(DType::kF32, {5});
  EXPECT_THAT(refused(odd), HasSubstr("'keyed_values' is FP32"));
  odd = Keyed({2, 1, 0, 2});
  odd.lengths = Tensor::Make(DType::kF32, {4});
  EXPECT_THAT(refused(odd), HasSubstr("'keyed_lengths' is FP32"));
  const JaggedRows plain({{.values = 0, .offsets = 1, .num_rows = 10}}, kTwo);
  std::vector<Tensor> inputs(5);
  std::vector<size_t> places;
  EXPECT_THAT(
      std::string(plain.TakeKeyed(Keyed({2, 3}), inputs, places).message()),
      HasSubstr("no feature of the model takes"));
}

}  // namespace
}  // namespace millrace::scheduler
