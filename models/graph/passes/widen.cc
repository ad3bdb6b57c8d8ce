// Graphs of 16-bit floats are computed in FP32, for which there are kernels:
// weights are widened, casts to 16 bits are left out, and only what goes into
// the graph and comes out of it keeps its type. No CPU multiplies FP16 faster,
// and results are nearer to exact ones than if each operator rounded its own.
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"
#include "models/graph/ops/operands.h"
#include "models/graph/passes/passes.h"
#include "models/graph/row_tables.h"

namespace millrace::models::graph {
namespace {

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

bool IsWeight(const Value& value) {
  return value.constant != nullptr && value.constant->shape().rank() >= 2;
}

// Whether weights are of 16 bits, or made so. A graph of FP32 that rounds some
// value on its way means it.
bool HasHalfWeights(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (IsWeight(value) && IsHalf(value.constant->dtype())) return true;
  }
  for (const Node& node : graph.nodes) {
    if (!node.Is("Cast") || !IsWeight(graph.value(node.inputs[0]))) continue;
    const auto to = DTypeFromOnnx(node.attrs.Int("to", 0));
    if (to.has_value() && IsHalf(*to)) return true;
  }
  return false;
}

// Whether something sees the bits of its operand.
bool SeesBits(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.Is("BitCast")) return true;
    for (const auto& body : node.bodies) {
      if (SeesBits(*body)) return true;
    }
  }
  return false;
}

bool HasHalfSequences(const std::vector<Port>& ports) {
  for (const Port& port : ports) {
    if (port.is_sequence && IsHalf(port.dtype)) return true;
  }
  return false;
}

Tensor Widened(const Tensor& tensor) {
  Tensor wide = Tensor::Make(DType::kF32, tensor.shape());
  const Tensor narrow = tensor.Aligned();
  auto* to = wide.data<float>();
  DispatchFloat(tensor.dtype(), [&]<typename T>() {
    const T* from = narrow.data<T>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      to[i] = static_cast<float>(from[i]);
    }
  });
  return wide;
}

Node CastOf(const std::string& name, ValueId from, ValueId to, DType dtype) {
  return {.op = FindOp("Cast"),
          .name = name,
          .inputs = {from},
          .outputs = {to},
          .attrs = {{"to", OnnxNumber(dtype)}},
          .bodies = {}};
}

bool IsLarge(const Tensor* table) {
  return table != nullptr && table->num_bytes() >= kLargeTableBytes;
}

// Rows of these tables are widened once they are read.
void WidenRows(Graph& graph, const std::set<ValueId>& tables) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    const bool reads = node.Is("Gather") && tables.contains(node.inputs[0]);
    nodes.push_back(std::move(node));
    if (!reads) continue;
    const ValueId rows = graph.AddValue(nodes.back().name);
    const ValueId wide = std::exchange(nodes.back().outputs[0], rows);
    nodes.push_back(CastOf(nodes.back().name, rows, wide, DType::kF32));
  }
  graph.nodes = std::move(nodes);
}

// Tables of embedding bags stay as they are: their rows are widened where they
// are pooled. Large tables whose rows are gathered stay, too.
std::set<ValueId> KeepTables(Graph& graph) {
  std::map<ValueId, int32_t> reads;
  for (const Node& node : graph.nodes) {
    if (!ReadsRows(graph, node)) continue;
    const ValueId table = node.inputs[0];
    if (node.Is("EmbeddingBag") || IsLarge(graph.value(table).constant.get())) {
      ++reads[table];
    }
  }
  std::set<ValueId> tables;
  const std::vector<int32_t> uses = graph.CountUses();
  for (const auto& [id, count] : reads) {
    const Tensor* table = graph.value(id).constant.get();
    if (table != nullptr && IsHalf(table->dtype()) &&
        uses[static_cast<size_t>(id)] == count) {
      tables.insert(id);
    }
  }
  for (Node& node : graph.nodes) {
    if (node.Is("EmbeddingBag") && tables.contains(node.inputs[0])) {
      node.attrs.Set("wide", int64_t{1});
    }
  }
  WidenRows(graph, tables);
  return tables;
}

