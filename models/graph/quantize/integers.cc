#include "models/graph/quantize/integers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"
#include "models/graph/ops/quantize.h"

namespace millrace::models::graph {
namespace {

const OpDef& Op(std::string_view name) {
  const OpDef* op = FindOp(name);
  CHECK(op != nullptr, "an operator that quantised graphs are made of");
  return *op;
}

// QLinear operators spelled out. Nodes are made anew, in order.
class Spelling {
 public:
  explicit Spelling(Graph& graph) : graph_(graph) {}

  void Run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : old) {
      if (!(node.Is("QLinearConv") && Conv(node)) &&
          !(node.Is("QLinearMatMul") && MatMul(node))) {
        graph_.nodes.push_back(std::move(node));
      }
    }
  }

 private:
  const Tensor* Constant(ValueId id) const {
    return id == kNoValue ? nullptr : graph_.value(id).constant.get();
  }
  bool IsScalar(ValueId id) const {
    const Tensor* tensor = Constant(id);
    return tensor != nullptr && tensor->num_elements() == 1;
  }

  ValueId Dequantised(const Node& near, ValueId bytes, ValueId scale,
                      ValueId zero, int64_t axis) {
    return graph_.AddNode(near.name, Op("DequantizeLinear"),
                          {bytes, scale, zero}, {{"axis", axis}});
  }

  void Quantised(const Node& near, ValueId floats) {
    const size_t y = 6;
    graph_.nodes.push_back(
        {.op = &Op("QuantizeLinear"),
         .name = near.name,
         .inputs = {floats, near.inputs[y], near.inputs[y + 1]},
         .outputs = near.outputs,
         .attrs = {},
         .bodies = {}});
  }

  // x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero[, bias INT32]
  bool Conv(const Node& node) {
    if (node.inputs.size() < 8 || !IsScalar(node.inputs[1]) ||
        !IsScalar(node.inputs[6]) || Constant(node.inputs[3]) == nullptr ||
        Constant(node.inputs[4]) == nullptr) {
      return false;
    }
    std::vector<ValueId> inputs = {
        Dequantised(node, node.inputs[0], node.inputs[1], node.inputs[2], 1),
        Dequantised(node, node.inputs[3], node.inputs[4], node.inputs[5], 0)};
    const ValueId bias_id = node.inputs.size() > 8 ? node.inputs[8] : kNoValue;
    if (bias_id != kNoValue) {
      const Tensor* bias = Constant(bias_id);
      const Tensor* scales = Constant(node.inputs[4]);
      if (bias == nullptr || bias->dtype() != DType::kI32 ||
          scales->dtype() != DType::kF32) {
        return false;
      }
      Tensor floats = Tensor::Make(DType::kF32, bias->shape());
      const float x_scale = *Constant(node.inputs[1])->data<float>();
      for (int64_t i = 0; i < bias->num_elements(); ++i) {
        const float w_scale =
            scales->data<float>()[scales->num_elements() == 1 ? 0 : i];
        floats.data<float>()[i] = static_cast<float>(
            double{static_cast<double>(bias->data<int32_t>()[i])} * x_scale *
            w_scale);
      }
      inputs.push_back(graph_.AddConstant(node.name, std::move(floats)));
    }
    Quantised(node, graph_.AddNode(node.name, Op("Conv"), std::move(inputs),
                                   node.attrs));
    return true;
  }

  // a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
  bool MatMul(const Node& node) {
    if (node.inputs.size() != 8 || !IsScalar(node.inputs[1]) ||
        !IsScalar(node.inputs[6]) || Constant(node.inputs[3]) == nullptr ||
        Constant(node.inputs[3])->shape().rank() != 2 ||
        Constant(node.inputs[4]) == nullptr ||
        Constant(node.inputs[4])->shape().rank() > 1) {
      return false;
    }
    const ValueId a =
        Dequantised(node, node.inputs[0], node.inputs[1], node.inputs[2], 1);
    const ValueId b =
        Dequantised(node, node.inputs[3], node.inputs[4], node.inputs[5], 1);
    Quantised(node, graph_.AddNode(node.name, Op("MatMul"), {a, b}));
    return true;
  }

  Graph& graph_;
};

// The integers that a DequantizeLinear of a constant reads, or null.
std::shared_ptr<const Integers> IntegersOf(const Graph& graph,
                                           const Node& node) {
  const auto constant = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue
               ? graph.value(node.inputs[i]).constant
               : nullptr;
  };
  const auto values = constant(0);
  const auto scale = constant(1);
  if (values == nullptr || scale == nullptr ||
      (values->dtype() != DType::kI8 && values->dtype() != DType::kU8) ||
      scale->dtype() != DType::kF32 || scale->shape().rank() > 1 ||
      scale->num_elements() == 0 || values->num_elements() == 0 ||
      values->shape().rank() == 0 || node.attrs.Int("block_size", 0) != 0) {
    return nullptr;
  }
  Integers integers{.values = values, .scales = {}, .zeros = {}, .axis = 0};
  const float* scales = scale->data<float>();
  integers.scales.assign(scales, scales + scale->num_elements());
  integers.zeros.assign(integers.scales.size(), 0);
  if (const bool given = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
      given) {
    const auto zero = constant(2);
    if (zero == nullptr) return nullptr;
    const Arg arg{true, zero->dtype(), zero->shape(), zero->bytes()};
    const std::vector<int32_t> zeros = AsInts(arg);
    if (zeros.size() != integers.scales.size()) return nullptr;
    integers.zeros = zeros;
  }
  const int64_t axis = node.attrs.Int("axis", 1);
  const int rank = values->shape().rank();
  integers.axis = static_cast<int>(axis < 0 ? axis + rank : axis);
  if (integers.scales.size() > 1 &&
      (integers.axis < 0 || integers.axis >= rank)) {
    return nullptr;
  }
  return std::make_shared<const Integers>(std::move(integers));
}

}  // namespace

Status KeepIntegers(Graph& graph) {
  Spelling(graph).Run();
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    const auto integers =
        node.Is("DequantizeLinear") && node.outputs.size() == 1
            ? IntegersOf(graph, node)
            : nullptr;
    if (integers == nullptr) {
      kept.push_back(std::move(node));
      continue;
    }
    std::vector<const Tensor*> operands;
    for (const ValueId id : node.inputs) {
      operands.push_back(id == kNoValue ? nullptr
                                        : graph.value(id).constant.get());
    }
    auto floats = RunNode(node, operands);
    if (!floats.ok()) {
      return std::move(floats).status().Prefixed("node '" + node.name + "'");
    }
    Value& value = graph.value(node.outputs[0]);
    Tensor& made = (*floats)[0];
    value.type = {made.dtype(), made.shape()};
    value.constant = std::make_shared<const Tensor>(std::move(made));
    value.integers = integers;
  }
  graph.nodes = std::move(kept);
  return OkStatus();
}

}  // namespace millrace::models::graph
