#include "scheduler/ragged_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using models::graph::Port;
using models::graph::Symbol;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Symbol> kSymbols = {{.name = "batch", .min = 1, .max = 64},
                                      {.name = "length", .min = 1, .max = 20},
                                      {.name = "other", .min = 1, .max = 64}};

Port MakePort(const std::string& name, DType dtype,
              std::vector<models::graph::PortDim> dims) {
  Port port;
  port.name = name;
  port.dtype = dtype;
  port.dims = std::move(dims);
  return port;
}

// tokens and mask [batch, length]; hidden [batch, length, 2], pooled [batch, 2]
const std::vector<Port> kInputs = {
    MakePort("tokens", DType::kI64, {{.symbol = 0}, {.symbol = 1}}),
    MakePort("mask", DType::kF32, {{.symbol = 0}, {.symbol = 1}})};
const std::vector<Port> kOutputs = {
    MakePort("hidden", DType::kF32,
             {{.symbol = 0}, {.symbol = 1}, {.size = 2}}),
    MakePort("pooled", DType::kF32, {{.symbol = 0}, {.size = 2}})};

RaggedRows Make() {
  auto rows = RaggedRows::Create(
      {{{.name = "tokens", .padding = 7}, {.name = "mask", .is_mask = true}}},
      kInputs, kOutputs, kSymbols);
  EXPECT_TRUE(rows.ok()) << rows.status().ToString();
  return *std::move(rows);
}

std::string Refusal(const std::vector<config::RaggedInput>& declared,
                    const std::vector<Port>& outputs = kOutputs,
                    const std::vector<Port>& inputs = kInputs) {
  const auto rows = RaggedRows::Create({declared}, inputs, outputs, kSymbols);
  EXPECT_EQ(rows.status().field(), "ragged_inputs");
  return std::string(rows.status().message());
}

// Tokens that count from `first`, and no mask.
std::vector<Tensor> Request(const RaggedRows& rows, int64_t num_rows,
                            int64_t length, int64_t first) {
  std::vector<Tensor> inputs(2);
  inputs[0] = Tensor::Make(DType::kI64, {num_rows, length});
  for (int64_t i = 0; i < num_rows * length; ++i) {
    inputs[0].data<int64_t>()[i] = first + i;
  }
  EXPECT_TRUE(rows.MakeMasks(inputs).ok());
  return inputs;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.num_elements()};
}

TEST(RaggedRows, ShorterRowsArePaddedAndMasked) {
  const RaggedRows rows = Make();
  const auto a = Request(rows, 1, 3, 10);
  const auto b = Request(rows, 2, 2, 20);
  EXPECT_EQ(rows.KindOf(a), rows.KindOf(b));
  const auto joined = rows.Join({&a, &b});
  EXPECT_EQ(joined[0].shape(), (Shape{3, 8})) << "8 is the least step";
  EXPECT_THAT(Values<int64_t>(joined[0]),
              ElementsAre(10, 11, 12, 7, 7, 7, 7, 7,  //
                          20, 21, 7, 7, 7, 7, 7, 7,   //
                          22, 23, 7, 7, 7, 7, 7, 7));
  EXPECT_THAT(Values<float>(joined[1]), ElementsAre(1, 1, 1, 0, 0, 0, 0, 0,  //
                                                    1, 1, 0, 0, 0, 0, 0, 0,  //
                                                    1, 1, 0, 0, 0, 0, 0, 0));
}

