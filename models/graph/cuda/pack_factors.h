// Weights of layers as tensor cores read them (models/cuda/graph_kernels.h,
// PackedWeights): rounded once, when they are uploaded. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/cuda/graph_kernels.h"

namespace millrace::models::graph {

// Where the weight of an output, a tap and a channel lies, in values. A linear
// layer has one tap. Outputs of a group lie at output_stride, groups at
// group_stride.
struct WeightOrder {
  int64_t outputs = 0;  // of all groups
  int64_t groups = 1;
  int64_t taps = 1;
  int64_t channels = 0;
  int64_t output_stride = 0;
  int64_t tap_stride = 0;
  int64_t channel_stride = 0;
  int64_t group_stride = 0;
  auto operator<=>(const WeightOrder&) const = default;
};

// Of one output with so many inputs, a multiple of a unit.
int64_t PackedRowBytes(cuda::GraphPrecision precision, int64_t inputs);
// `count` values side by side, to the nearest each.
void RoundFactors(cuda::GraphPrecision precision, const float* values,
                  int64_t count, std::byte* to);
// [outputs][taps * channels], each output filled with zeros.
std::vector<std::byte> PackFactors(cuda::GraphPrecision precision,
                                   const WeightOrder& order,
                                   const float* weights);

}  // namespace millrace::models::graph
