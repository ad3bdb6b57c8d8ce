#include "handlers/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/test_graphs.h"

namespace millrace::handlers {
namespace {

using ::millrace::support::SumGraph;
using models::DType;
using models::Shape;
using models::Tensor;
using ::testing::HasSubstr;

NamedTensor Filled(const std::string& name, float value,
                   const Shape& shape = {1, 2}) {
  NamedTensor named{name, Tensor::Make(DType::kF32, shape)};
  std::fill_n(named.tensor.data<float>(), named.tensor.num_elements(), value);
  return named;
}

class TensorHandlerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto context = models::graph::CreateInstance(SumGraph(), {});
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    batcher_ = scheduler::Batcher::Create(
        *std::move(context), {.model = "sums", .max_queue_size = 4}, nullptr);
    handler_ = MakeTensorHandler(
        {.model = "sums", .batcher = batcher_.get(), .pool = &pool_});
  }

  StatusOr<TensorResponse> Ask(std::vector<NamedTensor> inputs,
                               std::vector<std::string> outputs = {}) {
    TensorRequest request;
    request.inputs = std::move(inputs);
    request.outputs = std::move(outputs);
    request.trace = std::make_shared<Trace>();
    std::promise<StatusOr<TensorResponse>> ended;
    handler_->Start(std::move(request),
                    [&](StatusOr<TensorResponse> answer) {
                      ended.set_value(std::move(answer));
                    },
                    {});
    return ended.get_future().get();
  }
  template <typename... Inputs>
  static std::vector<NamedTensor> List(Inputs... inputs) {
    std::vector<NamedTensor> list;
    (list.push_back(std::move(inputs)), ...);
    return list;
  }
  std::string Refusal(std::vector<NamedTensor> inputs,
                      std::vector<std::string> outputs = {}) {
    const Status status = Ask(std::move(inputs), std::move(outputs)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  Pool pool_{1, 8, {}};
  std::unique_ptr<scheduler::Batcher> batcher_;
  std::unique_ptr<TensorHandler> handler_;
};

TEST_F(TensorHandlerTest, TakesInputsInAnyOrderAndGivesAllOutputs) {
  auto answer = Ask(List(Filled("b", 1), Filled("a", 2)));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  ASSERT_EQ(answer->outputs.size(), 2u);
  EXPECT_EQ(answer->outputs[0].name, "sum");
  EXPECT_EQ(answer->outputs[0].tensor.data<float>()[1], 3);
  EXPECT_EQ(answer->outputs[1].name, "twice");
  EXPECT_EQ(answer->outputs[1].tensor.data<float>()[0], 6);
}

TEST_F(TensorHandlerTest, GivesTheOutputsAskedForInTheirOrder) {
  auto both = Ask(List(Filled("a", 1), Filled("b", 1)), {"twice", "sum"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->outputs[0].name, "twice");
  EXPECT_EQ(both->outputs[1].name, "sum");
  auto one = Ask(List(Filled("a", 1), Filled("b", 1)), {"twice"});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->outputs.size(), 1u);
}

TEST_F(TensorHandlerTest, NamesTheInputAtFault) {
  EXPECT_THAT(Refusal(List(Filled("a", 1), Filled("c", 1))),
              HasSubstr("input 'c' is not one of model 'sums', which takes a "
                        "FP32 [n, 2], b FP32 [n, 2]"));
  EXPECT_THAT(Refusal(List(Filled("a", 1))),
              HasSubstr("input 'b' is missing; model 'sums' takes"));
  EXPECT_THAT(Refusal(List(Filled("a", 1), Filled("a", 1), Filled("b", 1))),
              HasSubstr("input 'a' is given twice"));
  EXPECT_THAT(
      Refusal(List(Filled("a", 1), Filled("b", 1, {1, 3}))),
      HasSubstr("input 'b' is FP32 [1, 3] but the model takes FP32 [n"));
  EXPECT_THAT(Refusal(List(Filled("a", 1), Filled("b", 1, {2, 2}))),
              HasSubstr("another input has n 1"));
  NamedTensor integers{"b", Tensor::Make(DType::kI64, {1, 2})};
  EXPECT_THAT(Refusal(List(Filled("a", 1), std::move(integers))),
              HasSubstr("input 'b' is INT64 [1, 2] but the model takes FP32"));
}

TEST_F(TensorHandlerTest, NamesTheOutputAtFault) {
  EXPECT_THAT(Refusal(List(Filled("a", 1), Filled("b", 1)), {"c"}),
              HasSubstr("output 'c' is not one of model 'sums', which gives"));
  EXPECT_THAT(Refusal(List(Filled("a", 1), Filled("b", 1)), {"sum", "sum"}),
              HasSubstr("output 'sum' is asked for twice"));
}

TEST_F(TensorHandlerTest, RefusalsGiveTheirPlaceBack) {
  for (int i = 0; i < 20; ++i) Refusal(List(Filled("c", 1)));
  EXPECT_TRUE(Ask(List(Filled("a", 1), Filled("b", 1))).ok());
}

TEST_F(TensorHandlerTest, DrainedModelIsUnavailable) {
  EXPECT_TRUE(batcher_->Drain(std::chrono::steady_clock::now() +
                              std::chrono::seconds(20)));
  EXPECT_EQ(Ask(List(Filled("a", 1), Filled("b", 1))).status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace millrace::handlers
