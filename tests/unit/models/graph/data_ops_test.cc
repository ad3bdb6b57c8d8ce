// Elementwise math, reductions and data movement, by hand. The conformance
// cases say much more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "models/graph/interpreter.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Floats(const Shape& shape, std::vector<float> values) {
  return Tensor::From<float>(DType::kF32, shape, values);
}
Tensor Ints(std::vector<int64_t> values) { return Tensor::Int64s(values); }

StatusOr<std::vector<Tensor>> RunOne(std::string_view op,
                                     const std::vector<Tensor>& operands,
                                     Attrs attrs = {}, int num_outputs = 1) {
  Node node;
  node.op = FindOp(op);
  node.name = "n";
  for (int i = 0; i < num_outputs; ++i) node.outputs.push_back(i);
  node.attrs = std::move(attrs);
  std::vector<const Tensor*> pointers;
  for (const Tensor& operand : operands) pointers.push_back(&operand);
  return RunNode(node, pointers);
}

template <typename... T>
std::vector<Tensor> List(T... tensors) {
  std::vector<Tensor> list;
  (list.push_back(std::move(tensors)), ...);
  return list;
}

template <typename T>
std::vector<T> Values(const StatusOr<std::vector<Tensor>>& made, size_t i = 0) {
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return {};
  const Tensor& tensor = (*made)[i];
  return {tensor.data<T>(), tensor.data<T>() + tensor.num_elements()};
}

TEST(DataOps, SliceGoesBackwards) {
  EXPECT_THAT(
      Values<float>(RunOne("Slice", List(Floats({4}, {0, 1, 2, 3}), Ints({-1}),
                                         Ints({-10}), Ints({0}), Ints({-2})))),
      ElementsAre(3, 1));
}

TEST(DataOps, ReshapeKeepsAndDivides) {
  const auto made = RunOne(
      "Reshape", List(Floats({2, 3}, {0, 1, 2, 3, 4, 5}), Ints({0, -1})));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)[0].shape(), (Shape{2, 3}));
}

TEST(DataOps, ReshapeToAnotherNumberOfElementsIsRefused) {
  const auto made =
      RunOne("Reshape", List(Floats({2, 3}, {0, 1, 2, 3, 4, 5}), Ints({4, 2})));
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("has not as many elements"));
}

TEST(DataOps, GatherRefusesAnIndexOutOfRange) {
  const auto made = RunOne("Gather", List(Floats({3}, {0, 1, 2}), Ints({3})));
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("the index 3 is outside"));
}

// Single elements and runs, by indices that count from either end; part of a
// team's rows begin amid them.
TEST(DataOps, GatherTakesElementsAndRuns) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor x = Floats({2, 3, 4}, values);
  EXPECT_THAT(Values<float>(RunOne("Gather", List(x.Share(), Ints({3, -4})),
                                   {{"axis", AttrValue(int64_t{2})}})),
              ElementsAre(3, 0, 7, 4, 11, 8, 15, 12, 19, 16, 23, 20));
  EXPECT_THAT(Values<float>(RunOne("Gather", List(x.Share(), Ints({2})),
                                   {{"axis", AttrValue(int64_t{1})}})),
              ElementsAre(8, 9, 10, 11, 20, 21, 22, 23));
}

