// Products of two activations, as attention has them, are computed on floats.
// Where a quantised graph rounds their operands, or a result that no layer on
// bytes reads, the rounding goes: it would cost accuracy and gain nothing.
//
//   MatMul(Dequantize(Quantize(a)), …)            MatMul(a, …)
//   Softmax(Dequantize(Quantize(MatMul(…))))      Softmax(MatMul(…))
#include <algorithm>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

class FloatProducts {
 public:
  explicit FloatProducts(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (!IsProduct(node)) continue;
      std::vector<ValueId> inputs = node.inputs;
      for (ValueId& id : inputs) id = Unrounded(id);
      if (inputs != node.inputs) {
        editor_.Rewrite(node, *node.op, std::move(inputs), node.attrs);
      }
    }
    for (const Node& node : graph_.nodes) {
      if (!node.Is("DequantizeLinear")) continue;
      const ValueId exact = Unrounded(node.outputs[0]);
      if (exact == node.outputs[0] || IsOutput(exact)) continue;
      const Node* product = editor_.Maker(exact);
      if (product == nullptr || !IsProduct(*product) ||
          MeetsLayer(node.outputs[0])) {
        continue;
      }
      editor_.Replace(node.outputs[0], exact);
    }
    editor_.Finish();
  }

 private:
  bool IsConstant(ValueId id) const { return editor_.Constant(id) != nullptr; }
  bool IsProduct(const Node& node) const {
    return node.Is("MatMul") && !IsConstant(node.inputs[0]) &&
           !IsConstant(node.inputs[1]);
  }
  bool IsOutput(ValueId id) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const Port& port) { return port.value == id; });
  }

  // What is quantised and dequantised to make this value, or the value.
  ValueId Unrounded(ValueId id) {
    const Node* dequantise = editor_.Maker(id);
    if (dequantise == nullptr || !dequantise->Is("DequantizeLinear")) return id;
    const Node* quantise = editor_.Maker(dequantise->inputs[0]);
    if (quantise == nullptr || !quantise->Is("QuantizeLinear") ||
        graph_.value(quantise->inputs[0]).type->dtype != DType::kF32 ||
        graph_.value(id).type->dtype != DType::kF32) {
      return id;
    }
    return quantise->inputs[0];
  }

  // Whether a layer with weights reads the value, arranged otherwise by a few
  // nodes maybe.
  bool MeetsLayer(ValueId id, int most_nodes = 4) {
    for (const Node& node : graph_.nodes) {
      if (std::count(node.inputs.begin(), node.inputs.end(), id) == 0) continue;
      const bool layer =
          node.Is("MatMul") || node.Is("Gemm") || node.Is("Conv");
      if (layer && !IsProduct(node)) return true;
      const bool arranges = node.Is("Transpose") || node.op->facts.reshapes;
      if (arranges && most_nodes > 0 &&
          MeetsLayer(node.outputs[0], most_nodes - 1)) {
        return true;
      }
    }
    return false;
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void KeepProductsFloat(Graph& graph) {
  const bool quantised =
      std::any_of(graph.nodes.begin(), graph.nodes.end(),
                  [](const Node& node) { return node.Is("DequantizeLinear"); });
  if (quantised) FloatProducts(graph).Run();
}

}  // namespace millrace::models::graph
