#include "models/graph/ops/row_rules.h"

#include "models/graph/op.h"

namespace millrace::models::graph::rows {

bool ElementByElement(const RowView& node) {
  const Shape& out = node.out();
  for (size_t i = 0; i < node.num_operands(); ++i) {
    if (!node.given(i) || node.IsBroadcast(i, out)) continue;
    if (node.shape(i).rank() != out.rank() || !node.MayHaveRows(i, out[0])) {
      return false;
    }
  }
  return true;
}

bool FirstHasRows(const RowView& node) { return node.has_rows(0); }

bool OnlyFirst(const RowView& node) { return node.OnlyRows({0}); }

bool AxisBehindRows(const RowView& node) {
  return node.OnlyRows({0}) && !node.IsFirst(node.attrs().Int("axis", -1));
}

bool OneScale(const RowView& node) {
  return node.OnlyRows({0}) && node.shape(1).num_elements() == 1;
}

bool StackedProduct(const RowView& node) {
  const int rank = node.shape(0).rank();
  return node.OnlyRows({0, 1}) && rank > 2 && node.shape(1).rank() == rank &&
         node.shape(0)[0] == node.shape(1)[0];
}

bool Permuted(const RowView& node) {
  const auto& perm = node.attrs().Ints("perm");
  return !perm.empty() && perm[0] == 0;
}

bool Joined(const RowView& node) {
  if (node.IsFirst(node.attrs().Int("axis", 0))) return false;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    if (!node.MayHaveRows(i, node.out()[0])) return false;
  }
  return true;
}

bool Parted(const RowView& node) {
  return node.has_rows(0) && !node.IsFirst(node.attrs().Int("axis", 0));
}

bool Padded(const RowView& node) {
  const Tensor* pads = node.constant(1);
  const int64_t rank = node.shape(0).rank();
  return node.OnlyRows({0}) && pads != nullptr &&
         pads->dtype() == DType::kI64 && pads->num_elements() == 2 * rank &&
         pads->data<int64_t>()[0] == 0 && pads->data<int64_t>()[rank] == 0;
}

bool Sliced(const RowView& node) {
  return node.OnlyRows({0}) && node.AxesLeaveRows(3);
}

bool Reduced(const RowView& node) {
  return node.OnlyRows({0}) && node.AxesLeaveRows(1);
}

bool Expanded(const RowView& node) {
  const Shape& x = node.shape(0);
  return !node.has_rows(0) ||
         (x.rank() == node.out().rank() && x[0] == node.out()[0]);
}

bool Gathered(const RowView& node) {
  const bool first = node.IsFirst(node.attrs().Int("axis", 0));
  return node.OnlyRows({first ? size_t{1} : size_t{0}});
}

namespace {
// Index of neighbouring axes behind the rows, whose results stand where the
// axes were.
bool IndexedBehindRows(const RowView& node) {
  const std::vector<int64_t>& axes = node.attrs().Ints("axes");
  if (axes.empty() || axes[0] == 0 || !node.OnlyRows({0})) return false;
  for (size_t i = 1; i < axes.size(); ++i) {
    if (axes[i] != axes[i - 1] + 1) return false;
  }
  return true;
}
}  // namespace

bool IndexedByRow(const RowView& node) {
  const bool tuples = node.node().op->facts.row_numbers == RowNumbers::kTuples;
  if (!tuples && IndexedBehindRows(node)) return true;
  const Tensor* numbers = node.constant(1);
  if (numbers == nullptr || !node.OnlyRows({0}) ||
      node.shape(0)[0] != node.batch() || node.out()[0] != node.batch()) {
    return false;
  }
  if (tuples) {
    return CountsRows(*numbers, node.batch(), numbers->shape().back()) &&
           node.attrs().Int("batch_dims", 0) == 0;
  }
  if (!CountsRows(*numbers, node.batch(), 1) ||
      node.attrs().Ints("axes")[0] != 0) {
    return false;
  }
  // Other indices are broadcast along the first dimension.
  const int rank = numbers->shape().rank();
  for (size_t i = 2; i < node.num_operands(); ++i) {
    const Shape& shape = node.shape(i);
    if (shape.rank() > rank || (shape.rank() == rank && shape[0] != 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace millrace::models::graph::rows
