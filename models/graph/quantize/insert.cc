// Inputs are quantised by one scale with a zero point, weights by a scale for
// each output, from -127 to 127. What a convolution reads is quantised for all
// of its readers, so that images stay bytes from layer to layer; what a linear
// layer reads only for linear layers, since norms and residuals of transformers
// want their digits.
#include "models/graph/quantize/insert.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/quantize/tables.h"

namespace millrace::models::graph {
namespace {

bool IsQuantizable(const Graph& graph, const Node& node) {
  const LayerFacts* layer = node.op->facts.layer;
  if (layer == nullptr || node.inputs.size() < 2 ||
      node.inputs[0] == kNoValue || node.inputs[1] == kNoValue ||
      graph.value(node.inputs[0]).constant ||
      (layer->has_int8 != nullptr && !layer->has_int8(node))) {
    return false;
  }
  const auto& weight = graph.value(node.inputs[1]).constant;
  return weight != nullptr && weight->dtype() == DType::kF32 &&
         weight->num_elements() > 0 &&
         weight->shape().rank() >= layer->min_weight_rank &&
         weight->shape().rank() <= layer->max_weight_rank;
}

// The weight in bytes, and what they stand for.
Value QuantizedWeight(const Value& from, int axis) {
  const Tensor& weight = *from.constant;
  const Shape& shape = weight.shape();
  const int64_t n = shape[axis];
  const int64_t inner = shape.Product(axis + 1, shape.rank());
  const float* w = weight.data<float>();
  const auto output = [&](int64_t i) {
    return static_cast<size_t>(i / inner % n);
  };
  Integers integers{.values = nullptr,
                    .scales = std::vector<float>(static_cast<size_t>(n)),
                    .zeros = std::vector<int32_t>(static_cast<size_t>(n)),
                    .axis = axis,
                    .fits_signed = true};
  for (int64_t i = 0; i < weight.num_elements(); ++i) {
    float& most = integers.scales[output(i)];
    most = std::max(most, std::abs(w[i]));
  }
  for (float& scale : integers.scales) {
    scale = std::max(scale / 127.0f, 1e-20f);
  }
  Tensor bytes = Tensor::Make(DType::kI8, shape);
  Tensor floats = Tensor::Make(DType::kF32, shape);
  for (int64_t i = 0; i < weight.num_elements(); ++i) {
    const float scale = integers.scales[output(i)];
    const float q = std::clamp(std::nearbyint(w[i] / scale), -127.0f, 127.0f);
    bytes.data<int8_t>()[i] = static_cast<int8_t>(q);
    floats.data<float>()[i] = q * scale;
  }
  integers.values = std::make_shared<const Tensor>(std::move(bytes));
  Value value = from;
  value.constant = std::make_shared<const Tensor>(std::move(floats));
  value.integers = std::make_shared<const Integers>(std::move(integers));
  return value;
}

// Tables in fewer bytes, each made once though several bags may read it.
class ReducedTables {
 public:
  explicit ReducedTables(Graph& graph) : graph_(graph) {}

  void Use(Node& node, const QuantizedLayer& layer) {
    if (!layer.in_bytes && !layer.in_halves) return;
    const auto key = std::pair(node.inputs[0], layer.in_bytes);
    const auto made = made_.find(key);
    if (made != made_.end()) {
      return UseTable(graph_, node, made->second->Share());
    }
    const Tensor& table = *graph_.value(node.inputs[0]).constant;
    Tensor reduced = layer.in_bytes ? RowsInBytes(table) : RowsInHalves(table);
    table.DropPages();
    made_[key] = std::make_unique<Tensor>(reduced.Share());
    UseTable(graph_, node, std::move(reduced));
  }

