// Reductions and softmax along any axis, planned: the plain function, which
// adds in double, is the oracle.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

// Rows, columns, both sides; around vectors, chains of 64 rows and parts of 256
// columns.
TEST(PlanReduce, OfNeighbouringAxesRunsOnTheDenseKernels) {
  struct Case {
    Shape x;
    Ints axes;
    std::string sizes;
  };
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceL2", "ReduceSumSquare"}) {
    for (const Case& c :
         std::vector<Case>{{{3, 5, 70}, {2}, "15 x 70 x 1"},
                           {{3, 5, 70}, {-1, 1}, "3 x 350 x 1"},
                           {{2, 4200}, {1}, "2 x 4200 x 1"},
                           {{67, 70}, {0}, "1 x 67 x 70"},
                           {{2, 130, 1, 300}, {1, 2}, "2 x 130 x 300"},
                           {{2, 3, 5, 7}, {1}, "2 x 3 x 35"},
                           {{3, 4}, {}, "1 x 12 x 1"}}) {
      for (const int64_t keeps : {0, 1}) {
        GraphMaker m;
        std::vector<ValueId> inputs = {m.Input(c.x)};
        if (!c.axes.empty()) inputs.push_back(m.Ints(c.axes));
        m.graph.AddOutput("y", m.Node(op, inputs, {{"keepdims", keeps}}));
        const std::string plan = m.ExpectSame();
        EXPECT_EQ(plan.find(op + (" " + c.sizes)), 0u) << plan;
      }
    }
  }
}

TEST(PlanReduce, AxesApartAreLeftToThePlainFunction) {
  GraphMaker m;
  const ValueId x = m.Input({3, 4, 5});
  m.graph.AddOutput("y", m.Node("ReduceSum", {x, m.Ints({0, 2})}));
  EXPECT_NE(m.ExpectSame().find("FP32"), std::string::npos);
}

TEST(PlanReduce, ExtremesKeepANaN) {
  for (const char* op : {"ReduceMax", "ReduceMin"}) {
    for (const int64_t axis : {0, 1}) {
      GraphMaker m;
      const ValueId x = m.Input({5, 40});
      Tensor nan = Tensor::Make(DType::kF32, {5, 40});
      for (int64_t i = 0; i < 200; ++i) {
        nan.data<float>()[i] =
            i == 77 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      }
      const ValueId some =
          m.Node("Mul", {x, m.graph.AddConstant("nan", std::move(nan))});
      m.graph.AddOutput("y", m.Node(op, {some, m.Ints({axis})}));
      m.ExpectSame();
    }
  }
}

TEST(PlanSoftmax, OfAnyAxisRunsOnTheDenseKernels) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (const int64_t axis : {0, 1, 2, -1}) {
      GraphMaker m;
      const ValueId x = m.Input({6, 5, 7});
      const ValueId moved = m.Node("Transpose", {x}, {{"perm", Ints{2, 0, 1}}});
      m.graph.AddOutput("y", m.Node(op, {moved}, {{"axis", axis}}));
      const std::string plan = m.ExpectSame();
      EXPECT_EQ(plan.find("FP32 [6, 5, 7] -> FP32 [6, 5, 7]"),
                std::string::npos)
          << plan;
    }
  }
}

}  // namespace
}  // namespace millrace::models::graph
