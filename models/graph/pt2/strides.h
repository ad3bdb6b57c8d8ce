// Whether PyTorch's tensors share memory: it decides what a later change in
// place is seen by.
#pragma once

#include "models/graph/pt2/program.h"

namespace millrace::models::graph::pt2 {

// Whether memory laid out as `from` can be read as `to`, of the same elements
// in the same order, by strides alone: reshape then gives a view.
bool CanBeViewed(const TensorMeta& from, const TensorMeta& to);
bool SameStrides(const TensorMeta& a, const TensorMeta& b);
// Row-major without gaps.
bool IsContiguous(const TensorMeta& meta);

}  // namespace millrace::models::graph::pt2
