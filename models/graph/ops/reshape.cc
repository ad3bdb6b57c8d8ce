// Other shapes of the same elements. A plan may give such results their
// operand's memory; by itself each is one copy.
#include <algorithm>
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> Typed(const Call& call, const Shape& shape) {
  return OutTypes{{call.arg(0).dtype, shape}};
}

StatusOr<OutTypes> InferIdentity(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  return Typed(call, call.arg(0).shape);
}

// -1 is what is left, 0 (but for allowzero) the size of the operand there.
StatusOr<OutTypes> InferReshape(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  const Arg& x = call.arg(0);
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, IntsOf(call.arg(1), "the shape"));
  const bool zero_is_zero = call.attrs().Int("allowzero", 0) != 0;
  int64_t known = 1;
  int64_t open = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && !zero_is_zero) {
      if (static_cast<int>(i) >= x.shape.rank()) {
        return InvalidArgument("there is no dimension " + std::to_string(i) +
                               " to keep in " + x.shape.ToString());
      }
      dims[i] = x.shape[static_cast<int>(i)];
    }
    if (dims[i] == -1 && open < 0) {
      open = static_cast<int64_t>(i);
    } else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known)) {
      return InvalidArgument("the new shape has a wrong size " +
                             std::to_string(dims[i]));
    }
  }
  const int64_t count = x.num_elements();
  if (open >= 0) {
    if (known == 0 || count % known != 0) {
      return InvalidArgument(std::to_string(count) +
                             " elements cannot be divided by " +
                             std::to_string(known));
    }
    dims[static_cast<size_t>(open)] = count / known;
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  if (shape.num_elements() != count) {
    return InvalidArgument(x.shape.ToString() +
                           " has not as many elements as " + shape.ToString());
  }
  return Typed(call, shape);
}

StatusOr<OutTypes> InferFlatten(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Shape& x = call.arg(0).shape;
  const int64_t axis = call.attrs().Int("axis", 1);
  if (axis < -x.rank() || axis > x.rank()) {
    return InvalidArgument("axis " + std::to_string(axis) + " for " +
                           x.ToString());
  }
  const int at = static_cast<int>(axis < 0 ? axis + x.rank() : axis);
  return Typed(call, {x.Product(0, at), x.Product(at, x.rank())});
}

StatusOr<OutTypes> InferSqueeze(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 2));
  Shape shape = call.arg(0).shape;
  std::vector<int> axes;
  if (call.arg(1).given) {
    ASSIGN_OR_RETURN(const auto given, IntsOf(call.arg(1), "axes"));
    ASSIGN_OR_RETURN(axes, AxesOf(given, shape.rank()));
  } else {
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) axes.push_back(i);
    }
  }
  std::reverse(axes.begin(), axes.end());
  for (const int axis : axes) {
    if (shape[axis] != 1) {
      return InvalidArgument("dimension " + std::to_string(axis) + " of " +
                             shape.ToString() + " is not 1");
    }
    shape.Erase(axis);
  }
  return Typed(call, shape);
}

StatusOr<OutTypes> InferUnsqueeze(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  Shape shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const auto given, IntsOf(call.arg(1), "axes"));
  if (given.size() + static_cast<size_t>(shape.rank()) > Shape::kMaxRank) {
    return InvalidArgument("a tensor has 8 dimensions at most");
  }
  ASSIGN_OR_RETURN(
      const std::vector<int> axes,
      AxesOf(given, shape.rank() + static_cast<int>(given.size())));
  for (const int axis : axes) shape.Insert(axis, 1);
  return Typed(call, shape);
}

Status RunCopy(const Call& call, std::span<const Result> results,
               const Team& team) {
  const int64_t size = DTypeBytes(results[0].dtype);
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  if (begin < end) {
    std::memcpy(results[0].bytes + begin * size,
                call.arg(0).bytes + begin * size,
                static_cast<size_t>((end - begin) * size));
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Flatten",
     InferFlatten,
     RunCopy,
     Work::kSplits,
     {.reshapes = true,
      .strings = Strings::kTakes,
      .keeps_rows = rows::FirstHasRows}},
    {"Identity",
     InferIdentity,
     RunCopy,
     Work::kSplits,
     {.strings = Strings::kTakes}},
    {"Reshape",
     InferReshape,
     RunCopy,
     Work::kSplits,
     {.reshapes = true,
      .has_shape_operand = true,
      .strings = Strings::kTakes,
      .keeps_rows = rows::FirstHasRows}},
    {"Squeeze",
     InferSqueeze,
     RunCopy,
     Work::kSplits,
     {.reshapes = true,
      .strings = Strings::kTakes,
      .keeps_rows = rows::FirstHasRows}},
    {"Unsqueeze",
     InferUnsqueeze,
     RunCopy,
     Work::kSplits,
     {.reshapes = true,
      .strings = Strings::kTakes,
      .keeps_rows = rows::FirstHasRows}},
};

}  // namespace

std::span<const OpDef> ReshapeOps() { return kOps; }

}  // namespace millrace::models::graph
