#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;
using Texts = std::vector<std::string>;

auto Near(std::vector<float> want) {
  return Pointwise(FloatNear(1e-5f), std::move(want));
}

// Sums of what came before: h' = x + h.
const Attrs kSum = {{"activations", Texts{"Affine"}}};

TEST(Rnn, CarriesTheStateFromStepToStep) {
  const auto y = RunOp(
      "RNN",
      Operands(F({3, 1, 1}, {1, 2, 3}), F({1, 1, 1}, {1}), F({1, 1, 1}, {1}),
               F({1, 2}, {0.25f, 0.25f}), std::nullopt, F({1, 1, 1}, {10})),
      kSum, 2);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{3, 1, 1, 1}));
  EXPECT_THAT(Floats((*y)[0]), Near({11.5f, 14, 17.5f}));
  EXPECT_THAT(Floats((*y)[1]), Near({17.5f}));
}

TEST(Rnn, BothDirectionsEndAtEachRowsLength) {
  Attrs attrs = {{"activations", Texts{"Affine", "Affine"}},
                 {"direction", std::string("bidirectional")},
                 {"layout", int64_t{1}}};
  const auto y =
      RunOp("RNN",
            Operands(F({2, 3, 1}, {1, 2, 3, 4, 5, 6}), F({2, 1, 1}, {1, 1}),
                     F({2, 1, 1}, {1, 1}), std::nullopt, I32({2}, {3, 2})),
            attrs, 2);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 3, 2, 1}));
  EXPECT_THAT(Floats((*y)[0]), Near({1, 6, 3, 5, 6, 3, 4, 9, 9, 5, 0, 0}));
  EXPECT_THAT(Floats((*y)[1]), Near({6, 6, 9, 9}));
}

TEST(Rnn, RefusesLengthsBeyondTheSequence) {
  const auto y =
      RunOp("RNN", Operands(F({1, 1, 1}, {1}), F({1, 1, 1}, {1}),
                            F({1, 1, 1}, {1}), std::nullopt, I32({1}, {2})));
  EXPECT_EQ(y.status().code(), StatusCode::kOutOfRange);
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Gru, ResetsTheStateBeforeOrAfterItsProduct) {
  // Gates z, r, h of one unit, two steps, weights w and r, biases b.
  const float x = 0.5f;
  const float w[] = {0.3f, -0.2f, 0.7f};
  const float r[] = {0.4f, 0.6f, -0.5f};
  const float rb = 0.1f;  // of the candidate's product
  for (const bool after : {false, true}) {
    const auto y =
        RunOp("GRU",
              Operands(F({1, 1, 1}, {x}), F({1, 3, 1}, {w[0], w[1], w[2]}),
                       F({1, 3, 1}, {r[0], r[1], r[2]}),
                       F({1, 6}, {0, 0, 0, 0, 0, rb}), std::nullopt,
                       F({1, 1, 1}, {0.8f})),
              {{"linear_before_reset", int64_t{after}}}, 2);
    ASSERT_TRUE(y.ok()) << y.status().message();
    const float h = 0.8f;
    const float z = Sigmoid(w[0] * x + r[0] * h);
    const float reset = Sigmoid(w[1] * x + r[1] * h);
    const float part = after ? reset * (r[2] * h + rb) : r[2] * reset * h + rb;
    const float want = (1 - z) * std::tanh(w[2] * x + part) + z * h;
    EXPECT_THAT(Floats((*y)[1]), Near({want}));
  }
}

TEST(Lstm, KnowsGatesPeepholesAndBothStates) {
  const float x = 0.5f, h = 0.2f, c = -0.4f;
  const float w[] = {0.1f, 0.2f, 0.3f, 0.4f};  // i, o, f, c
  const float r[] = {0.5f, -0.6f, 0.7f, -0.8f};
  const float p[] = {0.9f, -1.0f, 1.1f};  // i, o, f
  const auto y =
      RunOp("LSTM",
            Operands(F({1, 1, 1}, {x}), F({1, 4, 1}, {w[0], w[1], w[2], w[3]}),
                     F({1, 4, 1}, {r[0], r[1], r[2], r[3]}), std::nullopt,
                     std::nullopt, F({1, 1, 1}, {h}), F({1, 1, 1}, {c}),
                     F({1, 3}, {p[0], p[1], p[2]})),
            {}, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  const float in = Sigmoid(w[0] * x + r[0] * h + p[0] * c);
  const float forget = Sigmoid(w[2] * x + r[2] * h + p[2] * c);
  const float cell = forget * c + in * std::tanh(w[3] * x + r[3] * h);
  const float out = Sigmoid(w[1] * x + r[1] * h + p[1] * cell);
  EXPECT_THAT(Floats((*y)[1]), Near({out * std::tanh(cell)}));
  EXPECT_THAT(Floats((*y)[2]), Near({cell}));
}

TEST(Lstm, CoupledGatesForgetWhatTheyDoNotTakeIn) {
  const auto y = RunOp("LSTM",
                       Operands(F({1, 1, 1}, {0}), F({1, 4, 1}, {0, 0, 9, 0}),
                                F({1, 4, 1}, {0, 0, 9, 0}), std::nullopt,
                                std::nullopt, std::nullopt, F({1, 1, 1}, {4})),
                       {{"input_forget", int64_t{1}}}, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[2]), Near({2}));
}

}  // namespace
}  // namespace millrace::models::graph
