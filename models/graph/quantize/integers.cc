#include "models/graph/quantize/integers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"
#include "models/graph/ops/quantize.h"
#include "models/graph/passes/bytes.h"

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
    for (const Node& node : old) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) makers_[node.outputs[i]] = {&node, i};
      }
    }
    for (const Node& node : old) {
      if (!(node.Is("QLinearConv") && Conv(node)) &&
          !(node.Is("QLinearMatMul") && MatMul(node)) &&
          !(node.Is("Mul") && Dynamic(node))) {
        graph_.nodes.push_back(node);
      }
    }
    if (drops_) DropUnread();
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

  // Which node makes a value, as which of its results.
  struct Made {
    const Node* node = nullptr;
    size_t output = 0;
  };
  Made MakerOf(ValueId id, std::string_view op) const {
    const auto found = makers_.find(id);
    return found != makers_.end() && found->second.node->Is(op) ? found->second
                                                                : Made{};
  }

  // Mul(Cast(MatMulInteger(x, w, x_zero, w_zero)), Mul(x_scale, w_scale)) with
  // x, x_scale and x_zero of one DynamicQuantizeLinear.
  bool Dynamic(const Node& node) {
    for (size_t side = 0; side < 2; ++side) {
      const Node* cast = MakerOf(node.inputs[side], "Cast").node;
      const Node* scales = MakerOf(node.inputs[1 - side], "Mul").node;
      if (cast == nullptr || scales == nullptr) continue;
      const Node* product = MakerOf(cast->inputs[0], "MatMulInteger").node;
      const bool conv = product == nullptr;
      if (conv) product = MakerOf(cast->inputs[0], "ConvInteger").node;
      if (product == nullptr || product->inputs.size() < 3) continue;
      for (size_t x = 0; x < 2; ++x) {
        if (Dynamic(node, *product, conv, scales->inputs[x],
                    scales->inputs[1 - x])) {
          return true;
        }
      }
    }
    return false;
  }

  bool Dynamic(const Node& node, const Node& product, bool conv,
               ValueId x_scale, ValueId w_scale) {
    const ValueId zero = product.inputs[2];
    const Made scale = MakerOf(x_scale, "DynamicQuantizeLinear");
    const Tensor* w = Constant(product.inputs[1]);
    const Tensor* factors = Constant(w_scale);
    if (scale.node == nullptr || scale.output != 1 ||
        scale.node->outputs.size() != 3 ||
        product.inputs[0] != scale.node->outputs[0] ||
        zero != scale.node->outputs[2] || w == nullptr || factors == nullptr ||
        factors->dtype() != DType::kF32 ||
        (conv ? w->shape().rank() < 3 : w->shape().rank() != 2)) {
      return false;
    }
    const int64_t axis = conv ? 0 : 1;
    const int64_t n = factors->num_elements();
    if (n != 1 &&
        (n != w->shape()[static_cast<int>(axis)] ||
         !IsOfOutputs(factors->shape(), conv ? w->shape().rank() - 2 : 0))) {
      return false;
    }
    const Tensor* zeros =
        product.inputs.size() > 3 ? Constant(product.inputs[3]) : nullptr;
    if (product.inputs.size() > 3 && product.inputs[3] != kNoValue &&
        (zeros == nullptr ||
         (zeros->num_elements() != 1 && zeros->num_elements() != n))) {
      return false;
    }
    const ValueId floats =
        Dequantised(node, product.inputs[0], x_scale, zero, 1);
    const ValueId weight = Dequantised(
        node, product.inputs[1], Spread(node, *factors, n),
        zeros == nullptr ? kNoValue : Spread(node, *zeros, n), axis);
    graph_.nodes.push_back({.op = &Op(conv ? "Conv" : "MatMul"),
                            .name = node.name,
                            .inputs = {floats, weight},
                            .outputs = node.outputs,
                            .attrs = product.attrs,
                            .bodies = {}});
    drops_ = true;
    return true;
  }

  // Whether factors stand along the outputs: last for products, before the
  // image's dimensions for convolutions.
  static bool IsOfOutputs(const Shape& shape, int behind) {
    const int at = shape.rank() - 1 - behind;
    return at >= 0 && shape[at] == shape.num_elements();
  }

  // One element for all, or n, as a scalar or a list.
  ValueId Spread(const Node& near, const Tensor& from, int64_t n) {
    Tensor to = Tensor::Make(from.dtype(), n == 1 ? Shape{} : Shape{n});
    const int64_t size = from.num_bytes() / from.num_elements();
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(to.bytes() + i * size,
                  from.bytes() + (from.num_elements() == 1 ? 0 : i) * size,
                  static_cast<size_t>(size));
    }
    return graph_.AddConstant(near.name, std::move(to));
  }

  // What was spelled out anew may leave nodes behind that are not read.
  void DropUnread() {
    std::set<ValueId> read;
    for (const Port& port : graph_.outputs) read.insert(port.value);
    std::vector<Node> kept;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend();
         ++node) {
      const bool wanted =
          !node->bodies.empty() ||
          std::any_of(node->outputs.begin(), node->outputs.end(),
                      [&](ValueId id) { return read.count(id) != 0; });
      if (!wanted) continue;
      read.insert(node->inputs.begin(), node->inputs.end());
      kept.push_back(std::move(*node));
    }
    std::reverse(kept.begin(), kept.end());
    graph_.nodes = std::move(kept);
  }

  Graph& graph_;
  std::map<ValueId, Made> makers_;  // of the graph before
  bool drops_ = false;
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
  integers.fits_signed = FitsSigned(integers);
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
