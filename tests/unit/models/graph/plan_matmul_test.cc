// Products of two values that only a run knows, planned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "tests/support/vector_isa.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

// The plan's results, one thread and two, against sums in double.
// a [batch, m, k], b [batch, k, n] as they are multiplied.
void ExpectProducts(GraphMaker& m, const Tensor& a, const Tensor& b,
                    int64_t batch, int64_t rows, int64_t k, int64_t n) {
  const int last_cpu = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  for (const config::CpuSet& cpus : {config::CpuSet{}, {0, last_cpu}}) {
    InstanceOptions options;
    options.cpus = cpus;
    auto planned = CreateInstance(m.graph.Copy(), options);
    ASSERT_TRUE(planned.ok());
    const auto got = (*planned)->Run(m.Inputs());
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_NE((*planned)->PlanText().find("MatMul " + std::to_string(batch)),
              std::string::npos)
        << (*planned)->PlanText();
    const float* y = (*got)[0].data<float>();
    for (int64_t i = 0; i < batch * rows * n; ++i) {
      const int64_t at = i / (rows * n);
      const int64_t row = i / n % rows;
      double want = 0;
      double sizes = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double x = a.data<float>()[(at * rows + row) * k + p];
        const double w = b.data<float>()[(at * k + p) * n + i % n];
        want += x * w;
        sizes += std::abs(x * w);
      }
      // Each of k steps rounds once: by eps / 2 of a sum that is at most
      // `sizes`.
      ASSERT_NEAR(y[i], want, 0.5 * 0x1p-23 * double(k) * sizes)
          << batch << " of " << rows << " x " << k << " x " << n << " at " << i;
    }
  }
}

// Around register tiles, panels and blocks of k of every table; enough matrices
// for each thread, and too few.
TEST(PlanMatMul, AgreesWithSumsInDouble) {
  for (const int64_t batch : {2, 9}) {
    for (const int64_t rows : {1, 5, 49}) {
      for (const int64_t n : {1, 17, 33, 64}) {
        for (const int64_t k : {1, 31, 800}) {
          GraphMaker m;
          const ValueId a = m.Input({batch, rows, k});
          const ValueId b = m.Input({batch, k, n});
          m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
          ExpectProducts(m, m.Inputs()[0], m.Inputs()[1], batch, rows, k, n);
        }
      }
    }
  }
}

// Members that share the panels of one product, or the rows of many.
TEST(PlanMatMul, SameBitsOnEveryTableAndForEveryTeam) {
  const int last_cpu = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  for (const int64_t batch : {1, 3}) {
    GraphMaker m;
    const ValueId a = m.Input({batch, 29, 900});
    const ValueId b = m.Input({batch, 900, 70});
    m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
    std::vector<Tensor> want;
    for (const char* isa : {"scalar", kVectorIsa, "auto"}) {
      for (const config::CpuSet& cpus : {config::CpuSet{}, {0, last_cpu}}) {
        InstanceOptions options;
        options.cpus = cpus;
        options.isa = isa;
        auto context = CreateInstance(m.graph.Copy(), options);
        if (!context.ok()) continue;  // a table that this machine lacks
        auto got = (*context)->Run(m.Inputs());
        ASSERT_TRUE(got.ok()) << got.status().message();
        if (want.empty()) {
          want = std::move(*got);
          continue;
        }
        EXPECT_EQ(std::memcmp((*got)[0].bytes(), want[0].bytes(),
                              static_cast<size_t>(want[0].num_bytes())),
                  0)
            << batch << " " << isa;
      }
    }
  }
}