// Weights of bags that an exporter rounded for its tables are read as they
// came.
void DropCastsOfInputs(Graph& graph) {
  std::map<ValueId, ValueId> same;
  for (const Node& node : graph.nodes) {
    if (!node.Is("Cast") ||
        DTypeFromOnnx(node.attrs.Int("to", 0)) != DType::kF32) {
      continue;
    }
    for (const Port& port : graph.inputs) {
      if (port.value == node.inputs[0] && port.dtype == DType::kF32) {
        same[node.outputs[0]] = port.value;
      }
    }
  }
  for (Node& node : graph.nodes) {
    if (!node.Is("EmbeddingBag")) continue;
    for (ValueId& id : node.inputs) {
      const auto found = same.find(id);
      if (found != same.end()) id = found->second;
    }
  }
  std::erase_if(graph.nodes, [&, uses = graph.CountUses()](const Node& node) {
    return node.Is("Cast") && same.contains(node.outputs[0]) &&
           uses[static_cast<size_t>(node.outputs[0])] == 0;
  });
}

class Widening {
 public:
  void Run(Graph& graph) {
    Inside(graph, KeepTables(graph));
    DropCastsOfInputs(graph);
    std::vector<Node> casts;
    for (Port& port : graph.inputs) {
      if (!IsHalf(port.dtype)) continue;
      const ValueId wide = port.value;
      port.value = graph.AddValue(port.name);
      casts.push_back(CastOf(port.name, port.value, wide, DType::kF32));
    }
    graph.nodes.insert(graph.nodes.begin(), casts.begin(), casts.end());
    for (Port& port : graph.outputs) {
      if (!IsHalf(port.dtype)) continue;
      const ValueId wide = port.value;
      port.value = graph.AddValue(port.name);
      graph.nodes.push_back(CastOf(port.name, wide, port.value, port.dtype));
    }
  }

 private:
  // All but the ports of the whole graph.
  void Inside(Graph& graph, const std::set<ValueId>& kept) {
    for (size_t id = 0; id < graph.values.size(); ++id) {
      if (kept.contains(static_cast<ValueId>(id))) continue;
      Value& value = graph.values[id];
      if (value.type.has_value() && IsHalf(value.type->dtype)) {
        value.type->dtype = DType::kF32;
      }
      if (value.constant == nullptr || !IsHalf(value.constant->dtype())) {
        continue;
      }
      auto& wide = made_[value.constant];
      if (wide == nullptr) {
        wide = std::make_shared<const Tensor>(Widened(*value.constant));
      }
      value.constant = wide;
    }
    for (Node& node : graph.nodes) {
      for (const char* name :
           {"to", "dtype", "output_dtype", "output_datatype"}) {
        const auto dtype = DTypeFromOnnx(node.attrs.Int(name, 0));
        if (dtype.has_value() && IsHalf(*dtype)) {
          node.attrs.Set(name, OnnxNumber(DType::kF32));
        }
      }
      for (auto& body : node.bodies) body = Body(*body);
    }
  }

  std::shared_ptr<const Graph> Body(const Graph& body) {
    Graph wide = body.Copy();
    Inside(wide, {});
    for (auto* ports : {&wide.inputs, &wide.outputs}) {
      for (Port& port : *ports) {
        if (IsHalf(port.dtype)) port.dtype = DType::kF32;
      }
    }
    return std::make_shared<const Graph>(std::move(wide));
  }

  // A weight may stand in several places.
  std::map<std::shared_ptr<const Tensor>, std::shared_ptr<const Tensor>> made_;
};

}  // namespace

void WidenHalves(Graph& graph) {
  if (!HasHalfWeights(graph) || SeesBits(graph) ||
      HasHalfSequences(graph.inputs) || HasHalfSequences(graph.outputs)) {
    return;
  }
  Widening().Run(graph);
}

}  // namespace millrace::models::graph
