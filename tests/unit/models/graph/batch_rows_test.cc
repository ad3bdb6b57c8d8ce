// Batches computed a row at a time: the bits of whole batches, and only where
// rows are independent.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

// A graph of one input [n, 3, 20, 20].
struct Batch {
  GraphMaker m;
  ValueId x;

  Batch() {
    const int32_t n = m.graph.AddSymbol("n");
    m.graph.symbols[static_cast<size_t>(n)].min = 1;
    x = m.graph.AddInput(
        "x", DType::kF32,
        {{.symbol = n}, {.size = 3}, {.size = 20}, {.size = 20}});
  }
  // Few weights, so that values are what moves.
  ValueId Image(ValueId from, int64_t channels, int64_t outputs) {
    const ValueId y =
        m.Node("Conv",
               {from, m.Weight({outputs, channels, 3, 3}), m.Weight({outputs})},
               {{"pads", Ints{1, 1, 1, 1}}});
    return m.Node("Relu", {y});
  }
  void Output(ValueId y) { m.graph.AddOutput("y", y); }

  std::unique_ptr<ExecutionContext> Make(bool rows_apart,
                                         bool interpret = false) {
    InstanceOptions options;
    const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
    options.cpus = {0, last};
    options.rows_apart = rows_apart;
    options.interpret = interpret;
    auto context = CreateInstance(m.graph.Copy(), options);
    EXPECT_TRUE(context.ok()) << context.status().message();
    return *std::move(context);
  }
};

std::vector<Tensor> One(const Tensor& x) {
  std::vector<Tensor> inputs;
  inputs.push_back(x.Share());
  return inputs;
}

// The batch whole, apart and row by row gives the same bits.
std::string ExpectSameBits(Batch& batch) {
  const auto whole = batch.Make(false);
  const auto apart = batch.Make(true);
  std::string text;
  for (const int64_t n : {5, 2, 8, 1}) {
    const Tensor x = batch.m.Random({n, 3, 20, 20});
    const auto want = whole->Run(One(x));
    const auto got = apart->Run(One(x));
    EXPECT_TRUE(want.ok() && got.ok());
    EXPECT_EQ((*want)[0].shape(), (*got)[0].shape());
    const int64_t bytes = (*want)[0].num_bytes();
    EXPECT_EQ(std::memcmp((*want)[0].bytes(), (*got)[0].bytes(),
                          static_cast<size_t>(bytes)),
              0)
        << n;
    if (n > 1) text = apart->PlanText();
    for (int64_t row = 0; row < n; ++row) {
      const Tensor one =
          Tensor::Borrow(DType::kF32, {1, 3, 20, 20},
                         x.bytes() + row * 3 * 20 * 20 * 4, nullptr);
      const auto alone = apart->Run(One(one));
      EXPECT_TRUE(alone.ok());
      EXPECT_EQ(
          std::memcmp((*want)[0].bytes() + row * (bytes / n),
                      (*alone)[0].bytes(), static_cast<size_t>(bytes / n)),
          0)
          << row << " of " << n;
    }
  }
  return text;
}

TEST(BatchRows, ANetworkOfImagesGoesRowByRow) {
  Batch b;
  ValueId y = b.Image(b.x, 3, 8);
  const ValueId z = b.Image(y, 8, 8);
  y = b.m.Node("Concat", {b.m.Node("Add", {y, z}), z}, {{"axis", int64_t{1}}});
  y = b.m.Node("GlobalAveragePool", {y});
  y = b.m.Node("Flatten", {y});
  b.Output(b.m.Node("Softmax", {b.m.Node("MatMul", {y, b.m.Weight({16, 5})})}));
  EXPECT_EQ(ExpectSameBits(b).substr(0, 9), "Each row:");
}

// A tail with many weights reads them once.
TEST(BatchRows, WhereWeightsOutweighValuesTheBatchGoesOnTogether) {
  Batch b;
  ValueId y = b.Image(b.Image(b.Image(b.x, 3, 8), 8, 8), 8, 8);
  y = b.m.Node("Flatten", {b.m.Node("GlobalAveragePool", {y})});
  y = b.m.Node("Relu", {b.m.Node("MatMul", {y, b.m.Weight({8, 2000})})});
  b.Output(b.m.Node("MatMul", {y, b.m.Weight({2000, 20})}));
  const std::string text = ExpectSameBits(b);
  EXPECT_EQ(text.substr(0, 9), "Each row:");
  EXPECT_LT(text.find("Conv"), text.find("The batch:"));
  EXPECT_GT(text.find("Linear"), text.find("The batch:"));
  EXPECT_NE(text.find("The batch:"), std::string::npos);
}

