#include "models/graph/infer_and_fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;

TEST(InferAndFold, FoldsWhatDependsOnConstantsAloneAtLoadTime) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}});
  const ValueId a = graph.AddConstant("a", Tensor::Scalar(2.0f));
  const ValueId b = graph.AddConstant("b", Tensor::Scalar(3.0f));
  const ValueId sum = graph.AddNode("sum", *FindOp("Add"), {a, b});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Mul"), {x, sum}));

  const auto folded = InferAndFold(graph, {});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  ASSERT_EQ(folded->nodes.size(), 1u);
  const Value& factor = folded->value(folded->nodes[0].inputs[1]);
  ASSERT_NE(factor.constant, nullptr);
  EXPECT_EQ(*factor.constant->data<float>(), 5.0f);
  EXPECT_FALSE(folded->value(folded->outputs[0].value).type.has_value());
}

TEST(InferAndFold, GivesEveryValueItsTypeOnceSizesAreKnown) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}, {1}});
  const ValueId y = graph.AddInput("y", DType::kF32, {{-1}});
  graph.AddOutput("z", graph.AddNode("z", *FindOp("Less"), {x, y}));

  const auto folded =
      InferAndFold(graph, {{DType::kF32, {4, 1}}, {DType::kF32, {3}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  const ValueType want{DType::kBool, {4, 3}};
  EXPECT_EQ(folded->value(folded->outputs[0].value).type, want);
}

TEST(InferAndFold, OfWhatAConstantIsCastLikeTheTypeIsEnough) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kI32, {{-1}});
  const ValueId two = graph.AddConstant("two", Tensor::Scalar(int64_t{2}));
  const ValueId like = graph.AddNode("like", *FindOp("CastLike"), {two, x});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Mul"), {x, like}));

  const auto folded = InferAndFold(graph, {{DType::kI32, {3}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  ASSERT_EQ(folded->nodes.size(), 1u);
  const Value& factor = folded->value(folded->nodes[0].inputs[1]);
  ASSERT_NE(factor.constant, nullptr);
  EXPECT_EQ(*factor.constant->data<int32_t>(), 2);
}

TEST(InferAndFold, DropsWhatNobodyReads) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}});
  graph.AddNode("unread", *FindOp("Add"), {x, x});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Mul"), {x, x}));

  const auto folded = InferAndFold(graph, {});

  ASSERT_TRUE(folded.ok());
  ASSERT_EQ(folded->nodes.size(), 1u);
  EXPECT_EQ(folded->nodes[0].name, "y");
}

TEST(InferAndFold, NodesThatGiveTheirOperandAsItIsGo) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}, {-1}});
  const auto ints = [&](std::vector<int64_t> values) {
    return graph.AddConstant("ints", Tensor::Int64s(values));
  };
  ValueId y = graph.AddNode("e", *FindOp("Expand"), {x, ints({4, 3})});
  y = graph.AddNode("r", *FindOp("Reshape"), {y, ints({4, -1})});
  y = graph.AddNode("s", *FindOp("Slice"),
                    {y, ints({0}), ints({99}), ints({0})});
  y = graph.AddNode("t", *FindOp("Transpose"), {y},
                    {{"perm", std::vector<int64_t>{0, 1}}});
  // A flip keeps the size and changes everything else.
  y = graph.AddNode("flip", *FindOp("Slice"),
                    {y, ints({-1}), ints({-99}), ints({0}), ints({-1})});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Neg"), {y}));

  const auto folded = InferAndFold(graph, {{DType::kF32, {4, 3}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  ASSERT_EQ(folded->nodes.size(), 2u);
  EXPECT_EQ(folded->nodes[0].name, "flip");
}

TEST(InferAndFold, AConstantIsNotExpandedToAHugeOne) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}});
  const ValueId one = graph.AddConstant("one", Tensor::Scalar(1.0f));
  const ValueId sizes = graph.AddNode("n", *FindOp("Shape"), {x});
  const ValueId ones = graph.AddNode("e", *FindOp("Expand"), {one, sizes});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("Concat"), {x, ones},
                                     {{"axis", int64_t{0}}}));

  const auto folded = InferAndFold(graph, {{DType::kF32, {100000}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  EXPECT_EQ(folded->nodes.size(), 2u);
}

TEST(InferAndFold, SequencesGiveWayToTheTensorsInThem) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}, {2}});
  const auto number = [&](int64_t value) {
    return graph.AddConstant("number", Tensor::Scalar(value));
  };
  const auto node = [&](const char* op, std::vector<ValueId> operands,
                        Attrs attrs = {}) {
    return graph.AddNode(op, *FindOp(op), std::move(operands),
                         std::move(attrs));
  };
  // x's rows, the second of them once more before the last, without the first.
  ValueId rows = node("SplitToSequence", {x}, {{"keepdims", int64_t{0}}});
  const ValueId second = node("SequenceAt", {rows, number(1)});
  rows = node("SequenceInsert", {rows, second, number(-1)});
  rows = node("SequenceErase", {rows, number(0)});
  graph.AddOutput("y", node("ConcatFromSequence", {rows},
                            {{"axis", int64_t{0}}, {"new_axis", int64_t{1}}}));
  graph.AddOutput("n", node("SequenceLength", {rows}));

  const auto folded = InferAndFold(graph, {{DType::kF32, {3, 2}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  const ValueType want{DType::kF32, {3, 2}};
  EXPECT_EQ(folded->value(folded->outputs[0].value).type, want);
  EXPECT_EQ(*folded->value(folded->outputs[1].value).constant->data<int64_t>(),
            3);
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::From<float>(DType::kF32, {3, 2},
                                       std::vector<float>{1, 2, 3, 4, 5, 6}));
  const auto outputs = Interpret(*folded, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  const float* y = (*outputs)[0].data<float>();
  EXPECT_THAT(std::vector<float>(y, y + 6), ElementsAre(3, 4, 3, 4, 5, 6));
}

TEST(InferAndFold, ASequenceAtAPlaceThatDataDecidesIsInterpreted) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{2}});
  const ValueId at = graph.AddInput("at", DType::kI64, {});
  const ValueId list =
      graph.AddNode("list", *FindOp("SequenceConstruct"), {x, x});
  graph.AddOutput("y", graph.AddNode("y", *FindOp("SequenceAt"), {list, at}));
  EXPECT_TRUE(IsNeedsBytes(
      InferAndFold(graph, {{DType::kF32, {2}}, {DType::kI64, {}}}).status()));
}

