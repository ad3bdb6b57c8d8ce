#include "models/graph/execution_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

Tensor Filled(const Shape& shape, float value) {
  Tensor tensor = Tensor::Make(DType::kF32, shape);
  std::fill_n(tensor.data<float>(), tensor.num_elements(), value);
  return tensor;
}

std::vector<Tensor> One(Tensor tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  return tensors;
}

// y = (x + 1) * (x + 1), z = x
Graph SquareGraph() {
  Graph graph;
  const int32_t batch = graph.AddSymbol("batch");
  graph.symbols[0].min = 1;
  graph.symbols[0].max = 64;
  const ValueId x =
      graph.AddInput("x", DType::kF32, {{.symbol = batch}, {.size = 3}});
  const ValueId one = graph.AddConstant("one", Tensor::Scalar(1.0f));
  const ValueId sum = graph.AddNode("sum", *FindOp("Add"), {x, one});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Mul"), {sum, sum}));
  graph.AddOutput("z", x);
  return graph;
}

TEST(ExecutionContext, AnswersEverySizeAndKeepsItsResultsApart) {
  InstanceOptions options;
  options.max_plan_bytes = 1;
  auto context = CreateInstance(SquareGraph(), options);
  ASSERT_TRUE(context.ok()) << context.status().message();
  std::vector<std::vector<Tensor>> answers;
  for (const int64_t batch : {1, 2, 3, 1, 64}) {
    auto outputs =
        (*context)->Run(One(Filled({batch, 3}, static_cast<float>(batch))));
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    answers.push_back(*std::move(outputs));
  }
  const std::vector<float> batches = {1, 2, 3, 1, 64};
  for (size_t i = 0; i < answers.size(); ++i) {
    const float b = batches[i];
    const auto n = static_cast<size_t>(3 * b);
    EXPECT_THAT(std::span(answers[i][0].data<float>(), n),
                Each((b + 1) * (b + 1)));
    EXPECT_THAT(std::span(answers[i][1].data<float>(), n), Each(b));
  }
}

// An operator that needs more memory than there is.
OpDef Greedy() {
  OpDef op = *FindOp("Hardmax");
  op.run = [](const Call&, std::span<const Result>, const Team&) -> Status {
    throw std::bad_alloc();
  };
  return op;
}

TEST(ExecutionContext, MemoryThatIsNotThereIsAnError) {
  static const OpDef greedy = Greedy();
  const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  for (const bool interpret : {true, false}) {
    Graph graph;
    const int32_t n = graph.AddSymbol("n");
    const ValueId x =
        graph.AddInput("x", DType::kF32, {{.symbol = n}, {.size = 3}});
    graph.AddOutput("y", graph.AddNode("y", greedy, {x}));
    InstanceOptions options;
    options.cpus = {0, last};
    options.interpret = interpret;
    auto context = CreateInstance(std::move(graph), options);
    ASSERT_TRUE(context.ok()) << context.status().message();
    for (const int64_t rows : {1, 5}) {
      const auto run = (*context)->Run(One(Filled({rows, 3}, 1)));
      EXPECT_EQ(run.status().code(), StatusCode::kUnavailable);
      EXPECT_THAT(std::string(run.status().message()),
                  HasSubstr("has no memory"));
    }
  }
}

// Some twenty steps; the check ends the run when it has been asked `asks`
// times.
class Stopping : public testing::TestWithParam<bool> {
 protected:
  static Graph Chain() {
    Graph graph;
    const int32_t n = graph.AddSymbol("n");
    ValueId x = graph.AddInput("x", DType::kF32, {{.symbol = n}, {.size = 3}});
    for (int i = 0; i < 20; ++i) {
      x = graph.AddNode("softmax", *FindOp("Softmax"), {x});
    }
    graph.AddOutput("y", x);
    return graph;
  }

  void Check(const InstanceOptions& options, int64_t rows) {
    auto context = CreateInstance(Chain(), options);
    ASSERT_TRUE(context.ok()) << context.status().message();
    const auto inputs = One(Filled({rows, 3}, 1));
    for (const int asks : {1, 4, 1000}) {
      std::atomic<int> asked = 0;
      const auto run = (*context)->Run(
          inputs, {.stopped = [&]() -> Status {
            return ++asked < asks ? OkStatus() : Cancelled("enough");
          }});
      if (asks == 1000) {
        EXPECT_TRUE(run.ok()) << run.status().ToString();
        EXPECT_GE(asked, 20);
        continue;
      }
      EXPECT_EQ(run.status().code(), StatusCode::kCancelled);
      EXPECT_LT(asked, 20);
    }
    EXPECT_TRUE((*context)->Run(inputs).ok());
  }
};

TEST_P(Stopping, EndsARunBetweenItsSteps) {
  InstanceOptions options;
  const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  if (GetParam()) options.cpus = {0, last};
  Check(options, 5);
  options.rows_apart = false;
  Check(options, 5);
  options.interpret = true;
  Check(options, 5);
}

