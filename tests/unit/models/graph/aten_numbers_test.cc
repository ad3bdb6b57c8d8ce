// ATen functions at numbers where a plain formula goes wrong: near 0, far out,
// infinite, not a number, between two whole numbers. The results are PyTorch's
// of the same call (2.15 on a CPU), unless the function itself says them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/models/graph/aten_program.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Pointwise;


// ---- evenly spaced numbers ----
TEST(AtenNumbers, ARangeIsCountedInDoubles) {
  const std::vector<float> y =
      One("aten.arange.start_step",
          {IntArg("start", "0"), IntArg("end", "1"), FloatArg("step", "0.01")},
          {1}, {0}, {100});
  ASSERT_EQ(y.size(), 100u);
  EXPECT_EQ(y[99], 0.99f);
}

TEST(AtenNumbers, TheEndOfARangeIsNotRoundedToItsType) {
  Program program({1});
  // BF16 has no 1001: 1000 is next to it.
  program.Node("aten.arange.default", {FloatArg("end", "1001.0")}, "b",
               {"1001"}, 13);
  program.Node("aten.to.dtype", {Self("b"), IntArg("dtype", "7")}, "y",
               {"1001"});
  const std::vector<float> y = program.Run("y", {0});
  ASSERT_EQ(y.size(), 1001u);
  EXPECT_EQ(y[255], 255);
}

}  // namespace
}  // namespace millrace::models::graph
