// Slice, Expand and Tile: parts and repetitions.
#include <algorithm>
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/slice.h"
#include "models/graph/ops/strided.h"

namespace millrace::models::graph {

StatusOr<SlicePart> SlicePartOf(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 5));
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const auto starts, IntsOf(call.arg(1), "starts"));
  ASSIGN_OR_RETURN(const auto ends, IntsOf(call.arg(2), "ends"));
  std::vector<int64_t> axes;
  std::vector<int64_t> steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
  }
  if (call.arg(3).given) {
    ASSIGN_OR_RETURN(axes, IntsOf(call.arg(3), "axes"));
  }
  if (call.arg(4).given) {
    ASSIGN_OR_RETURN(steps, IntsOf(call.arg(4), "steps"));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return InvalidArgument("starts, ends, axes and steps differ in length");
  }
  RETURN_IF_ERROR(AxesOf(axes, x.rank()).status());
  SlicePart part{x, x.Strides(), 0};
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(axes[i], x.rank()));
    const int64_t size = x[axis];
    const int64_t step = steps[i];
    if (step == 0) return InvalidArgument("a step is 0");
    const bool up = step > 0;
    const auto bound = [&](int64_t at) {
      if (at < 0) at = at < -size ? -1 : at + size;
      return std::clamp<int64_t>(at, up ? 0 : -1, up ? size : size - 1);
    };
    // Out of range on the low side means the first element going up.
    const int64_t start = up || starts[i] >= -size
                              ? bound(starts[i])
                              : std::min<int64_t>(0, size - 1);
    const int64_t distance =
        up ? bound(ends[i]) - start : start - bound(ends[i]);
    const uint64_t pace = up ? static_cast<uint64_t>(step)
                             : uint64_t{0} - static_cast<uint64_t>(step);
    const uint64_t count =
        distance <= 0 ? 0 : (static_cast<uint64_t>(distance) - 1) / pace + 1;
    part.shape[axis] = static_cast<int64_t>(count);
    part.first += count == 0 ? 0 : start * part.strides[axis];
    part.strides[axis] *= count <= 1 ? 1 : step;
  }
  return part;
}

namespace {

StatusOr<OutTypes> InferSlice(const Call& call) {
  ASSIGN_OR_RETURN(const SlicePart part, SlicePartOf(call));
  return OutTypes{{call.arg(0).dtype, part.shape}};
}

Status RunSlice(const Call& call, std::span<const Result> results,
                const Team& team) {
  ASSIGN_OR_RETURN(const SlicePart part, SlicePartOf(call));
  if (part.shape.num_elements() == 0) return OkStatus();
  CopyStrided(call.arg(0).bytes, part.first, part.strides, results[0],
              part.shape, team);
  return OkStatus();
}

StatusOr<OutTypes> InferExpand(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const auto dims, IntsOf(call.arg(1), "the shape"));
  ASSIGN_OR_RETURN(const Shape wanted, Shape::Checked(dims));
  ASSIGN_OR_RETURN(const Shape shape, Broadcast(call.arg(0).shape, wanted));
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunExpand(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Shape& out = results[0].shape;
  CopyStrided(call.arg(0).bytes, 0, BroadcastStrides(call.arg(0).shape, out),
              results[0], out, team);
  return OkStatus();
}

StatusOr<OutTypes> InferTile(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const auto repeats, IntsOf(call.arg(1), "repeats"));
  const Shape& x = call.arg(0).shape;
  if (repeats.size() != static_cast<size_t>(x.rank())) {
    return InvalidArgument("repeats has " + std::to_string(repeats.size()) +
                           " elements for " + x.ToString());
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (__builtin_mul_overflow(x[i], repeats[static_cast<size_t>(i)],
                               &dims.emplace_back())) {
      return InvalidArgument("the result is too large");
    }
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  return OutTypes{{call.arg(0).dtype, shape}};
}

// Innermost runs are copied as often as they are repeated.
Status RunTile(const Call& call, std::span<const Result> results,
               const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  if (out.num_elements() == 0) return OkStatus();
  const int last = x.rank() - 1;
  const int64_t size = DTypeBytes(results[0].dtype);
  const int64_t run = (last < 0 ? 1 : x[last]) * size;
  const int64_t copies = last < 0 ? 1 : out[last] / x[last];
  const auto [begin, end] = team.Share(last < 0 ? 1 : out.Product(0, last));
  for (int64_t row = begin; row < end; ++row) {
    int64_t from = 0;
    int64_t rest = row;
    int64_t stride = 1;
    for (int axis = last - 1; axis >= 0; --axis) {
      from += rest % out[axis] % x[axis] * stride;
      rest /= out[axis];
      stride *= x[axis];
    }
    for (int64_t copy = 0; copy < copies; ++copy) {
      std::memcpy(results[0].bytes + (row * copies + copy) * run,
                  call.arg(0).bytes + from * run, static_cast<size_t>(run));
    }
  }
  return OkStatus();
}

// Of a slice as large as its operand: it does not flip it.
bool StepsForward(const Call& call) {
  if (!call.arg(4).given) return true;
  const auto steps = IntsOf(call.arg(4), "steps");
  return steps.ok() && std::all_of(steps->begin(), steps->end(),
                                   [](int64_t step) { return step > 0; });
}

constexpr OpDef kOps[] = {
    {"Expand",
     InferExpand,
     RunExpand,
     Work::kSplits,
     {.has_shape_operand = true,
      .is_needless = AlwaysNeedless,
      .keeps_rows = rows::Expanded}},
    {"Slice",
     InferSlice,
     RunSlice,
     Work::kSplits,
     {.looks_up = true,
      .layout = LayoutRule::kSlice,
      .is_needless = StepsForward,
      .keeps_rows = rows::Sliced}},
    {"Tile", InferTile, RunTile, Work::kSplits, {.strings = Strings::kTakes}},
};

}  // namespace

std::span<const OpDef> SliceOps() { return kOps; }

}  // namespace millrace::models::graph
