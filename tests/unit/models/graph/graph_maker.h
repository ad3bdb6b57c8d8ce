// Graphs with random weights and inputs, run by plan and by interpreter: the
// same results but for rounding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

// How often a plan's text has the part.
inline int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class GraphMaker {
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
      InstanceOptions options;
      options.cpus = cpus;
      auto planned = CreateInstance(graph.Copy(), options);
      options.interpret = true;
      auto interpreted = CreateInstance(graph.Copy(), options);
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

  const std::vector<Tensor>& Inputs() const { return inputs_; }

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

}  // namespace millrace::models::graph
