// Sliding windows of a graph's nodes as the kernels of a GPU take them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/cuda/graph_kernels.h"
#include "models/graph/fused_params.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph {

// Whether kernels, which count sizes in 32 bits, take it.
inline bool FitsInt32(int64_t size) { return size < (int64_t{1} << 31); }

// x and y are [n, spatial..., channels]. None where a size does not fit.
std::optional<cuda::GraphWindow> DeviceWindowOf(const NodeWindow& window,
                                                const Shape& x, const Shape& y);

// "2 x 9x11x3 -> 9x11x5, kernel 3x3"
std::string DeviceWindowText(const cuda::GraphWindow& window, int64_t batch,
                             int64_t channels, int64_t outputs);

}  // namespace millrace::models::graph
