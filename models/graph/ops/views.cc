// Views of PyTorch that ONNX has not:
//
//   SliceScatter(x, part, starts, ends, axes, steps)
//       x with the elements that Slice(x, starts, ends, axes, steps) would read
//       replaced by `part`, which has the shape of that slice or is broadcast
//       to it. Steps are positive.
//   AsStrided(x, sizes, strides, offset)
//       y[i, j, …] = flat[offset + i·strides[0] + j·strides[1] + …], flat being
//       the elements of x in row-major order.
//
// Negative indices count from the end.
#include <algorithm>
#include <cstring>
#include <limits>

#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

using Types = StatusOr<std::vector<ValueType>>;

// The part of an axis that a slice reads.
struct Range {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Of each axis of x, in order.
StatusOr<std::vector<Range>> RangesOf(const Call& call) {
  const Shape& shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const auto starts, IntsOf(call.arg(2), "starts"));
  ASSIGN_OR_RETURN(const auto ends, IntsOf(call.arg(3), "ends"));
  ASSIGN_OR_RETURN(const auto axes, IntsOf(call.arg(4), "axes"));
  ASSIGN_OR_RETURN(const auto steps, IntsOf(call.arg(5), "steps"));
  if (starts.size() != axes.size() || ends.size() != axes.size() ||
      steps.size() != axes.size()) {
    return InvalidArgument("starts, ends, axes and steps are not as many");
  }
  std::vector<Range> ranges;
  for (const int64_t size : shape) ranges.push_back({.count = size});
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(axes[i], shape.rank()));
    if (steps[i] < 1) {
      return InvalidArgument("a step is " + std::to_string(steps[i]) +
                             ", it must be 1 or more");
    }
    const int64_t size = shape[axis];
    const auto place = [&](int64_t at) {
      if (at < 0) at += size;
      return std::clamp<int64_t>(at, 0, size);
    };
    const int64_t start = place(starts[i]);
    const int64_t length = std::max<int64_t>(place(ends[i]) - start, 0);
    const int64_t count = length / steps[i] + (length % steps[i] != 0);
    ranges[static_cast<size_t>(axis)] = {start, steps[i], count};
  }
  return ranges;
}

Types InferSliceScatter(const Call& call) {
  const Arg& x = call.arg(0);
  const Arg& part = call.arg(1);
  if (!x.given || !part.given || x.dtype != part.dtype) {
    return InvalidArgument("an operand and a part of one type are needed");
  }
  ASSIGN_OR_RETURN(const auto ranges, RangesOf(call));
  Shape slice = x.shape;
  for (int i = 0; i < slice.rank(); ++i) {
    slice[i] = ranges[static_cast<size_t>(i)].count;
  }
  ASSIGN_OR_RETURN(const Shape both, Broadcast(slice, part.shape));
  if (both != slice) {
    return InvalidArgument("the part " + part.shape.ToString() +
                           " does not fit the slice " + slice.ToString());
  }
  return std::vector<ValueType>{{x.dtype, x.shape}};
}

Status RunSliceScatter(const Call& call, std::span<const Result> results,
                       const Team&) {
  ASSIGN_OR_RETURN(const auto ranges, RangesOf(call));
  const Arg& x = call.arg(0);
  const Result& y = results[0];
  const int64_t bytes = DTypeBytes(x.dtype);
  std::memcpy(y.bytes, x.bytes, static_cast<size_t>(x.num_elements() * bytes));
  Shape slice = x.shape;
  Shape strides = x.shape.Strides();
  int64_t first = 0;
  for (int i = 0; i < slice.rank(); ++i) {
    const Range& range = ranges[static_cast<size_t>(i)];
    slice[i] = range.count;
    first += range.start * strides[i];
    strides[i] *= range.step;
  }
  if (slice.num_elements() == 0) return OkStatus();
  const Shape both[] = {strides, BroadcastStrides(call.arg(1).shape, slice)};
  const BroadcastWalk walk = BroadcastWalk::WithStrides(slice, both);
  DispatchBytes(bytes, [&]<typename T>() {
    const T* part = call.arg(1).data<T>();
    T* out = y.data<T>() + first;
    walk.ForRows(0, walk.num_rows(), [&](const BroadcastRow& row) {
      for (int64_t i = 0; i < row.length; ++i) {
        out[row.at[0] + i * row.step[0]] = part[row.at[1] + i * row.step[1]];
      }
    });
  });
  return OkStatus();
}

Types InferAsStrided(const Call& call) {
  const Arg& x = call.arg(0);
  if (!x.given) return InvalidArgument("an operand is needed");
  ASSIGN_OR_RETURN(const auto sizes, IntsOf(call.arg(1), "sizes"));
  ASSIGN_OR_RETURN(const auto strides, IntsOf(call.arg(2), "strides"));
  ASSIGN_OR_RETURN(const auto offset, IntsOf(call.arg(3), "offset"));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(sizes));
  if (strides.size() != sizes.size() || offset.size() != 1) {
    return InvalidArgument("sizes and strides are not as many");
  }
  const int64_t total = x.num_elements();
  int64_t last = offset[0];
  bool inside = last >= 0 && last < total;
  for (size_t i = 0; i < sizes.size() && inside; ++i) {
    const int64_t steps = sizes[i] - 1;
    inside = strides[i] >= 0 &&
             (steps < 1 || strides[i] <= (total - 1 - last) / steps);
    if (inside && steps > 0) last += steps * strides[i];
  }
  if (!inside && shape.num_elements() > 0) {
    return InvalidArgument("sizes " + shape.ToString() +
                           " with these strides reach beyond the " +
                           std::to_string(total) + " elements there are");
  }
  return std::vector<ValueType>{{x.dtype, shape}};
}

Status RunAsStrided(const Call& call, std::span<const Result> results,
                    const Team& team) {
  ASSIGN_OR_RETURN(const auto strides, IntsOf(call.arg(2), "strides"));
  ASSIGN_OR_RETURN(const auto offset, IntsOf(call.arg(3), "offset"));
  const Result& y = results[0];
  if (y.num_elements() == 0) return OkStatus();
  const Shape both[] = {Shape(strides)};
  const BroadcastWalk walk = BroadcastWalk::WithStrides(y.shape, both);
  const auto [begin, end] = team.Share(walk.num_rows());
  DispatchBytes(DTypeBytes(y.dtype), [&]<typename T>() {
    const T* from = call.arg(0).data<T>() + offset[0];
    T* out = y.data<T>();
    walk.ForRows(begin, end, [&](const BroadcastRow& row) {
      for (int64_t i = 0; i < row.length; ++i) {
        out[row.out + i] = from[row.at[0] + i * row.step[0]];
      }
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"SliceScatter", InferSliceScatter, RunSliceScatter},
    {"AsStrided", InferAsStrided, RunAsStrided, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ViewOps() { return kOps; }

}  // namespace millrace::models::graph
