#include "handlers/tensor_reshapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using models::TensorSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorSpec Spec(const std::string& name, std::vector<int64_t> dims) {
  return {
      .name = name, .dtype = DType::kF32, .dims = std::move(dims), .text = ""};
}

Tensor Counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::From<float>(DType::kF32, shape, values);
}

std::vector<int64_t> DimsOf(const Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

// What Create says of an input x: its shape in requests and in the model.
std::string Refused(std::vector<int64_t> dims, std::vector<int64_t> shape,
                    bool has_batch = true, std::vector<int64_t> own = {-1, 4}) {
  const auto made = TensorReshapes::Create(
      {.has_batch = has_batch,
       .inputs = {{"x", std::move(dims), std::move(shape)}},
       .outputs = {}},
      {Spec("x", std::move(own))}, {});
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(made.status().field(), "reshape");
  return std::string(made.status().message());
}

// y is x as the model got it.
class Echo final : public TensorHandler {
 public:
  void Start(TensorRequest request, Done done, std::stop_token) override {
    TensorResponse response;
    Tensor& x = request.inputs.front().tensor;
    seen = DimsOf(x);
    response.outputs.push_back({"y", std::move(x)});
    done(std::move(response));
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  inline static std::vector<int64_t> seen;

 private:
  const std::vector<TensorSpec> inputs_ = {Spec("x", {-1, 4})};
  const std::vector<TensorSpec> outputs_ = {Spec("y", {-1, 4})};
};

TEST(TensorReshapes, RequestsAndResponsesHaveShapesOfTheirOwn) {
  const auto reshapes =
      TensorReshapes::Create({.has_batch = true,
                              .inputs = {{"x", {2, 2}, {4}}},
                              .outputs = {{"y", {4, 1}, {4}}}},
                             {Spec("x", {-1, 4})}, {Spec("y", {-1, 4})});
  ASSERT_TRUE(reshapes.ok()) << reshapes.status().ToString();
  EXPECT_THAT((*reshapes)->inputs()[0].dims, ElementsAre(-1, 2, 2));
  EXPECT_EQ((*reshapes)->inputs()[0].text, "FP32 [-1, 2, 2]");
  const auto handler =
      MakeReshapingHandler(std::make_unique<Echo>(), "m", *reshapes);
  EXPECT_THAT(handler->outputs()[0].dims, ElementsAre(-1, 4, 1));
  TensorRequest request;
  request.inputs.push_back({"x", Counting({3, 2, 2})});
  StatusOr<TensorResponse> answer = Internal("not called");
  handler->Start(
      std::move(request),
      [&](StatusOr<TensorResponse> response) { answer = std::move(response); },
      {});
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_THAT(Echo::seen, ElementsAre(3, 4));
  const Tensor& y = answer->outputs[0].tensor;
  EXPECT_THAT(DimsOf(y), ElementsAre(3, 4, 1));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(y.data<float>()[i], i);

  TensorRequest wrong;
  wrong.inputs.push_back({"x", Counting({3, 4})});
  handler->Start(
      std::move(wrong),
      [&](StatusOr<TensorResponse> response) { answer = std::move(response); },
      {});
  EXPECT_EQ(answer.status().message(),
            "input 'x' is FP32 [3, 4] but the model 'm' takes FP32 [-1, 2, 2]");
}

TEST(TensorReshapes, AnEmptyShapeIsTheBatchAlone) {
  const auto reshapes = TensorReshapes::Create(
      {.has_batch = true, .inputs = {{"x", {1}, {}}}, .outputs = {}},
      {Spec("x", {-1})}, {});
  ASSERT_TRUE(reshapes.ok()) << reshapes.status().ToString();
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", Counting({5, 1})});
  ASSERT_TRUE((*reshapes)->ToModel("m", &tensors).ok());
  EXPECT_THAT(DimsOf(tensors[0].tensor), ElementsAre(5));
}

TEST(TensorReshapes, SizesThatVaryKeepTheirOrder) {
  const auto reshapes = TensorReshapes::Create(
      {.has_batch = false,
       .inputs = {{"x", {-1, 2, 3, -1}, {-1, 6, -1, 1}}},
       .outputs = {{"y", {2, -1, 2}, {2, -1, 1, 2}}}},
      {Spec("x", {-1, 6, -1, 1})}, {Spec("y", {-1, -1, -1, 2})});
  ASSERT_TRUE(reshapes.ok()) << reshapes.status().ToString();
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", Counting({7, 2, 3, 5})});
  ASSERT_TRUE((*reshapes)->ToModel("m", &tensors).ok());
  EXPECT_THAT(DimsOf(tensors[0].tensor), ElementsAre(7, 6, 5, 1));
  std::vector<NamedTensor> outputs;
  outputs.push_back({"y", Counting({2, 9, 1, 2})});
  ASSERT_TRUE((*reshapes)->ToCaller(&outputs).ok());
  EXPECT_THAT(DimsOf(outputs[0].tensor), ElementsAre(2, 9, 2));
  outputs[0].tensor = Counting({3, 9, 1, 2});
  EXPECT_EQ((*reshapes)->ToCaller(&outputs).code(), StatusCode::kInternal);
}

TEST(TensorReshapes, WhatCannotBeIsNamed) {
  EXPECT_EQ(Refused({3}, {4}),
            "reshape of input 'x' makes [4] of [3], which has other elements; "
            "both have as many -1, and as many elements before, between and "
            "behind them");
  EXPECT_THAT(Refused({-1, 4}, {4}), HasSubstr("has other elements"));
  EXPECT_THAT(Refused({2, -1}, {-1, 2}), HasSubstr("has other elements"));
  EXPECT_EQ(Refused({2, 4}, {8}),
            "reshape of input 'x' gives the model [-1, 8], which has [-1, 4] "
            "(the first size is the batch's)");
  EXPECT_THAT(Refused({0}, {0}), HasSubstr("a size is -1 or at least 1"));
  EXPECT_THAT(Refused({int64_t{1} << 40, 1 << 20}, {4}),
              HasSubstr("a size is -1 or at least 1"));
  EXPECT_THAT(Refused({}, {4}), HasSubstr("has no dims beside it"));
  EXPECT_THAT(Refused({1}, {}, false, {}), HasSubstr("max_batch_size is 0"));
  const auto other = TensorReshapes::Create(
      {.has_batch = true, .inputs = {}, .outputs = {{"z", {1}, {1}}}}, {},
      {Spec("y", {-1, 1})});
  EXPECT_EQ(other.status().message(),
            "reshape of output 'z' is set, but the model has 'y'");
}

}  // namespace
}  // namespace millrace::handlers
