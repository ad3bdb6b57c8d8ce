// Elements in another order of dimensions.
#include <algorithm>
#include <numeric>
#include <utility>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/strided.h"

namespace millrace::models::graph {
namespace {

StatusOr<std::vector<int>> OrderOf(const Call& call) {
  const int rank = call.arg(0).shape.rank();
  std::vector<int> order(static_cast<size_t>(rank));
  if (!call.attrs().Has("perm")) {
    std::iota(order.rbegin(), order.rend(), 0);
    return order;
  }
  const auto& perm = call.attrs().Ints("perm");
  RETURN_IF_ERROR(AxesOf(perm, rank).status());
  if (perm.size() != order.size()) {
    return InvalidArgument("perm names " + std::to_string(perm.size()) +
                           " dimensions of " + std::to_string(rank));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (perm[i] < 0) {  // passes read it as it stands
      return InvalidArgument("perm has the negative axis " +
                             std::to_string(perm[i]));
    }
    order[i] = static_cast<int>(perm[i]);
  }
  return order;
}

StatusOr<OutTypes> InferTranspose(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const std::vector<int> order, OrderOf(call));
  Shape shape;
  for (const int axis : order) shape.Append(call.arg(0).shape[axis]);
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunTranspose(const Call& call, std::span<const Result> results,
                    const Team& team) {
  ASSIGN_OR_RETURN(const std::vector<int> order, OrderOf(call));
  const Shape own = call.arg(0).shape.Strides();
  Shape strides;
  for (const int axis : order) strides.Append(own[axis]);
  CopyStrided(call.arg(0).bytes, 0, strides, results[0], results[0].shape,
              team);
  return OkStatus();
}

StatusOr<int64_t> BlockOf(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  const int64_t block = call.attrs().Int("blocksize", 0);
  if (x.shape.rank() != 4 || block < 1 || block > (1 << 15)) {
    return InvalidArgument("blocks of " + std::to_string(block) + " in " +
                           TypeText(x.dtype, x.shape));
  }
  return block;
}

StatusOr<OutTypes> InferDepthToSpace(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t b, BlockOf(call));
  const Shape& x = call.arg(0).shape;
  if (x[1] % (b * b) != 0) {
    return InvalidArgument(x.ToString() + " has not whole blocks of " +
                           std::to_string(b));
  }
  return OutTypes{
      {call.arg(0).dtype, {x[0], x[1] / (b * b), x[2] * b, x[3] * b}}};
}

// The channel is (b, b, c) in the mode DCR, (c, b, b) in CRD.
Status RunDepthToSpace(const Call& call, std::span<const Result> results,
                       const Team& team) {
  const int64_t b = call.attrs().Int("blocksize", 1);
  const Shape& x = call.arg(0).shape;
  const int64_t c = x[1] / (b * b);
  const int64_t area = x[2] * x[3];
  const bool crd = call.attrs().Text("mode", "DCR") == "CRD";
  const int64_t row_step = crd ? b * area : b * c * area;
  const int64_t column_step = crd ? area : c * area;
  const Shape view = {x[0], c, x[2], b, x[3], b};
  const Shape strides = {
      x[1] * area, crd ? b * b * area : area, x[3], row_step, 1, column_step};
  CopyStrided(call.arg(0).bytes, 0, strides, results[0], view, team);
  return OkStatus();
}

StatusOr<OutTypes> InferSpaceToDepth(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t b, BlockOf(call));
  const Shape& x = call.arg(0).shape;
  if (x[2] % b != 0 || x[3] % b != 0) {
    return InvalidArgument(x.ToString() + " has not whole blocks of " +
                           std::to_string(b));
  }
  ASSIGN_OR_RETURN(
      const Shape shape,
      Shape::Checked(std::vector{x[0], x[1] * b * b, x[2] / b, x[3] / b}));
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunSpaceToDepth(const Call& call, std::span<const Result> results,
                       const Team& team) {
  const int64_t b = call.attrs().Int("blocksize", 1);
  const Shape& x = call.arg(0).shape;
  const int64_t area = x[2] * x[3];
  const bool crd = call.attrs().Text("mode", "DCR") == "CRD";
  const Shape view = crd ? Shape{x[0], x[1], b, b, x[2] / b, x[3] / b}
                         : Shape{x[0], b, b, x[1], x[2] / b, x[3] / b};
  const Shape strides = crd ? Shape{x[1] * area, area, x[3], 1, b * x[3], b}
                            : Shape{x[1] * area, x[3], 1, area, b * x[3], b};
  CopyStrided(call.arg(0).bytes, 0, strides, results[0], view, team);
  return OkStatus();
}

bool KeepsOrder(const Call& call) {
  const std::vector<int64_t>& perm = call.attrs().Ints("perm");
  return !perm.empty() && std::is_sorted(perm.begin(), perm.end());
}

constexpr OpDef kOps[] = {
    {"DepthToSpace", InferDepthToSpace, RunDepthToSpace, Work::kSplits},
    {"SpaceToDepth", InferSpaceToDepth, RunSpaceToDepth, Work::kSplits},
    {"Transpose",
     InferTranspose,
     RunTranspose,
     Work::kSplits,
     {.layout = LayoutRule::kTranspose,
      .is_needless = KeepsOrder,
      .keeps_rows = rows::Permuted}},
};

}  // namespace

std::span<const OpDef> TransposeOps() { return kOps; }

}  // namespace millrace::models::graph