// Heads inside rows of tokens, keys as they lie, the result heads inside again.
TEST(PlanMatMul, ReadsAndWritesHeadsInPlace) {
  GraphMaker m;
  const ValueId q = m.Input({2, 21, 3, 8});
  const ValueId k = m.Input({2, 13, 3, 8});
  const ValueId v = m.Input({2, 13, 3, 8});
  const auto moved = [&](ValueId x, Ints perm) {
    return m.Node("Transpose", {x}, {{"perm", std::move(perm)}});
  };
  const ValueId s =
      m.Node("MatMul", {moved(q, {0, 2, 1, 3}), moved(k, {0, 2, 3, 1})});
  // No softmax, so that it is not attention.
  const ValueId p = m.Node("Tanh", {s});
  const ValueId y = m.Node("MatMul", {p, moved(v, {0, 2, 1, 3})});
  m.graph.AddOutput("y", moved(y, {0, 2, 1, 3}));
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(plan.find("Transpose"), std::string::npos) << plan;
  EXPECT_NE(plan.find("MatMul 6 of 21 x 8 x 13 tanh"), std::string::npos)
      << plan;
}

TEST(PlanMatMul, MovesAnOperandWhoseRowsAreApart) {
  GraphMaker m;
  const ValueId a = m.Input({2, 8, 21});
  const ValueId b = m.Input({13, 2, 8, 3});
  const ValueId left = m.Node("Transpose", {a}, {{"perm", Ints{0, 2, 1}}});
  const ValueId right = m.Node("Transpose", {b}, {{"perm", Ints{3, 1, 2, 0}}});
  m.graph.AddOutput("y", m.Node("MatMul", {left, right}));
  m.ExpectSame();
}

TEST(PlanMatMul, BroadcastsStacks) {
  for (const bool left : {false, true}) {
    GraphMaker m;
    const ValueId a = m.Input(left ? Shape{1, 3, 5, 8} : Shape{4, 3, 5, 8});
    const ValueId b = m.Input(left ? Shape{4, 1, 8, 6} : Shape{3, 8, 6});
    m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
    m.ExpectSame();
  }
}

TEST(PlanMatMul, OneMatrixForManyIsATallProduct) {
  GraphMaker m;
  const ValueId a = m.Input({4, 3, 5, 8});
  const ValueId b = m.Input({8, 6});
  m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find("MatMul 1 of 60 x 8 x 6"), std::string::npos) << plan;
}

TEST(PlanMatMul, TakesAlongWhatIsAdded) {
  GraphMaker m;
  const ValueId a = m.Input({2, 3, 5, 8});
  const ValueId b = m.Input({2, 3, 8, 6});
  const ValueId bias = m.Input({2, 3, 5, 6});
  ValueId y = m.Node("Add", {m.Node("MatMul", {a, b}), bias});
  y = m.Node("Add", {m.Node("Relu", {y}), m.Weight({6})});
  m.graph.AddOutput("y", y);
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find("x 6 +residual relu"), std::string::npos) << plan;
}

// A residual of a product that is written with its axes moved.
TEST(PlanMatMul, AddsWhereItIsWritten) {
  GraphMaker m;
  const ValueId a = m.Input({2, 3, 5, 8});
  const ValueId b = m.Input({2, 3, 8, 6});
  const ValueId moved = m.Node("Transpose", {m.Node("MatMul", {a, b})},
                               {{"perm", Ints{0, 2, 1, 3}}});
  const ValueId rows = m.Node("Reshape", {moved, m.Ints({2, 5, 18})});
  const ValueId wide = m.Node("MatMul", {rows, m.Weight({18, 18})});
  m.graph.AddOutput("y", wide);
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(plan.find("Transpose"), std::string::npos) << plan;
}

// A layer adds its bias before it multiplies by a gate: what is added behind
// one is no bias.
TEST(PlanMatMul, WhatIsAddedBehindAGateIsNoBias) {
  for (const bool has_bias : {false, true}) {
    GraphMaker m;
    ValueId y = m.Node("MatMul", {m.Input({5, 16}), m.Weight({16, 24})});
    if (has_bias) y = m.Node("Add", {y, m.Weight({24})});
    y = m.Node("Mul", {y, m.Input({5, 24})});
    m.graph.AddOutput("y", m.Node("Add", {y, m.Weight({24})}));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("*gate"), plan.npos) << plan;
  }
}

TEST(PlanMatMul, EmptySumsAreZero) {
  GraphMaker m;
  const ValueId a = m.Input({2, 3, 0});
  const ValueId b = m.Input({2, 0, 4});
  m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
  m.ExpectSame();
}

}  // namespace
}  // namespace millrace::models::graph
