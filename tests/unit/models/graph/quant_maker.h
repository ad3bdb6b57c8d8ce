// Graphs with QuantizeLinear and DequantizeLinear, run by plan and by
// interpreter: the same bytes, but for a step of their scale here and there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {

using Ints64 = std::vector<int64_t>;

class QuantMaker : public GraphMaker {
 public:
  explicit QuantMaker(DType activations = DType::kU8) : bytes_(activations) {}

  ValueId Zero(int32_t zero) {
    Tensor tensor = Tensor::Make(bytes_, {});
    if (bytes_ == DType::kU8) {
      *tensor.data<uint8_t>() = static_cast<uint8_t>(zero);
    } else {
      *tensor.data<int8_t>() = static_cast<int8_t>(zero - 128);
    }
    return graph.AddConstant("zero", std::move(tensor));
  }
  ValueId Quantised(ValueId x, float scale, int32_t zero) {
    return Node("QuantizeLinear", {x, Number(scale), Zero(zero)});
  }
  // Quantised and back.
  ValueId Rounded(ValueId x, float scale, int32_t zero) {
    return Node("DequantizeLinear",
                {Quantised(x, scale, zero), Number(scale), Zero(zero)});
  }
  // A weight in bytes with a scale for each index of the axis.
  ValueId Bytes(const Shape& shape, int axis) {
    const Tensor random = Random(shape);
    Tensor bytes = Tensor::Make(DType::kI8, shape);
    for (int64_t i = 0; i < bytes.num_elements(); ++i) {
      bytes.data<int8_t>()[i] = static_cast<int8_t>(
          std::clamp(random.data<float>()[i] * 50, -128.0f, 127.0f));
    }
    Tensor scales = Tensor::Make(DType::kF32, {shape[axis]});
    Tensor zeros = Tensor::Make(DType::kI8, {shape[axis]});
    for (int64_t i = 0; i < shape[axis]; ++i) {
      scales.data<float>()[i] = 0.002f + 0.0001f * static_cast<float>(i % 7);
      zeros.data<int8_t>()[i] = 0;
    }
    return Node("DequantizeLinear",
                {graph.AddConstant("w", std::move(bytes)),
                 graph.AddConstant("s", std::move(scales)),
                 graph.AddConstant("z", std::move(zeros))},
                {{"axis", int64_t{axis}}});
  }

  // Runs both ways on every table; results that were quantised by `step` last
  // may differ by it in a few places, and by nothing more.
  std::string ExpectSameSteps(ValueId y, double step) {
    graph.AddOutput("y", y);
    std::string text;
    for (const char* isa :
         {"scalar", "avx2", "avx512", "neon", "neondot", "neoni8mm"}) {
      InstanceOptions options;
      options.isa = isa;
      auto planned = CreateInstance(graph.Copy(), options);
      if (!planned.ok()) continue;  // not on this machine
      options.interpret = true;
      auto interpreted = CreateInstance(graph.Copy(), options);
      const auto got = (*planned)->Run(Inputs());
      const auto want = (*interpreted)->Run(Inputs());
      EXPECT_TRUE(got.ok()) << got.status().message();
      EXPECT_TRUE(want.ok()) << want.status().message();
      if (!got.ok() || !want.ok()) return "";
      int64_t off = 0;
      bool varies = false;
      const int64_t n = (*want)[0].num_elements();
      for (int64_t i = 0; i < n; ++i) {
        const float g = (*got)[0].data<float>()[i];
        const float w = (*want)[0].data<float>()[i];
        EXPECT_LE(std::abs(g - w), step * 1.001) << isa << " at " << i;
        off += std::abs(g - w) > step * 0.5;
        varies = varies || w != (*want)[0].data<float>()[0];
      }
      EXPECT_LE(off, 1 + n / 200) << isa;
      EXPECT_TRUE(varies) << "a constant result shows nothing";
      text = (*planned)->PlanText();
    }
    return text;
  }

 private:
  const DType bytes_;
};

}  // namespace millrace::models::graph
