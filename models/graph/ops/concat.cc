// Concat and Split along one axis: for each index before the axis, one run of
// bytes for each part.
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> InferConcat(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, call.args.size(), call.args.size()));
  RETURN_IF_ERROR(CheckOperands(call, 1, call.args.size()));
  Shape shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), shape.rank()));
  int64_t total = 0;
  for (const Arg& arg : call.args) {
    RETURN_IF_ERROR(CheckSameType(call.arg(0), arg));
    Shape other = arg.shape;
    if (other.rank() == shape.rank()) {
      total += other[axis];
      other[axis] = shape[axis];
    }
    if (other != shape) {
      return InvalidArgument(
          "operands are " + shape.ToString() + " and " + arg.shape.ToString() +
          ": they may differ along axis " + std::to_string(axis) + " only");
    }
  }
  shape[axis] = total;
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunConcat(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Shape& out = results[0].shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), out.rank()));
  const int64_t inner =
      out.Product(axis + 1, out.rank()) * DTypeBytes(results[0].dtype);
  const int64_t row = out[axis] * inner;
  const auto [begin, end] = team.Share(out.Product(0, axis));
  int64_t at = 0;
  for (const Arg& arg : call.args) {
    const int64_t run = arg.shape[axis] * inner;
    for (int64_t i = run > 0 ? begin : end; i < end; ++i) {
      std::memcpy(results[0].bytes + i * row + at, arg.bytes + i * run,
                  static_cast<size_t>(run));
    }
    at += run;
  }
  return OkStatus();
}

StatusOr<OutTypes> InferSplit(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 2));
  const Arg& x = call.arg(0);
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.shape.rank()));
  const int64_t size = x.shape[axis];
  std::vector<int64_t> parts;
  if (call.arg(1).given) {
    ASSIGN_OR_RETURN(parts, IntsOf(call.arg(1), "split"));
  } else {
    const auto outputs = static_cast<int64_t>(call.num_outputs());
    const int64_t count = call.attrs().Int("num_outputs", outputs);
    if (count < 1 || count > (1 << 20)) {
      return InvalidArgument("num_outputs is " + std::to_string(count));
    }
    const int64_t each = (size + count - 1) / count;
    for (int64_t i = 0, left = size; i < count; ++i) {
      parts.push_back(std::min(each, left));
      left -= parts.back();
    }
  }
  OutTypes types;
  int64_t left = size;
  for (const int64_t part : parts) {
    if (part < 0 || part > left) {
      return InvalidArgument("the parts are larger than " +
                             std::to_string(size));
    }
    left -= part;
    Shape shape = x.shape;
    shape[axis] = part;
    types.push_back({x.dtype, shape});
  }
  if (left != 0 || parts.size() != call.num_outputs()) {
    return InvalidArgument("the " + std::to_string(parts.size()) +
                           " parts do not make up the dimension of " +
                           std::to_string(size) + " and the outputs");
  }
  return types;
}

Status RunSplit(const Call& call, std::span<const Result> results,
                const Team& team) {
  const Arg& x = call.arg(0);
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.shape.rank()));
  const int64_t inner =
      x.shape.Product(axis + 1, x.shape.rank()) * DTypeBytes(x.dtype);
  const int64_t row = x.shape[axis] * inner;
  const auto [begin, end] = team.Share(x.shape.Product(0, axis));
  int64_t at = 0;
  for (const Result& part : results) {
    const int64_t run = part.shape[axis] * inner;
    for (int64_t i = run > 0 ? begin : end; i < end; ++i) {
      std::memcpy(part.bytes + i * run, x.bytes + i * row + at,
                  static_cast<size_t>(run));
    }
    at += run;
  }
  return OkStatus();
}

bool JoinsNothing(const Call& call) { return call.args.size() == 1; }

constexpr OpDef kOps[] = {
    {"Concat",
     InferConcat,
     RunConcat,
     Work::kSplits,
     {.layout = LayoutRule::kConcat,
      .is_needless = JoinsNothing,
      .strings = Strings::kTakes,
      .keeps_rows = rows::Joined}},
    {"Split",
     InferSplit,
     RunSplit,
     Work::kSplits,
     {.layout = LayoutRule::kSplit,
      .strings = Strings::kTakes,
      .keeps_rows = rows::Parted}},
};

}  // namespace

std::span<const OpDef> ConcatOps() { return kOps; }

}  // namespace millrace::models::graph
