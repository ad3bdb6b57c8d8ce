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

}  // namespace
}  // namespace millrace::models::graph
