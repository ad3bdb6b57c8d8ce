#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

// Values of the functions at -2, 0 and 3, to six digits.
struct Row {
  const char* name;
  Attrs attrs;
  std::vector<float> want;
};

TEST(Activation, MapsEachElementByTheFormulaOfOnnx) {
  const std::vector<Row> rows = {
      {"Relu", {}, {0, 0, 3}},
      {"LeakyRelu", {{"alpha", 0.1}}, {-0.2f, 0, 3}},
      {"Elu", {{"alpha", 2.0}}, {-1.729329f, 0, 3}},
      {"Selu", {}, {-1.520167f, 0, 3.152103f}},
      {"Celu", {{"alpha", 2.0}}, {-1.264241f, 0, 3}},
      {"Gelu", {}, {-0.045500f, 0, 2.995950f}},
      {"Gelu",
       {{"approximate", std::string("tanh")}},
       {-0.045402f, 0, 2.996363f}},
      {"Sigmoid", {}, {0.119203f, 0.5f, 0.952574f}},
      {"HardSigmoid", {}, {0.1f, 0.5f, 1}},
      {"HardSwish", {}, {-0.333333f, 0, 3}},
      {"Softplus", {}, {0.126928f, 0.693147f, 3.048587f}},
      {"Softsign", {}, {-0.666667f, 0, 0.75f}},
      {"Mish", {}, {-0.252501f, 0, 2.986535f}},
      {"Swish", {}, {-0.238406f, 0, 2.857722f}},
      {"ThresholdedRelu", {{"alpha", 2.5}}, {0, 0, 3}},
      {"Shrink", {{"lambd", 2.5}, {"bias", 1.0}}, {0, 0, 2}},
      {"Tanh", {}, {-0.964028f, 0, 0.995055f}},
  };
  for (const Row& row : rows) {
    const auto y = RunOp(row.name, Operands(F({3}, {-2, 0, 3})), row.attrs);
    ASSERT_TRUE(y.ok()) << y.status().message();
    EXPECT_THAT(Floats((*y)[0]), Pointwise(FloatNear(2e-6f), row.want))
        << row.name;
  }
}

TEST(Activation, FarArgumentsDoNotOverflow) {
  for (const char* name : {"Sigmoid", "Softplus", "Swish", "Mish", "Gelu"}) {
    const auto y = RunOp(name, Operands(F({2}, {-1e4f, 1e4f})));
    ASSERT_TRUE(y.ok()) << y.status().message();
    for (const float v : Floats((*y)[0])) {
      EXPECT_TRUE(std::isfinite(v)) << name;
    }
  }
}

TEST(Activation, ReluKeepsNanAndTakesIntegers) {
  const auto y = RunOp("Relu", Operands(F({1}, {NAN})));
  EXPECT_TRUE(std::isnan((*y)[0].data<float>()[0]));
  const auto z = RunOp("Relu", Operands(I32({2}, {-5, 5})));
  EXPECT_THAT(Values<int32_t>((*z)[0]), ElementsAre(0, 5));
}

TEST(Activation, PReluHasASlopeForEachChannel) {
  const auto y = RunOp("PRelu", Operands(F({1, 2, 2}, {-1, 1, -1, 1}),
                                         F({2, 1}, {0.5f, 0.25f})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(-0.5f, 1, -0.25f, 1));
  const auto wide = RunOp("PRelu", Operands(F({2}, {1, 1}), F({1, 2}, {1, 1})));
  EXPECT_EQ(wide.status().code(), StatusCode::kInvalidArgument);
}

TEST(Activation, GluGatesOneHalfByTheOther) {
  const auto y = RunOp("Glu", Operands(F({2, 2, 1}, {1, 0, 2, 0})),
                       {{"axis", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 1, 1}));
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(0.5f, 1));
  const auto odd = RunOp("Glu", Operands(F({3}, {1, 2, 3})));
  EXPECT_EQ(odd.status().code(), StatusCode::kInvalidArgument);
}

TEST(Softmax, SumsToOneAlongAnInnerAxis) {
  const float log3 = std::log(3.0f);
  const auto y = RunOp("Softmax", Operands(F({1, 2, 2}, {0, 5, log3, 5})),
                       {{"axis", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]),
              Pointwise(FloatNear(1e-6f),
                        std::vector<float>{0.25f, 0.5f, 0.75f, 0.5f}));
}

TEST(Softmax, LargeArgumentsStayFinite) {
  const auto y = RunOp("LogSoftmax", Operands(F({2}, {1e4f, 1e4f})));
  EXPECT_THAT(
      Floats((*y)[0]),
      Pointwise(FloatNear(1e-6f), std::vector<float>{-0.693147f, -0.693147f}));
}

TEST(Softmax, ARowOfMinusInfinityIsNanAsInPyTorch) {
  const auto y = RunOp("Softmax", Operands(F({2}, {-INFINITY, -INFINITY})));
  EXPECT_TRUE(std::isnan((*y)[0].data<float>()[0]));
}

TEST(Softmax, HardmaxMarksTheFirstOfEqualMaxima) {
  const auto y = RunOp("Hardmax", Operands(F({2, 3}, {1, 3, 3, 2, 1, 0})));
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(0, 1, 0, 1, 0, 0));
}

}  // namespace
}  // namespace millrace::models::graph