// A file may leave out any operand; the interpreter tells of it.
TEST(InferAndFold, SequencesThatLackOperandsAreInterpreted) {
  for (const char* op : {"SequenceAt", "SequenceLength", "SplitToSequence",
                         "SequenceInsert", "ConcatFromSequence"}) {
    for (const std::vector<ValueId>& operands :
         {std::vector<ValueId>{}, std::vector<ValueId>{kNoValue}}) {
      Graph graph;
      graph.AddInput("x", DType::kF32, {{2}});
      graph.AddOutput("y", graph.AddNode("y", *FindOp(op), operands));
      EXPECT_TRUE(
          IsNeedsBytes(InferAndFold(graph, {{DType::kF32, {2}}}).status()))
          << op;
    }
  }
}

TEST(InferAndFold, AConditionThatIsNoTruthDecidesNothing) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{2}});
  const ValueId none =
      graph.AddConstant("none", Tensor::Make(DType::kI64, {0}));
  const auto branch = std::make_shared<Graph>();
  branch->AddOutput("y", branch->AddInput("x", DType::kF32, {{2}}));
  graph.AddOutput("y", graph.AddNode("if", *FindOp("If"), {none, x}));
  graph.nodes.back().bodies = {branch, branch};
  const auto folded = InferAndFold(graph, {});
  ASSERT_TRUE(folded.ok()) << folded.status().message();
  EXPECT_EQ(folded->nodes.size(), 1u);
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {2}));
  EXPECT_FALSE(Interpret(graph, inputs).ok());
}

// y and the list of all y, which begins with `begin` and gets `step` added in
// each trip.
Graph CountingLoop(int64_t trips, int64_t begin, int64_t step) {
  const auto body = std::make_shared<Graph>();
  body->AddInput("trip", DType::kI64, {});
  const ValueId go = body->AddInput("go", DType::kBool, {});
  const ValueId y = body->AddInput("y", DType::kI64, {{1}});
  const ValueId one =
      body->AddConstant("one", Tensor::Int64s(std::vector<int64_t>{step}));
  const ValueId sum = body->AddNode("sum", *FindOp("Add"), {y, one});
  body->AddOutput("go", go);
  body->AddOutput("y", sum);
  body->AddOutput("list", sum);
  for (size_t i : {1, 2}) {
    body->outputs[i].dtype = DType::kI64;
    body->outputs[i].dims = {{1}};
  }
  Graph graph;
  graph.AddInput("x", DType::kF32, {{-1}});
  const ValueId count = graph.AddConstant("count", Tensor::Scalar(trips));
  const ValueId first =
      graph.AddConstant("first", Tensor::Int64s(std::vector<int64_t>{begin}));
  graph.AddOutput(
      "y", graph.AddNode("loop", *FindOp("Loop"), {count, kNoValue, first},
                         {{"num_carried", int64_t{1}}}));
  Node& loop = graph.nodes.back();
  loop.bodies = {body};
  const ValueId list = graph.AddValue("list");
  graph.nodes.back().outputs.push_back(list);
  graph.AddOutput("list", list);
  return graph;
}

TEST(InferAndFold, ALoopOfConstantsIsAConstant) {
  const Graph graph = CountingLoop(3, 5, 2);
  const auto folded = InferAndFold(graph, {});
  ASSERT_TRUE(folded.ok()) << folded.status().message();
  EXPECT_TRUE(folded->nodes.empty());
  const Tensor& list = *folded->value(folded->outputs[1].value).constant;
  EXPECT_EQ(list.shape(), (Shape{3, 1}));
  EXPECT_THAT(
      std::vector<int64_t>(list.data<int64_t>(), list.data<int64_t>() + 3),
      ElementsAre(7, 9, 11));
}