TEST(RaggedRows, PaddingIsCutOffTheOutputs) {
  const RaggedRows rows = Make();
  const auto a = Request(rows, 1, 3, 10);
  const auto b = Request(rows, 2, 2, 20);
  std::vector<Tensor> outputs;
  outputs.push_back(Tensor::Make(DType::kF32, {3, 8, 2}));
  outputs.push_back(Tensor::Make(DType::kF32, {3, 2}));
  for (Tensor& output : outputs) {
    for (int64_t i = 0; i < output.num_elements(); ++i) {
      output.data<float>()[i] = static_cast<float>(i);
    }
  }
  const auto parts = rows.Part(std::move(outputs), {&a, &b});
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  EXPECT_EQ((*parts)[0][0].shape(), (Shape{1, 3, 2}));
  EXPECT_THAT(Values<float>((*parts)[0][0]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ((*parts)[1][0].shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(Values<float>((*parts)[1][0]),
              ElementsAre(16, 17, 18, 19, 32, 33, 34, 35));
  EXPECT_THAT(Values<float>((*parts)[1][1]), ElementsAre(2, 3, 4, 5));
}

TEST(RaggedRows, EqualLengthsAreNotPadded) {
  const RaggedRows rows = Make();
  const auto a = Request(rows, 1, 3, 10);
  const auto b = Request(rows, 1, 3, 20);
  EXPECT_EQ(rows.Join({&a, &b})[0].shape(), (Shape{2, 3}));
  const auto c = Request(rows, 1, 17, 0);
  const auto d = Request(rows, 1, 18, 0);
  EXPECT_EQ(rows.Join({&c, &d})[0].shape(), (Shape{2, 20}))
      << "the graph takes no more";
}

TEST(RaggedRows, AtMostHalfIsPadding) {
  const RaggedRows rows = Make();
  const auto kind = [&](int64_t length) {
    return rows.KindOf(Request(rows, 1, length, 0));
  };
  EXPECT_EQ(kind(1), kind(16));
  EXPECT_NE(kind(16), kind(17));
  EXPECT_EQ(kind(17), kind(20));
}

TEST(RaggedRows, AMaskOfTheClientIsKept) {
  const RaggedRows rows = Make();
  auto a = Request(rows, 1, 3, 10);
  a[1].data<float>()[2] = 0;
  const auto b = Request(rows, 1, 2, 20);
  EXPECT_TRUE(rows.MakeMasks(a).ok());
  EXPECT_THAT(Values<float>(a[1]), ElementsAre(1, 1, 0));
  EXPECT_EQ(Values<float>(rows.Join({&a, &b})[1])[2], 0);
}

TEST(RaggedRows, AScalarOfTheClientIsNoMaskThatWasLeftOut) {
  const RaggedRows rows = Make();
  std::vector<Tensor> inputs(2);
  inputs[0] = Tensor::Make(DType::kI64, {1, 3});
  inputs[1] = Tensor::Make(DType::kF32, {});
  EXPECT_EQ(rows.MakeMasks(inputs).field(), "mask");
  EXPECT_EQ(inputs[1].shape().rank(), 0);
}

// Sizes of several inputs must not meet in a mask before they are known to be
// those of one request: a small one would need any amount of memory.
TEST(RaggedRows, NoMaskIsMadeOfInputsThatContradictEachOther) {
  const std::vector<Port> ports = {
      kInputs[0], kInputs[1],
      MakePort("types", DType::kI64, {{.symbol = 0}, {.symbol = 1}})};
  auto rows = RaggedRows::Create({{{.name = "tokens"},
                                   {.name = "mask", .is_mask = true},
                                   {.name = "types"}}},
                                 ports, kOutputs, kSymbols);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  const auto refused = [&](const Shape& tokens, const Shape& types) {
    std::vector<Tensor> inputs(3);
    inputs[0] = Tensor::Make(DType::kI64, tokens);
    inputs[2] = Tensor::Make(DType::kI64, types);
    const Status status = rows->MakeMasks(inputs);
    EXPECT_EQ(inputs[1].shape().rank(), 0) << "a mask was made";
    return std::string(status.field());
  };
  EXPECT_EQ(refused({1, 20}, {9}), "types");
  EXPECT_EQ(refused({20}, {1, 9}), "tokens");
  EXPECT_EQ(refused({1, 20}, {9, 20}), "types");
  EXPECT_EQ(refused({1, 20}, {64, 0}), "types");
  EXPECT_EQ(refused({1, 21}, {1, 21}), "tokens");
}

TEST(RaggedRows, NoMaskIsMadeOfAnInputWithoutElements) {
  std::vector<Symbol> symbols = kSymbols;
  symbols.push_back({.name = "width", .min = 0, .max = 64});
  const std::vector<Port> ports = {
      MakePort("x", DType::kF32, {{.symbol = 0}, {.symbol = 1}, {.symbol = 3}}),
      kInputs[1]};
  auto rows =
      RaggedRows::Create({{{.name = "x"}, {.name = "mask", .is_mask = true}}},
                         ports, {kOutputs[1]}, symbols);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  std::vector<Tensor> inputs(2);
  inputs[0] = Tensor::Make(DType::kF32, {64, 20, 0});
  EXPECT_EQ(rows->MakeMasks(inputs).field(), "mask");
  EXPECT_EQ(inputs[1].shape().rank(), 0);
  inputs[0] = Tensor::Make(DType::kF32, {2, 3, 1});
  EXPECT_TRUE(rows->MakeMasks(inputs).ok());
  EXPECT_EQ(inputs[1].shape(), (Shape{2, 3}));
}

TEST(RaggedRows, AnOutputOfAnotherLengthThanItDeclaresIsNotCut) {
  const RaggedRows rows = Make();
  const auto a = Request(rows, 1, 3, 10);
  const auto b = Request(rows, 2, 2, 20);
  std::vector<Tensor> outputs;
  outputs.push_back(Tensor::Make(DType::kF32, {3, 7, 2}));  // 8 by the inputs
  outputs.push_back(Tensor::Make(DType::kF32, {3, 2}));
  const auto parts = rows.Part(std::move(outputs), {&a, &b});
  EXPECT_EQ(parts.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(parts.status().message()),
              HasSubstr("output 'hidden' came as FP32 [1, 7, 2]"));
}

TEST(RaggedRows, WhatCannotBePaddedIsNamed) {
  EXPECT_THAT(Refusal({{.name = "x"}}), HasSubstr("'x', which is no input"));
  EXPECT_THAT(Refusal({{.name = "tokens"}}),
              HasSubstr("leaves out 'mask', which has the length"));
  EXPECT_THAT(Refusal({{.name = "tokens", .padding = 0.5}, {.name = "mask"}}),
              HasSubstr("pads 'tokens' with 0.5, which its type INT64"));
  EXPECT_THAT(
      Refusal({{.name = "tokens", .padding = 9.3e18}, {.name = "mask"}}),
      HasSubstr("which its type INT64 cannot hold"));
  EXPECT_THAT(Refusal({{.name = "tokens", .is_mask = true},
                       {.name = "mask", .is_mask = true}}),
              HasSubstr("'tokens', whose length no other input has"));
  const std::vector<Port> unknown = {
      MakePort("y", DType::kF32, {{.symbol = 0}, {.symbol = 2}})};
  EXPECT_THAT(Refusal({{.name = "tokens"}, {.name = "mask"}}, unknown),
              HasSubstr("output 'y': a size of it follows from the inputs"));
  const std::vector<Port> square = {
      kInputs[0], MakePort("mask", DType::kF32,
                           {{.symbol = 0}, {.symbol = 1}, {.symbol = 1}})};
  EXPECT_THAT(Refusal({{.name = "tokens"}, {.name = "mask", .is_mask = true}},
                      kOutputs, square),
              HasSubstr("'mask', which has more than one length"));
  const std::vector<Port> halves = {
      kInputs[0],
      MakePort("mask", DType::kF16, {{.symbol = 0}, {.symbol = 1}})};
  EXPECT_THAT(Refusal({{.name = "tokens"}, {.name = "mask", .is_mask = true}},
                      kOutputs, halves),
              HasSubstr("makes a mask of 'mask', which is FP16"));
  // Rows by one input times columns by another.
  const std::vector<Port> apart = {
      MakePort("rows", DType::kI64, {{.symbol = 0}, {.size = 1}}), kInputs[1],
      MakePort("tokens", DType::kI64, {{.size = 1}, {.symbol = 1}})};
  EXPECT_THAT(Refusal({{.name = "tokens"}, {.name = "mask", .is_mask = true}},
                      kOutputs, apart),
              HasSubstr("'mask', whose length no other input has beside"));
}

}  // namespace
}  // namespace millrace::scheduler