 private:
  Graph& graph_;
  std::map<std::pair<ValueId, bool>, std::unique_ptr<Tensor>> made_;
};

struct Made {
  ValueId value;
  std::vector<Node> nodes;
};

// QuantizeLinear and DequantizeLinear of a value.
Made Rounded(Graph& graph, ValueId x, float low, float high) {
  const float scale = std::max((high - low) / 255.0f, 1e-20f);
  Tensor zero = Tensor::Make(DType::kU8, {});
  *zero.data<uint8_t>() = static_cast<uint8_t>(
      std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f));
  const std::string name = graph.value(x).name;
  const ValueId s = graph.AddConstant(name, Tensor::Scalar(scale));
  const ValueId z = graph.AddConstant(name, std::move(zero));
  const ValueId bytes = graph.AddValue(name);
  const ValueId floats = graph.AddValue(name);
  const auto node = [&](std::string_view op, ValueId in, ValueId out) {
    return Node{.op = FindOp(op),
                .name = name,
                .inputs = {in, s, z},
                .outputs = {out},
                .attrs = {},
                .bodies = {}};
  };
  return {floats,
          {node("QuantizeLinear", x, bytes),
           node("DequantizeLinear", bytes, floats)}};
}

}  // namespace

std::vector<QuantizableLayer> QuantizableLayers(const Graph& graph) {
  std::vector<QuantizableLayer> layers;
  std::map<std::string, int> seen;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool is_table = HasFloatTable(graph, node);
    if (!is_table && !IsQuantizable(graph, node)) continue;
    const int count = ++seen[node.name];
    layers.push_back(
        {count == 1 ? node.name : node.name + "#" + std::to_string(count), i,
         is_table});
  }
  return layers;
}

Status InsertQuantization(Graph& graph, const QuantizationTable& table) {
  std::map<std::string, size_t> places;
  std::set<size_t> tables;
  for (const QuantizableLayer& layer : QuantizableLayers(graph)) {
    places[layer.name] = layer.node;
    if (layer.is_table) tables.insert(layer.node);
  }
  ReducedTables reduced(graph);
  // The first layer to name a range of a value decides it.
  struct Range {
    float low, high;
    bool for_all;
  };
  std::map<ValueId, Range> ranges;
  std::vector<bool> in_bytes(graph.nodes.size());
  for (const QuantizedLayer& layer : table.layers) {
    const auto place = places.find(layer.name);
    if (place == places.end()) {
      return InvalidArgument("the quantisation has a layer '" + layer.name +
                             "' that the model has not; make it anew with "
                             "millrace quantize");
    }
    if (tables.contains(place->second)) {
      reduced.Use(graph.nodes[place->second], layer);
      continue;
    }
    if (layer.in_halves) {
      return InvalidArgument("the quantisation has the layer '" + layer.name +
                             "' in f16, which embedding tables alone can be; "
                             "let its precision be int8 or f32");
    }
    if (!layer.in_bytes) continue;
    Node& node = graph.nodes[place->second];
    in_bytes[place->second] = true;
    const auto [range, is_new] =
        ranges.try_emplace(node.inputs[0], Range{layer.low, layer.high, false});
    range->second.for_all =
        range->second.for_all || node.op->facts.layer->min_weight_rank > 2;
    const ValueId weight = graph.AddValue(node.name);
    graph.value(weight) = QuantizedWeight(
        graph.value(node.inputs[1]), node.op->facts.layer->outputs_axis(node));
    node.inputs[1] = weight;
  }
  std::map<ValueId, ValueId> rounded;
  std::vector<Node> nodes;
  const auto put = [&](ValueId id) {
    const auto range = ranges.find(id);
    if (range == ranges.end()) return;
    Made made = Rounded(graph, id, range->second.low, range->second.high);
    rounded[id] = made.value;
    for (Node& node : made.nodes) nodes.push_back(std::move(node));
  };
  for (const Port& port : graph.inputs) put(port.value);
  std::vector<Node> old = std::move(graph.nodes);
  for (size_t i = 0; i < old.size(); ++i) {
    for (size_t k = 0; k < old[i].inputs.size(); ++k) {
      ValueId& id = old[i].inputs[k];
      const auto found = rounded.find(id);
      if (found == rounded.end() || !old[i].bodies.empty()) continue;
      if ((in_bytes[i] && k == 0) || ranges.find(id)->second.for_all) {
        id = found->second;
      }
    }
    const std::vector<ValueId> outputs = old[i].outputs;
    nodes.push_back(std::move(old[i]));
    for (const ValueId id : outputs) {
      if (id != kNoValue) put(id);
    }
  }
  graph.nodes = std::move(nodes);
  return graph.Validate();
}

}  // namespace millrace::models::graph