// Without a limit it would neither end nor fit into memory.
TEST(InferAndFold, ALoopOfTooManyTripsIsLeftToTheInterpreter) {
  const Graph graph = CountingLoop(std::numeric_limits<int64_t>::max(), 0, 1);
  for (const FoldLimits& limits : {FoldLimits{.max_unrolled_nodes = 1000},
                                   FoldLimits{.max_unrolled_bytes = 1000}}) {
    EXPECT_TRUE(IsNeedsBytes(
        InferAndFold(graph, {{DType::kF32, {1}}}, {}, limits).status()));
    const auto folded = InferAndFold(graph, {}, {}, limits);
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    ASSERT_EQ(folded->nodes.size(), 1u);
    EXPECT_TRUE(folded->nodes[0].Is("Loop"));
    // The input, two operands and two results: nothing of the trips made.
    EXPECT_EQ(folded->values.size(), 5u);
  }
}

TEST(InferAndFold, ALoopWithoutATripHasCollectedNothing) {
  const Graph graph = CountingLoop(0, 5, 2);
  const auto folded = InferAndFold(graph, {{DType::kF32, {1}}});
  ASSERT_TRUE(folded.ok()) << folded.status().message();
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {1}));
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  const ValueType type = *folded->value(folded->outputs[1].value).type;
  EXPECT_EQ(type, (ValueType{DType::kI64, {0, 1}}));
  EXPECT_EQ((*want)[1].dtype(), type.dtype);
  EXPECT_EQ((*want)[1].shape(), type.shape);
}

TEST(InferAndFold, ALoopThatDataEndsIsKeptAtLoadTime) {
  const auto body = std::make_shared<Graph>();
  body->AddInput("trip", DType::kI64, {});
  body->AddInput("go", DType::kBool, {});
  const ValueId y = body->AddInput("y", DType::kF32, {});
  const ValueId most = body->AddConstant("most", Tensor::Scalar(10.0f));
  const ValueId sum = body->AddNode("sum", *FindOp("Add"), {y, y});
  body->AddOutput("go", body->AddNode("go", *FindOp("Less"), {sum, most}));
  body->AddOutput("y", sum);
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {});
  const ValueId trips = graph.AddConstant("trips", Tensor::Scalar(int64_t{9}));
  graph.AddOutput("y",
                  graph.AddNode("loop", *FindOp("Loop"), {trips, kNoValue, x},
                                {{"num_carried", int64_t{1}}}));
  graph.nodes.back().bodies = {body};

  const auto folded = InferAndFold(graph, {});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  ASSERT_EQ(folded->nodes.size(), 1u);
  EXPECT_TRUE(IsNeedsBytes(InferAndFold(graph, {{DType::kF32, {}}}).status()));
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Scalar(3.0f));
  const auto outputs = Interpret(*folded, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_EQ(*(*outputs)[0].data<float>(), 12);
}

TEST(InferAndFold, PartsOfMoreThanThereIsAreRefused) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& parts :
       {std::vector<int64_t>{1, most}, std::vector<int64_t>{-1, 3}}) {
    Graph graph;
    const ValueId x = graph.AddInput("x", DType::kF32, {{2}});
    const ValueId split = graph.AddConstant("split", Tensor::Int64s(parts));
    const ValueId list =
        graph.AddNode("list", *FindOp("SplitToSequence"), {x, split});
    graph.AddOutput("y", graph.AddNode("y", *FindOp("SequenceLength"), {list}));
    EXPECT_EQ(InferAndFold(graph, {{DType::kF32, {2}}}).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(InferAndFold, RefusesMoreResultsThanAnOperatorHas) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}});
  graph.AddOutput("y", graph.AddNode("sum", *FindOp("Add"), {x, x}));
  graph.nodes[0].outputs.push_back(graph.AddValue("more"));
  graph.AddOutput("z", graph.nodes[0].outputs[1]);

  const auto folded = InferAndFold(graph, {{DType::kF32, {4}}});

  EXPECT_EQ(folded.status().code(), StatusCode::kInvalidArgument);
}

TEST(InferAndFold, KeepsAPlaceForResultsThatTheGraphLeavesOut) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{-1}});
  const ValueId k =
      graph.AddConstant("k", Tensor::Int64s(std::vector<int64_t>{2}));
  graph.AddOutput("y", graph.AddNode("top", *FindOp("TopK"), {x, k}));

  const auto folded = InferAndFold(graph, {{DType::kF32, {4}}});

  ASSERT_TRUE(folded.ok()) << folded.status().message();
  EXPECT_EQ(folded->nodes[0].outputs.size(), 2u);
}

}  // namespace
}  // namespace millrace::models::graph
