// The graph that both importers make and that passes, interpreter and plan
// read: values, and nodes in an order in which they can run.
//
// A node's operator means what the newest ONNX operator of that name means
// (https://onnx.ai/onnx/operators, opset 20); the few names that ONNX has not
// are described where they are declared, in models/graph/ops. Shapes, axes and
// the like that ONNX passes as tensors are tensors here too: in a graph that
// has met its input shapes they are constants.
//
//   Graph graph;
//   const ValueId x = graph.AddInput("x", DType::kF32, {{.symbol = n}, {4}});
//   const ValueId w = graph.AddConstant("w", std::move(weight));
//   const ValueId y = graph.AddNode("fc", *FindOp("MatMul"), {x, w});
//   graph.AddOutput("y", y);
//
// Bodies of If and Loop are graphs of their own that see nothing but their
// inputs: what they capture is handed in behind their formal inputs. Loop and
// Scan say in their attribute `num_carried` how many values go from one trip to
// the next.
//
// A Graph is copied on purpose only (Copy); constants are shared by copies.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/graph/attrs.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

struct OpDef;
class Graph;

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional operand left out

struct ValueType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const ValueType&) const = default;
};

// What a constant in FP32 was made of, where that is kept: its element i, which
// has index c on `axis`, is (values[i] - zeros[c]) * scales[c]. One scale alone
// belongs to all.
struct Integers {
  std::shared_ptr<const Tensor> values;  // INT8 or UINT8
  std::vector<float> scales;
  std::vector<int32_t> zeros;  // as many as scales
  int axis = 0;
  // Whether every value without its zero point fits a byte with sign, which
  // layers on bytes want: looked at once, not for each set of input sizes.
  bool fits_signed = false;
};

struct Value {
  std::string name;
  // Weights and other constants.
  std::shared_ptr<const Tensor> constant;
  std::shared_ptr<const Integers> integers;  // of the constant; may be null
  // Known once the graph has met the shapes of its inputs.
  std::optional<ValueType> type;
};

struct Node {
  const OpDef* op = nullptr;
  std::string name;              // as in the file, for messages
  std::vector<ValueId> inputs;   // kNoValue: left out
  std::vector<ValueId> outputs;  // kNoValue: not wanted
  Attrs attrs;
  std::vector<std::shared_ptr<const Graph>> bodies;  // If: then, else; Loop

  bool Is(std::string_view op_name) const;
};

// A size that differs between requests, but is one within each.
struct Symbol {
  std::string name;
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};

// One dimension of a port: a fixed size, or a symbol, or anything.
struct PortDim {
  int64_t size = -1;
  int32_t symbol = -1;
};

// An input or an output of the whole graph.
struct Port {
  std::string name;
  ValueId value = kNoValue;
  DType dtype = DType::kF32;
  std::vector<PortDim> dims;
  bool rank_known = true;
  bool is_sequence = false;  // of tensors, which have this type each
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph Copy() const { return Graph(*this); }

  ValueId AddValue(std::string_view name);
  ValueId AddConstant(std::string_view name, Tensor tensor);
  ValueId AddInput(std::string_view name, DType dtype,
                   std::vector<PortDim> dims);
  void AddOutput(std::string_view name, ValueId value);
  // Appends a node with one output, which is returned.
  ValueId AddNode(std::string_view name, const OpDef& op,
                  std::vector<ValueId> inputs, Attrs attrs = {});
  int32_t AddSymbol(std::string_view name);

  // INTERNAL when a value is read before it is made, made twice or out of
  // range: whatever an importer or a pass makes passes this.
  Status Validate() const;
  // How many nodes and outputs read each value.
  std::vector<int32_t> CountUses() const;
  // One line for each node, for tests and logs.
  std::string ToText() const;

  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const {
    return values[static_cast<size_t>(id)];
  }

  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<Symbol> symbols;

 private:
  Graph(const Graph&) = default;
};

}  // namespace millrace::models::graph
