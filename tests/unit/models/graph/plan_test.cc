// Plans against the interpreter: the same graph, the same inputs, and results
// that differ by rounding alone.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "models/graph/executor.h"
#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

class Maker {
 public:
  Tensor Random(const Shape& shape) {
    Tensor tensor = Tensor::Make(DType::kF32, shape);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      tensor.data<float>()[i] = normal_(random_);
    }
    return tensor;
  }
  ValueId Input(const Shape& shape) {
    inputs_.push_back(Random(shape));
    return graph.AddInput(
        "x" + std::to_string(inputs_.size()), DType::kF32,
        std::vector<PortDim>(static_cast<size_t>(shape.rank())));
  }
  ValueId Weight(const Shape& shape) {
    return graph.AddConstant("w", Random(shape));
  }
  ValueId Ints(std::vector<int64_t> values) {
    return graph.AddConstant("ints", Tensor::Int64s(values));
  }
  ValueId Number(float value) {
    return graph.AddConstant("number", Tensor::Scalar(value));
  }
  ValueId Node(std::string_view op, std::vector<ValueId> inputs,
               Attrs attrs = {}) {
    return graph.AddNode(op, *FindOp(op), std::move(inputs), std::move(attrs));
  }

  // Runs the graph both ways; returns the text of the plan.
  std::string ExpectSame(double tolerance = 2e-5) {
    std::string text;
    const int last_cpu = std::thread::hardware_concurrency() > 1 ? 1 : 0;
    for (const config::CpuSet& cpus : {config::CpuSet{}, {0, last_cpu}}) {
      ExecutorOptions options;
      options.cpus = cpus;
      auto planned = Executor::Create(graph.Copy(), options);
      options.interpret = true;
      auto interpreted = Executor::Create(graph.Copy(), options);
      EXPECT_TRUE(planned.ok() && interpreted.ok());
      const auto got = (*planned)->Run(inputs_);
      const auto want = (*interpreted)->Run(inputs_);
      EXPECT_TRUE(got.ok()) << got.status().message();
      EXPECT_TRUE(want.ok()) << want.status().message();
      if (!got.ok() || !want.ok()) return "";
      for (size_t i = 0; i < want->size(); ++i) {
        Compare((*got)[i], (*want)[i], tolerance);
      }
      text = (*planned)->PlanText();
      EXPECT_NE(text, "") << "the graph was interpreted";
    }
    return text;
  }

  Graph graph;

 private:
  static void Compare(const Tensor& got, const Tensor& want, double tolerance) {
    ASSERT_EQ(got.shape(), want.shape());
    ASSERT_EQ(got.dtype(), want.dtype());
    double largest = 0;
    double worst = 0;
    for (int64_t i = 0; i < want.num_elements(); ++i) {
      const double w = want.data<float>()[i];
      const double g = got.data<float>()[i];
      if (std::isnan(w) && std::isnan(g)) continue;
      largest = std::max(largest, std::abs(w));
      const double error = std::abs(g - w);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    EXPECT_LE(worst, tolerance * std::max(largest, 1e-3));
  }

  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
  std::vector<Tensor> inputs_;
};

int NumLines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Plan, LinearTakesBiasActivationAndResidualWithIt) {
  Maker m;
  const ValueId x = m.Input({3, 5, 24});
  const ValueId residual = m.Input({3, 5, 40});
  ValueId y = m.Node("MatMul", {x, m.Weight({24, 40})});
  y = m.Node("Add", {m.Weight({40}), y});
  y = m.Node("Gelu", {y});
  m.graph.AddOutput("y", m.Node("Add", {y, residual}));
  EXPECT_EQ(NumLines(m.ExpectSame()), 1);
}

TEST(Plan, GemmWithATransposedWeightIsALinearLayer) {
  Maker m;
  const ValueId x = m.Input({7, 33});
  const ValueId y = m.Node("Gemm", {x, m.Weight({19, 33}), m.Weight({19})},
                           {{"transB", int64_t{1}}});
  m.graph.AddOutput("y", m.Node("Relu", {y}));
  EXPECT_EQ(NumLines(m.ExpectSame()), 1);
}

TEST(Plan, ALayerReadTwiceIsNotMergedAway) {
  Maker m;
  const ValueId x = m.Input({4, 8});
  const ValueId y = m.Node("MatMul", {x, m.Weight({8, 8})});
  m.graph.AddOutput("y", m.Node("Relu", {y}));
  m.graph.AddOutput("z", m.Node("Sigmoid", {y}));
  m.ExpectSame();
}

}  // namespace
}  // namespace millrace::models::graph
