// Resize, decided: for each axis, which elements of the operand make an
// element of the result, and with what weights. Interpolation is separable.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

// Element o of the result is the sum of weight[o * taps + i] times element
// index[o * taps + i], or the extrapolation value where outside[o].
struct ResizeAxis {
  int axis = 0;
  int64_t in = 0;
  int64_t out = 0;
  int64_t taps = 1;
  std::vector<int64_t> index;
  std::vector<double> weight;
  std::vector<bool> outside;
};

struct ResizePlan {
  Shape out;
  std::vector<double> scales;  // of each dimension
  std::vector<double> roi;     // begins, then ends, of each dimension
};

// Reads sizes, scales and attributes; asks for bytes where it needs them.
StatusOr<ResizePlan> PlanResize(const Call& call);
// The axes that change, outermost first.
StatusOr<std::vector<ResizeAxis>> ResizeAxes(const Call& call,
                                             const ResizePlan& plan);

}  // namespace millrace::models::graph
