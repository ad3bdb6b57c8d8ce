// The layout pass, apart by what its rules are about: see layout.h for what it
// does. Source files of this folder only.
#pragma once

#include <string_view>
#include <vector>

#include "models/graph/ir.h"
#include "models/graph/op.h"
#include "models/graph/passes/lazy.h"

namespace millrace::models::graph {

// [n, c, spatial…] seen as [n, spatial…, c], and the way back.
Order ChannelsLast(int rank);
Order ChannelsFirst(int rank);

class LayoutPass {
 public:
  explicit LayoutPass(const Graph& from);

  StatusOr<Graph> Run();

 private:
  Lazy& View(ValueId id) { return views_[static_cast<size_t>(id)]; }
  const ValueType& Type(ValueId id) const { return *from_.value(id).type; }
  int Rank(ValueId id) const { return Type(id).shape.rank(); }
  const Lazy& In(ValueId id);
  ValueId PlainIn(ValueId id);
  // Operand `id`, broadcast to rank, with the axes of a base of this order.
  ValueId InOrder(ValueId id, const Order& perm, int rank);
  const Tensor* Constant(const Node& node, size_t i) const;
  // The base's axis that a view's axis, counted from either end, is.
  static int64_t BaseAxis(const Lazy& x, int64_t axis);
  // The last axis of the view stands last in the base, too.
  static bool LastIsLast(const Lazy& x);

  // QuantizeLinear or DequantizeLinear of a whole tensor by one scale.
  bool HasOneScale(const Node& node) const;

  // The node as it is, on operands as they are written.
  void Copied(const Node& node);
  // Makes the node in whatever order its operands come; false: it cannot.
  bool Carried(const Node& node);
  // One result; `perm` is the view's, the base's shape follows from it.
  void Emit(const Node& node, const OpDef& op, std::vector<ValueId> inputs,
            Attrs attrs, const Order& perm);
  void Emit(const Node& node, std::vector<ValueId> inputs, Attrs attrs,
            const Order& perm) {
    Emit(node, *node.op, std::move(inputs), std::move(attrs), perm);
  }

  // ---- layout_shapes.cc: axes and elements ----
  bool Transpose(const Node& node);
  bool Unary(const Node& node);
  bool Broadcast(const Node& node);
  bool Reduce(const Node& node);
  bool Concat(const Node& node);
  bool Slice(const Node& node);
  bool Split(const Node& node);
  bool Select(const Node& node);  // Gather of one index

  // ---- layout_layers.cc ----
  bool Convolution(const Node& node);
  bool TransposedConvolution(const Node& node);
  bool GroupNorm(const Node& node);
  bool Resize(const Node& node);
  bool Pool(const Node& node);
  bool Linear(const Node& node, bool weight_kn);
  bool Gemm(const Node& node);
  bool Product(const Node& node);  // MatMul of what only a run knows
  bool BatchNorm(const Node& node);
  bool LayerNorm(const Node& node);
  bool Softmax(const Node& node);
  bool Attention(const Node& node);

  const Graph& from_;
  Graph made_;
  LazyGraph lazy_;
  std::vector<Lazy> views_;  // of each value of from_
};

}  // namespace millrace::models::graph