TEST(DataOps, GatherElementsTakesOneOfEachLane) {
  const Tensor x = Floats({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto taken = [&](const Shape& shape, std::vector<int64_t> indices,
                         int64_t axis) {
    Tensor at = Tensor::Int64s(indices).Reshaped(shape);
    return RunOne("GatherElements", List(x.Share(), std::move(at)),
                  {{"axis", AttrValue(axis)}});
  };
  EXPECT_THAT(Values<float>(taken({2, 2}, {2, -3, 1, 1}, 1)),
              ElementsAre(2, 0, 4, 4));
  EXPECT_THAT(Values<float>(taken({3, 3}, {0, 1, 0, 1, 1, -2, -1, 0, 0}, 0)),
              ElementsAre(0, 4, 2, 3, 4, 2, 3, 1, 2));
  EXPECT_THAT(std::string(taken({1, 1}, {3}, 1).status().message()),
              HasSubstr("the index 3 is outside"));
}

TEST(DataOps, ReducesOuterInnerAndAllAxes) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Values<float>(RunOne("ReduceSum", List(x.Share(), Ints({0})))),
              ElementsAre(5, 7, 9));
  EXPECT_THAT(Values<float>(RunOne("ReduceMean", List(x.Share(), Ints({1})))),
              ElementsAre(2, 5));
  EXPECT_THAT(Values<float>(RunOne("ReduceMax", List(x.Share()))),
              ElementsAre(6));
}

TEST(DataOps, TopKTakesTheFirstOfEqualOnes) {
  const auto made =
      RunOne("TopK", List(Floats({4}, {1, 7, 7, 3}), Ints({3})), {}, 2);
  EXPECT_THAT(Values<float>(made), ElementsAre(7, 7, 3));
  EXPECT_THAT(Values<int64_t>(made, 1), ElementsAre(1, 2, 3));
}

// 2^53 + 3 is no double.
TEST(DataOps, ARangeOfIntegersIsCountedExactly) {
  const int64_t start = int64_t{1} << 53;
  const auto range = [](int64_t from, int64_t to, int64_t step) {
    return RunOne("Range", List(Tensor::Scalar(from), Tensor::Scalar(to),
                                Tensor::Scalar(step)));
  };
  const auto y = range(start, start + 3, 1);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(
      std::vector<int64_t>((*y)[0].data<int64_t>(),
                           (*y)[0].data<int64_t>() + (*y)[0].num_elements()),
      ElementsAre(start, start + 1, start + 2));
  EXPECT_EQ((*range(5, 0, -2))[0].num_elements(), 3);
  EXPECT_EQ((*range(5, 0, 2))[0].num_elements(), 0);
  EXPECT_EQ((*range(0, 5, -2))[0].num_elements(), 0);
  EXPECT_FALSE(range(0, 5, 0).ok());
}

TEST(DataOps, CastToAnIntegerStopsAtItsBounds) {
  EXPECT_THAT(
      Values<int8_t>(RunOne("Cast", List(Floats({3}, {300, -1.9f, -300})),
                            {{"to", AttrValue(int64_t{3})}})),
      ElementsAre(127, -1, -128));
}

TEST(DataOps, ADivisorOfZeroDoesNotTrap) {
  EXPECT_THAT(Values<int64_t>(RunOne("Mod", List(Ints({7}), Ints({0})))),
              ElementsAre(0));
}

TEST(DataOps, ATeamMakesWhatOneMemberMakes) {
  const Tensor x = Floats({2, 3, 4}, std::vector<float>(24, 1.5f));
  for (const char* op : {"Exp", "Transpose", "ReduceSum", "Identity"}) {
    Node node;
    node.op = FindOp(op);
    node.outputs = {0};
    const Arg arg{true, x.dtype(), x.shape(), x.bytes()};
    const Call call{node, std::span(&arg, 1)};
    const auto types = node.op->infer(call);
    ASSERT_TRUE(types.ok());
    const ValueType& type = (*types)[0];
    Tensor whole = Tensor::Make(type.dtype, type.shape);
    Tensor parts = Tensor::Make(type.dtype, type.shape);
    const auto run = [&](Tensor& to, Team team) {
      const Result result{type.dtype, type.shape, to.bytes()};
      EXPECT_TRUE(node.op->run(call, std::span(&result, 1), team).ok());
    };
    run(whole, Team{});
    for (int i = 0; i < 3; ++i) run(parts, Team{i, 3});
    EXPECT_EQ(std::memcmp(whole.bytes(), parts.bytes(),
                          static_cast<size_t>(whole.num_bytes())),
              0)
        << op;
  }
}

}  // namespace
}  // namespace millrace::models::graph
