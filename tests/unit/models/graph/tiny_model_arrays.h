// What PyTorch gave for the tiny models of tests/data/graph, and how near a
// result must be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/files/npz.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

inline constexpr char kFolder[] = "tests/data/graph";
// A few layers of f32 sums in another order than PyTorch's: 1e-5 of the largest
// value would do, 1e-4 is what is promised.
inline constexpr double kTolerance = 1e-4;

// Of the types that tiny models have.
inline double At(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return tensor.data<float>()[i];
    case DType::kI64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    case DType::kBool:
      return tensor.data<bool>()[i] ? 1 : 0;
    default:
      ADD_FAILURE() << "a type that no tiny model has";
      return 0;
  }
}

// No element differs by more than `tolerance` of the greatest one.
inline void ExpectClose(const Tensor& got, const Tensor& want,
                        double tolerance = kTolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  double error = 0;
  double size = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double difference = std::abs(At(got, i) - At(want, i));
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    size = std::max(size, std::abs(At(want, i)));
  }
  EXPECT_LE(error, tolerance * size);
}

struct Arrays {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

// Those of an .npz file: in0, in1, ... and out0, out1, ...
inline Arrays ReadArrays(const std::string& path) {
  Arrays arrays;
  auto all = ReadNpz(path);
  EXPECT_TRUE(all.ok()) << all.status().ToString();
  if (!all.ok()) return arrays;
  for (NamedTensor& array : *all) {
    (array.name.starts_with("in") ? arrays.inputs : arrays.outputs)
        .push_back(std::move(array.tensor));
  }
  return arrays;
}

}  // namespace millrace::models::graph