INSTANTIATE_TEST_SUITE_P(Teams, Stopping, testing::Bool());

TEST(ExecutionContext, ATinyGraphRunsOnTheCallingThreadAlone) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one CPU";
  InstanceOptions options;
  options.cpus = {0, 1};
  auto together = CreateInstance(SquareGraph(), options);
  options.tiny_alone = true;
  auto alone = CreateInstance(SquareGraph(), options);
  ASSERT_TRUE(together.ok() && alone.ok());
  const auto members_at_work = [](ExecutionContext& context, int64_t rows,
                                  std::vector<Tensor>& outputs) {
    Trace trace;
    auto run = context.Run(One(Filled({rows, 3}, 2)), {.trace = &trace});
    EXPECT_TRUE(run.ok()) << run.status().message();
    outputs = std::move(run).value();
    int members = 0;
    for (const auto& spans : trace.spans) {
      members += std::any_of(spans.begin(), spans.end(),
                             [](const auto& span) { return span.end_ns > 0; });
    }
    return members;
  };
  for (const int64_t rows : {1, 5, 64}) {
    std::vector<Tensor> expected, got;
    members_at_work(**together, rows, expected);
    EXPECT_EQ(members_at_work(**alone, rows, got), 1);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::memcmp(got[i].bytes(), expected[i].bytes(),
                            static_cast<size_t>(got[i].num_bytes())),
                0);
    }
  }
}

TEST(ExecutionContext, AnyThreadComputesATinyGraphWhosePlanIsThere) {
  InstanceOptions options;
  options.tiny_alone = true;
  auto context = CreateInstance(SquareGraph(), options);
  ASSERT_TRUE(context.ok());
  StatusOr<std::vector<Tensor>> outputs = std::vector<Tensor>();
  EXPECT_FALSE((*context)->RunIfTiny(One(Filled({4, 3}, 2)), &outputs))
      << "no plan yet";
  const auto expected = (*context)->Run(One(Filled({4, 3}, 2)));
  ASSERT_TRUE(expected.ok());
  std::thread other([&] {
    EXPECT_TRUE((*context)->RunIfTiny(One(Filled({4, 3}, 2)), &outputs));
  });
  other.join();
  ASSERT_TRUE(outputs.ok());
  ASSERT_EQ(outputs->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*outputs)[i].shape(), (*expected)[i].shape());
    EXPECT_EQ(std::memcmp((*outputs)[i].bytes(), (*expected)[i].bytes(),
                          static_cast<size_t>((*expected)[i].num_bytes())),
              0);
  }
  EXPECT_FALSE((*context)->RunIfTiny(One(Filled({5, 3}, 2)), &outputs));

  options.tiny_alone = false;
  auto team = CreateInstance(SquareGraph(), options);
  ASSERT_TRUE(team.ok());
  ASSERT_TRUE((*team)->Run(One(Filled({4, 3}, 2))).ok());
  EXPECT_FALSE((*team)->RunIfTiny(One(Filled({4, 3}, 2)), &outputs));
}

TEST(ExecutionContext, TellsWhatAnInputMustBe) {
  auto context = CreateInstance(SquareGraph(), {});
  ASSERT_TRUE(context.ok());
  const auto run = [&](const Shape& shape) {
    return std::string(
        (*context)->Run(One(Filled(shape, 0))).status().message());
  };
  EXPECT_THAT(run({2, 4}), HasSubstr("input 'x' is FP32 [2, 4] but the model "
                                     "takes FP32 [batch, 3]"));
  EXPECT_THAT(run({65, 3}), HasSubstr("with batch from 1 to 64"));
  EXPECT_THAT((*context)->Run({}).status().message(),
              HasSubstr("takes 1 inputs, the request has 0"));
}

TEST(ExecutionContext, ARunMayTakeSoMuchMemoryAndNoMore) {
  // x [n, 3] times y [3, 4096] thrice: what lies between is far larger than x.
  Graph graph;
  const int32_t n = graph.AddSymbol("n");
  const ValueId x =
      graph.AddInput("x", DType::kF32, {{.symbol = n}, {.size = 3}});
  const ValueId y =
      graph.AddNode("y", *FindOp("MatMul"),
                    {x, graph.AddConstant("w", Filled({3, 4096}, 1))});
  graph.AddOutput("z", graph.AddNode("z", *FindOp("Softmax"), {y}));
  InstanceOptions options;
  options.max_bytes = int64_t{1} << 20;
  auto context = CreateInstance(std::move(graph), options);
  ASSERT_TRUE(context.ok()) << context.status().message();
  EXPECT_TRUE((*context)->Run(One(Filled({8, 3}, 1))).ok());
  const auto large = (*context)->Run(One(Filled({100, 3}, 1)));
  EXPECT_EQ(large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.status().message(), HasSubstr("the limit is 1 MiB"));
  EXPECT_TRUE((*context)->Run(One(Filled({8, 3}, 1))).ok());
}

}  // namespace
}  // namespace millrace::models::graph
