// Starts from all values and drops those with a reader or a maker that wants
// f32, until none is left: what only arranges bytes (a reshape, a
// concatenation) has both sides in bf16 or neither.
#include "models/graph/plan/keep_bf16.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"
#include "models/graph/passes/alias.h"
#include "models/graph/passes/copied_pixels.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

class KeepPass {
 public:
  explicit KeepPass(Graph& graph) : graph_(graph) { Choose(); }

  void Keep() {
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i]) graph_.values[i].type->dtype = DType::kBF16;
    }
  }
  // Behind each maker to BF16 and back.
  void RoundApart() {
    std::vector<Node> nodes;
    for (Node& maker : graph_.nodes) {
      std::vector<Node> behind;
      for (ValueId& id : maker.outputs) {
        if (!IsKept(id)) continue;
        const ValueId rounded = id;
        id = Another(rounded, DType::kF32);
        const ValueId narrow = Another(rounded, DType::kBF16);
        behind.push_back(Cast(id, narrow, DType::kBF16));
        behind.push_back(Cast(narrow, rounded, DType::kF32));
      }
      nodes.push_back(std::move(maker));
      for (Node& cast : behind) nodes.push_back(std::move(cast));
    }
    graph_.nodes = std::move(nodes);
  }

 private:
  void Choose() {
    for (const Value& value : graph_.values) {
      kept_.push_back(value.type && value.type->dtype == DType::kF32 &&
                      value.constant == nullptr);
    }
    for (const auto* ports : {&graph_.inputs, &graph_.outputs}) {
      for (const Port& port : *ports) Drop(port.value);
    }
    while (changed_) {
      changed_ = false;
      for (const Node& node : graph_.nodes) {
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          if (!Takes(node, i)) Drop(node.inputs[i]);
        }
        if (Makes(node)) continue;
        for (const ValueId id : node.outputs) Drop(id);
      }
    }
  }

  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }
  bool IsKept(ValueId id) const {
    return id != kNoValue && kept_[static_cast<size_t>(id)];
  }
  void Drop(ValueId id) {
    if (!IsKept(id)) return;
    kept_[static_cast<size_t>(id)] = false;
    changed_ = true;
  }

  ValueId Another(ValueId like, DType dtype) {
    const ValueId id = graph_.AddValue(graph_.value(like).name);
    graph_.value(id).type = ValueType{dtype, ShapeOf(like)};
    return id;
  }
  static Node Cast(ValueId from, ValueId to, DType dtype) {
    Node node;
    node.op = FindOp("Cast");
    node.inputs = {from};
    node.outputs = {to};
    node.attrs.Set("to", OnnxNumber(dtype));
    return node;
  }

  static bool Rounds(const Node& node) {
    return node.attrs.Int("bf16", 0) != 0;
  }
  // A convolution of each channel by itself multiplies in f32, though it may
  // round what it reads.
  bool IsProduct(const Node& node) const {
    if (node.op == &fused::kLinear || StandsSideBySide(node, graph_)) {
      return Rounds(node);
    }
    return node.op == &fused::kConv && Rounds(node) &&
           !IsDepthwise(node, graph_);
  }
  bool AddsResidual(const Node& node) const {
    return node.op == &fused::kConv && IsProduct(node);
  }
  // The greatest of rounded values is the greatest value, rounded. (But for the
  // sign of a zero, which no sum that begins with +0 shows.)
  static bool IsMaxPool(const Node& node) {
    return node.op == &fused::kPool && ParamsOf<PoolParams>(node.attrs).is_max;
  }
  bool Arranges(const Node& node) const {
    return IsAlias(node, graph_) || node.Is("Concat") || IsMaxPool(node);
  }
  // Of the values that it arranges.
  bool AllKept(const Node& node) const {
    if (!IsKept(node.outputs[0])) return false;
    if (!node.Is("Concat")) return IsKept(node.inputs[0]);
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return IsKept(id); });
  }

  // Whether operand i may be bf16.
  bool Takes(const Node& node, size_t i) const {
    if (Arranges(node)) return AllKept(node);
    if (i == 0 && CopiesPixels(node)) return AllKept(node);
    if (node.op == &fused::kAttention && Rounds(node) && i < 3) return true;
    if (i == 0 && IsDepthwise(node, graph_)) return Rounds(node);
    if (i == fused::kResidual) return AddsResidual(node);
    if (i != 0 || !IsProduct(node)) return false;
    // Products take two values at a time.
    return ShapeOf(node.inputs[0]).back() / GroupsOf(node.attrs) % 2 == 0;
  }
  // Whether the result may be.
  bool Makes(const Node& node) const {
    if (Arranges(node)) return AllKept(node);
    return IsProduct(node) || IsDepthwise(node, graph_) ||
           (node.op == &fused::kAttention && Rounds(node)) ||
           node.op == &fused::kPointwise || node.op == &fused::kResize ||
           IsRowNorm(node, graph_);
  }

  Graph& graph_;
  std::vector<bool> kept_;  // of each value
  bool changed_ = true;
};

}  // namespace

void KeepBf16(Graph& graph) { KeepPass(graph).Keep(); }
void RoundAsKept(Graph& graph) { KeepPass(graph).RoundApart(); }

}  // namespace millrace::models::graph
