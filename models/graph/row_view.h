// A node of a graph as the proof of independent rows sees it.
//
// A value "has rows" when its first dimension is cut into `batch` equal blocks
// of which block i belongs to row i: [batch, …], but also [batch * windows, …].
// Other values are shared by all rows. Rules of operators (OpFacts::keeps_rows)
// ask a RowView and answer whether the node keeps blocks apart.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// Whether `x` is `times` copies of one block along its first dimension.
bool RepeatsARow(const Tensor& x, int64_t times);
// Whether block r of `rows` blocks of INT64 begins each tuple of `tuple`
// numbers with r, and says else what the first block says.
bool CountsRows(const Tensor& x, int64_t rows, int64_t tuple);

class RowView {
 public:
  // `has_rows`: of each value of the graph. All outlive the view.
  RowView(const Graph& graph, const Node& node,
          const std::vector<bool>& has_rows, int64_t batch)
      : graph_(graph), node_(node), has_rows_(has_rows), batch_(batch) {}

  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  int64_t batch() const { return batch_; }
  size_t num_operands() const { return node_.inputs.size(); }
  // An operand that is left out is not given and has no shape.
  bool given(size_t i) const {
    return i < num_operands() && node_.inputs[i] != kNoValue;
  }
  bool has_rows(size_t i) const {
    return has_rows_[static_cast<size_t>(node_.inputs[i])];
  }
  bool any_rows() const;
  const Shape& shape(size_t i) const {
    return graph_.value(node_.inputs[i]).type->shape;
  }
  // Of the first result.
  const Shape& out() const {
    return graph_.value(node_.outputs[0]).type->shape;
  }
  // Null when the operand is left out or no constant.
  const Tensor* constant(size_t i) const;

  // Operands in `with` that are given have rows, all others have none.
  bool OnlyRows(std::initializer_list<size_t> with) const;
  // `axis`, counted from either end, is the first one of operand 0.
  bool IsFirst(int64_t axis) const {
    return axis == 0 || axis == -shape(0).rank();
  }
  // Operand i is a constant list of axes of operand 0 without the first one.
  bool AxesLeaveRows(size_t i) const;
  // The first dimension can be cut into `batch` blocks.
  bool IsCut(const Shape& shape) const {
    return shape.rank() > 0 && shape[0] % batch_ == 0;
  }
  // Operand i has rows or is a constant that repeats one; its first dimension
  // is `size`.
  bool MayHaveRows(size_t i, int64_t size) const;
  // Operand i is the same for every row of a result of this shape.
  bool IsBroadcast(size_t i, const Shape& out) const {
    return !has_rows(i) && (shape(i).rank() < out.rank() || shape(i)[0] == 1);
  }

 private:
  const Graph& graph_;
  const Node& node_;
  const std::vector<bool>& has_rows_;
  const int64_t batch_;
};

}  // namespace millrace::models::graph
