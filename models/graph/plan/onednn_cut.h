// A layer cut into calls of oneDNN, which the members of a team share: a
// product into tiles of rows, a convolution into bands of rows of each image. A
// band depends on the image alone; tiles of all heights give a row the same
// bits (onednn_layers.h), so that their heights may depend on the team.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/cpu/onednn/onednn.h"
#include "models/graph/ir.h"
#include "models/graph/plan/lower.h"

namespace millrace::models::graph {

// What one call computes: values of x from x_at on, of y from y_at on.
struct OneDnnCall {
  const onednn::Layer* layer;
  int64_t x_at;
  int64_t x_count;
  int64_t y_at;
  int64_t y_count;
};

// A layer cut into calls.
struct OneDnnCalls {
  onednn::LayerSizes sizes;  // of the layer: of one image, of any rows
  std::vector<OneDnnCall> parts;
  double macs = 0;

  const onednn::Layer& first() const { return *parts.front().layer; }
};

// Nothing where oneDNN does not serve the layer. `sizes` say its types and what
// stands behind the sum; the node says the rest.
std::optional<OneDnnCalls> CutForOneDnn(const Node& node,
                                        const LowerContext& context,
                                        onednn::LayerSizes sizes);

}  // namespace millrace::models::graph
