// Which kernels the layers of a graph have on the GPU that the CPU emulates, as
// the plan says, and that a row keeps its bits there.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "tests/cuda_emulation/cuda_graph_fixture.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

// Blocks that share the pieces of a sum have room of their own in the arena.
TEST_F(CudaGraph, LongSumsOfFewRowsAreSharedByBlocks) {
  GraphMaker make;
  const Tensor wide = make.Random({900, 24});
  const ValueId x = make.graph.AddInput("x", DType::kF32, {{}, {}});
  const ValueId first =
      make.Node("MatMul", {x, make.graph.AddConstant("w", wide.Copy())});
  const ValueId square = make.Node("MatMul", {first, make.Weight({24, 900})});
  const ValueId second =
      make.Node("MatMul", {square, make.graph.AddConstant("v", wide.Copy())});
  make.graph.AddOutput("y", make.Node("Add", {first, second}));
  for (const DevicePrecision precision :
       {DevicePrecision::kTf32, DevicePrecision::kF16}) {
    const auto context = Make(make.graph, precision);
    std::vector<Tensor> inputs;
    inputs.push_back(make.Random({3, 900}));
    const auto got = context->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    // 900 factors of 4 bytes are four pieces, of 2 bytes fewer than three.
    EXPECT_EQ(Count(context->PlanText(), ", 4 pieces in blocks of their own"),
              precision == DevicePrecision::kTf32 ? 2 : 0)
        << context->PlanText();
    const auto want = (*CreateInstance(make.graph.Copy(), {}))->Run(inputs);
    ASSERT_TRUE(want.ok());
    ExpectClose((*got)[0], (*want)[0], ToleranceOf(precision));
    const auto again = context->Run(inputs);  // as a captured graph
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(SameBytes(*got, *again));
    // Each row alone.
    for (int64_t i = 0; i < 3; ++i) {
      const auto one = context->Run(Row(inputs, i));
      ASSERT_TRUE(one.ok());
      EXPECT_TRUE(SameBytes(*one, Row(*got, i))) << "row " << i;
    }
  }
}

// Groups of 16 outputs or more are products on tensor cores, others are not.
TEST_F(CudaGraph, GroupsOfManyOutputsAreMultipliedOnTensorCores) {
  GraphMaker make;
  const ValueId x =
      make.graph.AddInput("x", DType::kF32, {{}, {.size = 32}, {}, {}});
  const auto conv = [&](std::string_view op, ValueId in, const Shape& weight,
                        int64_t groups) {
    return make.Node(op, {in, make.Weight(weight)}, {{"group", groups}});
  };
  const ValueId wide = conv("Conv", x, {40, 16, 3, 3}, 2);
  const ValueId up = conv("ConvTranspose", wide, {40, 17, 2, 2}, 2);
  const ValueId depthwise = conv("Conv", up, {34, 1, 2, 2}, 34);
  make.graph.AddOutput("y", depthwise);
  std::vector<Tensor> inputs;
  inputs.push_back(make.Random({3, 32, 6, 7}));
  const auto want = (*CreateInstance(make.graph.Copy(), {}))->Run(inputs);
  ASSERT_TRUE(want.ok());
  for (const DevicePrecision precision :
       {DevicePrecision::kF32, DevicePrecision::kTf32, DevicePrecision::kF16,
        DevicePrecision::kBf16}) {
    const auto context = Make(make.graph, precision);
    const auto got = context->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ExpectClose((*got)[0], (*want)[0], ToleranceOf(precision));
    const std::string rounded =
        precision == DevicePrecision::kF32
            ? ""
            : " " + std::string(DevicePrecisionName(precision));
    EXPECT_EQ(Count(context->PlanText(), ", 2 groups" + rounded), 2)
        << context->PlanText();
    EXPECT_EQ(Count(context->PlanText(), ", 34 groups" + rounded),
              rounded.empty() ? 1 : 0);
    for (int64_t i = 0; i < 3; ++i) {
      const auto one = context->Run(Row(inputs, i));
      ASSERT_TRUE(one.ok());
      EXPECT_TRUE(SameBytes(*one, Row(*got, i))) << "image " << i;
    }
  }
}

}  // namespace
}  // namespace millrace::models::graph
