// Node by node, an operator either keeps the blocks of rows apart
// (models/graph/row_view.h), as its row says, or the answer is no.
#include "models/graph/passes/batch_rows.h"

#include <cstring>
#include <string>

#include "models/graph/op.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/row_view.h"

namespace millrace::models::graph {
namespace {

bool SameBytes(const std::byte* x, const std::byte* y, int64_t count) {
  return x == y || std::memcmp(x, y, static_cast<size_t>(count)) == 0;
}

// Elementwise operators need no rule of their own.
bool KeepsRows(const RowView& node) {
  const OpFacts& facts = node.node().op->facts;
  if (facts.keeps_rows != nullptr) return facts.keeps_rows(node);
  return facts.elementwise != Elementwise::kNo && rows::ElementByElement(node);
}

class RowCheck {
 public:
  RowCheck(const Graph& whole, const Graph& more, int64_t batch, bool apart)
      : whole_(whole),
        more_(more),
        batch_(batch),
        apart_(apart),
        rows_(whole.values.size(), false) {}

  std::string Run(const std::vector<bool>& has_rows) {
    if (whole_.nodes.size() != more_.nodes.size()) {
      return "the nodes that remain after constant folding depend on the "
             "number of rows";
    }
    for (size_t i = 0; i < whole_.inputs.size(); ++i) {
      rows_[static_cast<size_t>(whole_.inputs[i].value)] = has_rows[i];
    }
    for (size_t i = 0; i < whole_.nodes.size(); ++i) {
      const Node& node = whole_.nodes[i];
      if (!SameNode(node, more_.nodes[i])) {
        return Named(node) + " depends on the number of rows";
      }
      const RowView view(whole_, node, rows_, batch_);
      const bool rows = view.any_rows() || IsRepeated(view);
      const bool refused =
          apart_ && node.op->facts.row_numbers != RowNumbers::kNone;
      if (rows && (refused || !KeepsRows(view))) {
        return Named(node) + " joins rows, or is not known to keep them apart";
      }
      if (!rows && !node.op->pure) return Named(node) + " draws at random";
      for (const ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        if (rows && !view.IsCut(whole_.value(id).type->shape)) {
          return Named(node) +
                 " joins rows, or is not known to keep them apart";
        }
        rows_[static_cast<size_t>(id)] = rows;
      }
    }
    for (const Port& port : whole_.outputs) {
      if (!HasRows(port.value)) {
        return "output '" + port.name + "' is the same for all rows";
      }
    }
    return "";
  }

 private:
  static std::string Named(const Node& node) {
    return "node '" + node.name + "' (" + std::string(node.op->name) + ")";
  }
  bool HasRows(ValueId id) const { return rows_[static_cast<size_t>(id)]; }

  // A value shared by all rows that is written out once for each.
  static bool IsRepeated(const RowView& node) {
    const OpFacts& facts = node.node().op->facts;
    if (!facts.has_shape_operand || facts.reshapes) return false;
    const Shape& x = node.shape(0);
    return node.IsCut(node.out()) &&
           (x.rank() < node.out().rank() || x[0] == 1);
  }

  // ---- the same graph but for the batch ----
  static bool IsShapeOperand(const Node& node, size_t i) {
    return i == 1 && node.op->facts.has_shape_operand;
  }
  bool SameNode(const Node& a, const Node& b) const {
    if (a.op != b.op || !(a.attrs == b.attrs) || !a.bodies.empty() ||
        a.inputs.size() != b.inputs.size() ||
        a.outputs.size() != b.outputs.size()) {
      return false;
    }
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      if ((a.inputs[i] == kNoValue) != (b.inputs[i] == kNoValue)) return false;
      if (a.inputs[i] == kNoValue || IsShapeOperand(a, i)) continue;
      const Tensor* x = whole_.value(a.inputs[i]).constant.get();
      const Tensor* y = more_.value(b.inputs[i]).constant.get();
      if ((x == nullptr) != (y == nullptr)) return false;
      if (x == nullptr) continue;
      if (IsRowNumbers(a, i) ? !SameRowNumbers(a, *x, *y)
                             : !SameConstant(*x, *y)) {
        return false;
      }
    }
    return true;
  }
  // Equal, or both repeat the same row.
  bool SameConstant(const Tensor& x, const Tensor& y) const {
    if (x.dtype() != y.dtype()) return false;
    if (x.shape() == y.shape())
      return SameBytes(x.bytes(), y.bytes(), x.num_bytes());
    return IsCut(x, batch_) && IsCut(y, batch_ + 1) &&
           x.num_bytes() / batch_ == y.num_bytes() / (batch_ + 1) &&
           RepeatsARow(x, batch_) && RepeatsARow(y, batch_ + 1) &&
           SameBytes(x.bytes(), y.bytes(), x.num_bytes() / batch_);
  }
  static bool IsCut(const Tensor& x, int64_t batch) {
    return x.shape().rank() > 0 && x.shape()[0] % batch == 0;
  }

  // ---- indices that name each row: x[row, …] for all rows ----
  // The operand that begins with numbers of rows, where there may be one. Of a
  // value that is shared by all rows they would take what differs by the row.
  bool IsRowNumbers(const Node& node, size_t i) const {
    return !apart_ && i == 1 &&
           node.op->facts.row_numbers != RowNumbers::kNone &&
           HasRows(node.inputs[0]);
  }
  static int64_t TupleOf(const Node& node, const Tensor& numbers) {
    return node.op->facts.row_numbers == RowNumbers::kTuples
               ? numbers.shape().back()
               : 1;
  }
  // Both are the same everywhere but do not count rows, or both count them.
  bool SameRowNumbers(const Node& node, const Tensor& x,
                      const Tensor& y) const {
    if (SameConstant(x, y)) return true;
    const int64_t tuple = TupleOf(node, x);
    const int64_t bytes = x.num_bytes() / batch_;
    return CountsRows(x, batch_, tuple) &&
           CountsRows(y, batch_ + 1, TupleOf(node, y)) &&
           TupleOf(node, y) == tuple && y.num_bytes() / (batch_ + 1) == bytes &&
           SameBytes(x.bytes(), y.bytes(), bytes);
  }

  const Graph& whole_;
  const Graph& more_;
  const int64_t batch_;
  const bool apart_;
  std::vector<bool> rows_;  // of each value
};

}  // namespace

std::string WhyRowsMeet(const Graph& whole, const Graph& more, int64_t batch,
                        const std::vector<bool>& has_rows) {
  if (batch < 2) return "one row says nothing of several";
  return RowCheck(whole, more, batch, false).Run(has_rows);
}

bool RowsMayGoApart(const Graph& whole, const Graph& more, int64_t batch,
                    const std::vector<bool>& has_rows) {
  return batch > 1 && RowCheck(whole, more, batch, true).Run(has_rows).empty();
}

}  // namespace millrace::models::graph