// A value that skips what lies before the tail is a second one: no cut there.
TEST(BatchRows, ACutHasOneValue) {
  Batch b;
  const ValueId image = b.Image(b.Image(b.Image(b.x, 3, 8), 8, 8), 8, 8);
  ValueId y = b.m.Node("Flatten", {b.m.Node("GlobalAveragePool", {image})});
  y = b.m.Node("MatMul", {y, b.m.Weight({8, 4000})});
  y = b.m.Node("MatMul", {y, b.m.Weight({4000, 8})});
  y = b.m.Node("Reshape", {y, b.m.Ints({0, 8, 1, 1})});
  b.Output(b.m.Node("Mul", {image, y}));
  const std::string text = ExpectSameBits(b);
  EXPECT_LT(text.find("Conv"), text.find("The batch:"));
  EXPECT_GT(text.find("Linear"), text.find("The batch:"));
}

TEST(BatchRows, TokensAndAttentionGoRowByRow) {
  Batch b;
  ValueId y = b.Image(b.x, 3, 16);
  y = b.m.Node("Reshape", {y, b.m.Ints({0, 16, 400})});
  y = b.m.Node("Transpose", {y}, {{"perm", Ints{0, 2, 1}}});
  y = b.m.Node("LayerNormalization", {y, b.m.Weight({16}), b.m.Weight({16})});
  const auto heads = [&](ValueId of) {
    return b.m.Node("Transpose",
                    {b.m.Node("Reshape", {of, b.m.Ints({0, 400, 2, 8})})},
                    {{"perm", Ints{0, 2, 1, 3}}});
  };
  const ValueId k = b.m.Node("MatMul", {y, b.m.Weight({16, 16})});
  y = b.m.Node("Attention", {heads(y), heads(k), heads(k)});
  b.Output(b.m.Node("ReduceMean", {y, b.m.Ints({2})}));
  EXPECT_EQ(ExpectSameBits(b).substr(0, 9), "Each row:");
}

// What joins rows keeps them together, and gives what the interpreter gives.
void ExpectTogether(const std::function<ValueId(Batch&, ValueId)>& join) {
  Batch b;
  b.Output(join(b, b.Image(b.x, 3, 8)));
  const auto apart = b.Make(true);
  const auto interpreted = b.Make(false, true);
  const Tensor x = b.m.Random({4, 3, 20, 20});
  const auto got = apart->Run(One(x));
  const auto want = interpreted->Run(One(x));
  ASSERT_TRUE(got.ok() && want.ok());
  EXPECT_NE(apart->PlanText().substr(0, 9), "Each row:");
  ASSERT_EQ((*got)[0].shape(), (*want)[0].shape());
  for (int64_t i = 0; i < (*got)[0].num_elements(); ++i) {
    EXPECT_NEAR((*got)[0].data<float>()[i], (*want)[0].data<float>()[i], 1e-4);
  }
}

TEST(BatchRows, WhatJoinsRowsKeepsThemTogether) {
  ExpectTogether([](Batch& b, ValueId y) {
    return b.m.Node("Sub", {y, b.m.Node("ReduceMean", {y, b.m.Ints({0})})});
  });
  ExpectTogether([](Batch& b, ValueId y) {
    return b.m.Node("Softmax", {y}, {{"axis", int64_t{0}}});
  });
  ExpectTogether([](Batch& b, ValueId y) {
    return b.m.Node("Concat", {y, y}, {{"axis", int64_t{0}}});
  });
  ExpectTogether([](Batch& b, ValueId y) {
    return b.m.Node("Gather", {y, b.m.Ints({1, 0})}, {{"axis", int64_t{0}}});
  });
  // Divided by the number of rows.
  ExpectTogether([](Batch& b, ValueId y) {
    const ValueId size = b.m.Node(
        "Gather", {b.m.Node("Shape", {y}),
                   b.m.graph.AddConstant("0", Tensor::Scalar(int64_t{0}))});
    return b.m.Node("Div", {y, b.m.Node("Cast", {size}, {{"to", int64_t{1}}})});
  });
}

}  // namespace
}  // namespace millrace::models::graph
