#include "models/graph/ops/broadcast.h"

#include <algorithm>

namespace millrace::models::graph {

Shape BroadcastStrides(const Shape& shape, const Shape& out) {
  const Shape own = shape.Strides();
  const int skipped = out.rank() - shape.rank();
  Shape strides = out;
  for (int i = 0; i < out.rank(); ++i) {
    const int axis = i - skipped;
    strides[i] = axis < 0 || shape[axis] == 1 ? 0 : own[axis];
  }
  return strides;
}

BroadcastWalk::BroadcastWalk(const Shape& out,
                             std::initializer_list<Shape> operands) {
  std::array<Shape, kMaxBroadcast> strides;
  CHECK(operands.size() <= strides.size(), "at most four operands");
  std::transform(operands.begin(), operands.end(), strides.begin(),
                 [&](const Shape& s) { return BroadcastStrides(s, out); });
  Build(out, {strides.data(), operands.size()});
}

BroadcastWalk BroadcastWalk::WithStrides(const Shape& out,
                                         std::span<const Shape> strides) {
  BroadcastWalk walk;
  walk.Build(out, strides);
  return walk;
}

void BroadcastWalk::Build(const Shape& out, std::span<const Shape> strides) {
  num_operands_ = static_cast<int>(strides.size());
  // A dimension joins the one outside of it when every operand goes on there
  // as if they were one; sizes of 1 vanish.
  Shape sizes;
  std::array<Shape, kMaxBroadcast> merged;
  for (int axis = 0; axis < out.rank(); ++axis) {
    if (out[axis] == 1) continue;
    const int last = sizes.rank() - 1;
    bool joins = last >= 0;
    for (int k = 0; k < num_operands_ && joins; ++k) {
      joins = merged[k][last] == strides[k][axis] * out[axis];
    }
    if (joins) {
      sizes[last] *= out[axis];
      for (int k = 0; k < num_operands_; ++k) {
        merged[k][last] = strides[k][axis];
      }
    } else {
      sizes.Append(out[axis]);
      for (int k = 0; k < num_operands_; ++k) {
        merged[k].Append(strides[k][axis]);
      }
    }
  }
  if (sizes.rank() > 0) {
    const int inner = sizes.rank() - 1;
    length_ = sizes[inner];
    for (int k = 0; k < num_operands_; ++k) {
      step_[k] = merged[k][inner];
      merged[k].Erase(inner);
    }
    sizes.Erase(inner);
  }
  outer_ = sizes;
  strides_ = merged;
  num_rows_ = length_ == 0 ? 0 : outer_.num_elements();
}

BroadcastRow BroadcastWalk::Row(int64_t index) const {
  BroadcastRow row{.length = length_, .out = index * length_, .step = step_};
  for (int axis = outer_.rank() - 1; axis >= 0; --axis) {
    const int64_t at = index % outer_[axis];
    index /= outer_[axis];
    for (int k = 0; k < num_operands_; ++k) {
      row.at[k] += at * strides_[k][axis];
    }
  }
  return row;
}

}  // namespace millrace::models::graph
