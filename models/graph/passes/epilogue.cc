// What follows a convolution or a linear layer and reads nothing else of it
// becomes part of it. The node that follows is rewritten, so that all operands
// are made before; its maker is left without readers.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/activation.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

class EpiloguePass {
 public:
  explicit EpiloguePass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.outputs.size() != 1) continue;
      if (node.Is("Add")) {
        Joined(node, 0) || Joined(node, 1);
      } else if (node.Is("Mul")) {
        Gated(node, 0) || Gated(node, 1);
      } else {
        Activated(node);
      }
    }
    editor_.Finish();
  }

 private:
  Node* Layer(ValueId id) {
    for (const OpDef* op : {&fused::kLinear, &fused::kMatMul, &fused::kConv,
                            &fused::kConvTranspose, &fused::kVolumeConv}) {
      if (Node* maker = editor_.SoleMaker(id, op->name)) return maker;
    }
    return nullptr;
  }
  static bool Has(const Node& layer, size_t operand) {
    return layer.inputs.size() > operand && layer.inputs[operand] != kNoValue;
  }
  // Sums of a volume take the place of a residual.
  static bool TakesNoImage(const Node& layer) {
    return layer.op == &fused::kVolumeConv;
  }
  static bool HasActivation(const Node& layer) {
    return LayerParamsOf(layer.attrs).epilogue.activation.f != Unary::kNone;
  }
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  void Become(Node& node, const Node& layer, size_t operand, ValueId with,
              Attrs attrs) {
    std::vector<ValueId> inputs = layer.inputs;
    inputs.resize(std::max(inputs.size(), operand + 1), kNoValue);
    inputs[operand] = with;
    editor_.Rewrite(node, *layer.op, std::move(inputs), std::move(attrs));
  }

  // Add: operand `side` is a layer's, the other its bias or residual.
  bool Joined(Node& node, size_t side) {
    const Node* layer = Layer(node.inputs[side]);
    if (layer == nullptr) return false;
    const ValueId other = node.inputs[1 - side];
    const Shape& out = ShapeOf(node.outputs[0]);
    if (ShapeOf(node.inputs[side]) != out) return false;
    // A layer adds its bias before it multiplies by its gate.
    if (!Has(*layer, fused::kBias) && !Has(*layer, fused::kResidual) &&
        !Has(*layer, fused::kGate) && !HasActivation(*layer) &&
        IsBias(other, out)) {
      Become(node, *layer, fused::kBias, other, layer->attrs);
      return true;
    }
    if (TakesNoImage(*layer) || Has(*layer, fused::kResidual) ||
        ShapeOf(other) != out ||
        graph_.value(other).type->dtype != DType::kF32) {
      return false;
    }
    Become(node, *layer, fused::kResidual, other, layer->attrs);
    return true;
  }

  bool IsBias(ValueId id, const Shape& out) const {
    const Tensor* tensor = editor_.Constant(id);
    return tensor != nullptr && tensor->dtype() == DType::kF32 &&
           tensor->shape().rank() > 0 && tensor->num_elements() == out.back() &&
           tensor->shape().back() == out.back();
  }

  bool Gated(Node& node, size_t side) {
    const Node* layer = Layer(node.inputs[side]);
    const ValueId other = node.inputs[1 - side];
    const Shape& out = ShapeOf(node.outputs[0]);
    if (layer == nullptr || TakesNoImage(*layer) ||
        Has(*layer, fused::kResidual) || Has(*layer, fused::kGate) ||
        ShapeOf(node.inputs[side]) != out || ShapeOf(other) != out ||
        editor_.Constant(other) != nullptr) {
      return false;
    }
    Become(node, *layer, fused::kGate, other, layer->attrs);
    return true;
  }

  void Activated(Node& node) {
    if (node.inputs.empty()) return;
    const Node* layer = Layer(node.inputs[0]);
    if (layer == nullptr || HasActivation(*layer) ||
        Has(*layer, fused::kGate)) {
      return;
    }
    const auto activation = ActivationOf(graph_, node);
    if (!activation) return;
    Attrs attrs = layer->attrs;
    // What was added already is added before the function.
    EditLayerParams(attrs).epilogue = {
        .activation = *activation,
        .residual_first = Has(*layer, fused::kResidual)};
    editor_.Rewrite(node, *layer->op, layer->inputs, std::move(attrs));
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void FuseEpilogues(Graph& graph) { EpiloguePass(graph).Run(); }

}  // namespace millrace::models::graph
