// A value "has rows" when its first dimension is cut into `batch` equal blocks
// of which block i belongs to row i: [batch, …], but also [batch * windows, …].
// Other values are shared by all rows. Node by node, an operator either keeps
// blocks apart or the answer is no.
#include "models/graph/passes/batch_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "models/graph/op.h"
#include "models/graph/passes/elementwise.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

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
      const bool rows = AnyRows(node) || IsRepeated(node);
      if (rows && !Keeps(node)) {
        return Named(node) + " joins rows, or is not known to keep them apart";
      }
      if (!rows && !node.op->pure) return Named(node) + " draws at random";
      for (const ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        if (rows && !IsCut(id)) {
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
  const Shape& ShapeOf(ValueId id) const {
    return whole_.value(id).type->shape;
  }
  static bool IsCut(const Shape& shape, int64_t batch) {
    return shape.rank() > 0 && shape[0] % batch == 0;
  }
  bool IsCut(ValueId id) const { return IsCut(ShapeOf(id), batch_); }
  bool AnyRows(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNoValue && HasRows(id);
    });
  }

  // ---- the same graph but for the batch ----
  static bool IsShapeOperand(const Node& node, size_t i) {
    return i == 1 && (node.Is("Reshape") || node.Is("Expand"));
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
    return IsCut(x.shape(), batch_) && IsCut(y.shape(), batch_ + 1) &&
           x.num_bytes() / batch_ == y.num_bytes() / (batch_ + 1) &&
           RepeatsARow(x, batch_) && RepeatsARow(y, batch_ + 1) &&
           SameBytes(x.bytes(), y.bytes(), x.num_bytes() / batch_);
  }
  static bool SameBytes(const std::byte* x, const std::byte* y, int64_t count) {
    return x == y || std::memcmp(x, y, static_cast<size_t>(count)) == 0;
  }
  static bool RepeatsARow(const Tensor& x, int64_t times) {
    const int64_t each = x.num_bytes() / times;
    for (int64_t i = 1; i < times; ++i) {
      if (!SameBytes(x.bytes() + i * each, x.bytes(), each)) return false;
    }
    return true;
  }

  // ---- indices that name each row: x[row, …] for all rows ----
  // The operand that begins with numbers of rows, where there may be one. Of a
  // value that is shared by all rows they would take what differs by the row.
  bool IsRowNumbers(const Node& node, size_t i) const {
    return !apart_ && i == 1 && (node.Is("GatherND") || node.Is("Index")) &&
           HasRows(node.inputs[0]);
  }
  // GatherND has tuples in the last axis, of which the row is the first.
  static int64_t TupleOf(const Node& node, const Tensor& numbers) {
    return node.Is("GatherND") ? numbers.shape().back() : 1;
  }
  // Block r of `rows` blocks says r, and else what the first block says.
  static bool CountsRows(const Tensor& x, int64_t rows, int64_t tuple) {
    if (x.dtype() != DType::kI64 || x.shape().rank() == 0 ||
        x.shape()[0] != rows || tuple == 0) {
      return false;
    }
    const auto* numbers = x.data<int64_t>();
    const int64_t each = x.num_elements() / rows;
    for (int64_t i = 0; i < rows * each; ++i) {
      const bool is_row = i % tuple == 0;
      if (numbers[i] != (is_row ? i / each : numbers[i % each])) return false;
    }
    return true;
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
  // Every row is taken from itself, and the results stand in order of rows.
  bool TakesRowsInPlace(const Node& node) const {
    const Tensor* numbers = whole_.value(node.inputs[1]).constant.get();
    if (numbers == nullptr || !OnlyRows(node, {0}) ||
        ShapeOf(node.inputs[0])[0] != batch_ ||
        ShapeOf(node.outputs[0])[0] != batch_ ||
        !CountsRows(*numbers, batch_, TupleOf(node, *numbers))) {
      return false;
    }
    if (node.Is("GatherND")) return node.attrs.Int("batch_dims", 0) == 0;
    // Other indices are broadcast along the first dimension.
    const int rank = numbers->shape().rank();
    return node.attrs.Ints("axes")[0] == 0 &&
           std::all_of(node.inputs.begin() + 2, node.inputs.end(),
                       [&](ValueId id) {
                         const Shape& shape = ShapeOf(id);
                         return shape.rank() < rank ||
                                (shape.rank() == rank && shape[0] == 1);
                       });
  }

  // ---- operators ----
  // A value shared by all rows that is written out once for each.
  bool IsRepeated(const Node& node) const {
    if (!node.Is("Expand")) return false;
    const Shape& x = ShapeOf(node.inputs[0]);
    const Shape& y = ShapeOf(node.outputs[0]);
    return IsCut(node.outputs[0]) && (x.rank() < y.rank() || x[0] == 1);
  }

  // Rows, or a constant that repeats one.
  bool MayHaveRows(ValueId id, int64_t size) const {
    if (HasRows(id)) return ShapeOf(id)[0] == size;
    const Tensor* constant = whole_.value(id).constant.get();
    if (constant == nullptr || !IsCut(id) || ShapeOf(id)[0] != size) {
      return false;
    }
    return RepeatsARow(*constant, batch_);
  }
  // The same for every row of a result of this shape.
  bool IsBroadcast(ValueId id, const Shape& out) const {
    const Shape& x = ShapeOf(id);
    return !HasRows(id) && (x.rank() < out.rank() || x[0] == 1);
  }
  bool FitsElementwise(const Node& node) const {
    const Shape& out = ShapeOf(node.outputs[0]);
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      if (id == kNoValue || IsBroadcast(id, out)) return true;
      return ShapeOf(id).rank() == out.rank() && MayHaveRows(id, out[0]);
    });
  }
  // Operands [first, last) have rows, the others none.
  bool OnlyRows(const Node& node, std::initializer_list<size_t> with) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      const bool wanted = std::find(with.begin(), with.end(), i) != with.end();
      if (HasRows(id) != wanted) return false;
    }
    return true;
  }
  bool IsFirst(const Node& node, int64_t axis) const {
    return axis == 0 || axis == -ShapeOf(node.inputs[0]).rank();
  }
  // A list of axes in a constant operand that leaves out the first one.
  bool AxesLeaveRows(const Node& node, size_t i) const {
    if (node.inputs.size() <= i || node.inputs[i] == kNoValue) return false;
    const Tensor* axes = whole_.value(node.inputs[i]).constant.get();
    if (axes == nullptr || axes->num_elements() == 0 ||
        axes->dtype() != DType::kI64) {
      return false;
    }
    const auto* list = axes->data<int64_t>();
    return std::none_of(list, list + axes->num_elements(),
                        [&](int64_t axis) { return IsFirst(node, axis); });
  }

  // The same mask for each row, whose windows are its batch.
  bool RepeatsInRows(ValueId mask, int64_t size) const {
    return !HasRows(mask) && size / batch_ % ShapeOf(mask)[0] == 0;
  }

  // Pads of all axes, none of them at the first one.
  bool PadsLeaveRows(const Node& node) const {
    const Tensor* pads = whole_.value(node.inputs[1]).constant.get();
    const int64_t rank = ShapeOf(node.inputs[0]).rank();
    return pads != nullptr && pads->dtype() == DType::kI64 &&
           pads->num_elements() == 2 * rank && pads->data<int64_t>()[0] == 0 &&
           pads->data<int64_t>()[rank] == 0;
  }

  // Of a stack whose outermost axis is cut, or of rows by one matrix.
  bool KeepsProducts(const Node& node) const {
    for (const char* perm : {"a_perm", "y_perm"}) {
      if (node.attrs.Ints(perm)[0] != 0) return false;
    }
    const Shape& a = ShapeOf(node.inputs[0]);
    const Shape& b = ShapeOf(node.inputs[1]);
    if (!HasRows(node.inputs[1])) {
      const bool one = b.rank() == 2 || b.rank() < a.rank() ||
                       (b.rank() == a.rank() && b[0] == 1 &&
                        node.attrs.Ints("b_perm")[0] == 0);
      return one && OnlyRows(node, {0, 3, 4});
    }
    return OnlyRows(node, {0, 1, 3, 4}) && a.rank() > 2 &&
           b.rank() == a.rank() && node.attrs.Ints("b_perm")[0] == 0 &&
           a[0] == b[0];
  }

  // A node that reads rows makes rows.
  bool Keeps(const Node& node) const {
    const OpDef* op = node.op;
    const std::string_view name = op->name;
    if (op == &fused::kConv || op == &fused::kConvTranspose ||
        op == &fused::kLinear || op == &fused::kByteConv ||
        op == &fused::kByteConvTranspose || op == &fused::kByteLinear) {
      return OnlyRows(node, {0, 3, 4});
    }
    if (op == &fused::kVolumeConv || op == &fused::kPool ||
        op == &fused::kGroupNorm || op == &fused::kResize ||
        op == &fused::kBytePool || op == &fused::kLookup) {
      return OnlyRows(node, {0});
    }
    if (name == "QuantizeLinear" || name == "DequantizeLinear") {
      return OnlyRows(node, {0}) && ShapeOf(node.inputs[1]).num_elements() == 1;
    }
    if (op == &fused::kMatMul) return KeepsProducts(node);
    if (op == &fused::kAttention) {
      // Tokens stand first, and they meet.
      if (node.attrs.Has("swapped") || node.attrs.Has("swapped_out")) {
        return false;
      }
      const Shape& y = ShapeOf(node.outputs[0]);
      if (node.inputs.size() > 3 && node.inputs[3] != kNoValue &&
          !IsBroadcast(node.inputs[3], y) &&
          !(ShapeOf(node.inputs[3]).rank() == 4 &&
            (MayHaveRows(node.inputs[3], y[0]) ||
             RepeatsInRows(node.inputs[3], y[0])))) {
        return false;
      }
      return HasRows(node.inputs[0]) && HasRows(node.inputs[1]) &&
             HasRows(node.inputs[2]);
    }
    if (op == &fused::kPointwise || op == &fused::kBytePointwise ||
        IsElementwiseUnary(name) || IsElementwiseBroadcast(name)) {
      return FitsElementwise(node);
    }
    if (name == "LayerNormalization" || name == "RMSNormalization" ||
        name == "Softmax" || name == "LogSoftmax") {
      return OnlyRows(node, {0}) && !IsFirst(node, node.attrs.Int("axis", -1));
    }
    if (name == "Reshape" || name == "Flatten" || name == "Squeeze" ||
        name == "Unsqueeze") {
      return HasRows(node.inputs[0]);
    }
    return KeepsWhenMoved(node);
  }

  bool KeepsWhenMoved(const Node& node) const {
    const std::string_view name = node.op->name;
    if (name == "Transpose") {
      const auto& perm = node.attrs.Ints("perm");
      return !perm.empty() && perm[0] == 0;
    }
    if (name == "Concat") {
      const int64_t size = ShapeOf(node.outputs[0])[0];
      return !IsFirst(node, node.attrs.Int("axis", 0)) &&
             std::all_of(node.inputs.begin(), node.inputs.end(),
                         [&](ValueId id) { return MayHaveRows(id, size); });
    }
    if (name == "Split") {
      return HasRows(node.inputs[0]) &&
             !IsFirst(node, node.attrs.Int("axis", 0));
    }
    if (name == "MatMul") {
      const int rank = ShapeOf(node.inputs[0]).rank();
      return OnlyRows(node, {0, 1}) && rank > 2 &&
             ShapeOf(node.inputs[1]).rank() == rank &&
             ShapeOf(node.inputs[0])[0] == ShapeOf(node.inputs[1])[0];
    }
    if (name == "Pad") return OnlyRows(node, {0}) && PadsLeaveRows(node);
    if (name == "Slice") {
      return OnlyRows(node, {0}) && AxesLeaveRows(node, 3);
    }
    if (name.starts_with("Reduce")) {
      return OnlyRows(node, {0}) && AxesLeaveRows(node, 1);
    }
    if (name == "Gather") {
      const bool first = IsFirst(node, node.attrs.Int("axis", 0));
      return OnlyRows(node, {first ? size_t{1} : size_t{0}});
    }
    if (!apart_ && (name == "GatherND" || name == "Index")) {
      return TakesRowsInPlace(node);
    }
    if (name == "Expand") {
      const Shape& x = ShapeOf(node.inputs[0]);
      const Shape& y = ShapeOf(node.outputs[0]);
      return !HasRows(node.inputs[0]) || (x.rank() == y.rank() && x[0] == y[0]);
    }
    return false;
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
