#include "models/graph/batch_axis.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "models/graph/infer_and_fold.h"
#include "models/graph/ops/embedding_bag.h"
#include "models/graph/passes/batch_rows.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

// Sizes to try for dimensions that vary, other than the batch: most graphs take
// all of them; convolutions want images that are large enough.
constexpr std::array<int64_t, 3> kTrialSizes = {16, 64, 224};

BatchAxis NotBatchable(std::string reason) {
  BatchAxis axis;
  axis.reason = std::move(reason);
  return axis;
}

std::string Named(const char* what, const Port& port) {
  return std::string(what) + " '" + port.name + "'";
}

class Trial {
 public:
  Trial(const Graph& graph, int32_t symbol, int64_t size)
      : graph_(graph), symbol_(symbol), size_(size) {}

  // Empty when the rows of a batch of `rows` are proven independent.
  StatusOr<std::string> WhyNot(int64_t rows) const {
    ASSIGN_OR_RETURN(const Graph whole, Optimised(rows));
    ASSIGN_OR_RETURN(const Graph more, Optimised(rows + 1));
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Port& port = graph_.outputs[i];
      const Shape& shape = whole.value(whole.outputs[i].value).type->shape;
      if (shape.rank() > 0 && shape[0] == rows) continue;
      return Named("output", port) + " has the shape " + shape.ToString() +
             " for a batch of " + std::to_string(rows) +
             ", not one row for each";
    }
    return WhyRowsMeet(whole, more, rows,
                       std::vector<bool>(graph_.inputs.size(), true));
  }

 private:
  StatusOr<Graph> Optimised(int64_t rows) const {
    std::vector<ValueType> types;
    for (const Port& port : graph_.inputs) {
      std::vector<int64_t> dims;
      for (const PortDim& dim : port.dims) dims.push_back(SizeOf(dim, rows));
      ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
      types.push_back({port.dtype, shape});
    }
    ASSIGN_OR_RETURN(Graph typed, InferAndFold(graph_, types));
    return Optimise(std::move(typed));
  }
  int64_t SizeOf(const PortDim& dim, int64_t rows) const {
    if (dim.symbol == symbol_) return rows;
    if (dim.symbol < 0) return dim.size >= 0 ? dim.size : size_;
    const Symbol& range = graph_.symbols[static_cast<size_t>(dim.symbol)];
    return std::clamp(size_, range.min, range.max);
  }

  const Graph& graph_;
  const int32_t symbol_;
  const int64_t size_;
};

// The graph with what each bag of a jagged feature makes as an input, a row for
// each row of the batch, instead of the feature's inputs.
Graph WithPooledInputs(const Graph& graph,
                       const std::vector<JaggedFeature>& features,
                       const PortDim& rows) {
  Graph pooled = graph.Copy();
  std::vector<bool> drops_port(graph.inputs.size());
  std::vector<bool> drops_node(graph.nodes.size());
  std::vector<Port> ports;
  for (const JaggedFeature& feature : features) {
    drops_port[feature.values] = drops_port[feature.offsets] = true;
    for (const size_t weights : feature.weights) drops_port[weights] = true;
    for (const size_t place : feature.bags) {
      const Node& bag = graph.nodes[place];
      drops_node[place] = true;
      const Tensor& table = *graph.value(bag.inputs[0]).constant;
      const bool rowwise = bag.attrs.Int("rowwise", 0) != 0;
      PortDim size;
      size.size = table.shape()[1] - (rowwise ? kInt8RowExtra : 0);
      ports.push_back({.name = bag.name,
                       .value = bag.outputs[0],
                       .dtype = PoolsByKernel(bag, table.dtype())
                                    ? DType::kF32
                                    : table.dtype(),
                       .dims = {rows, size}});
    }
  }
  pooled.inputs.clear();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!drops_port[i]) pooled.inputs.push_back(graph.inputs[i]);
  }
  for (Port& port : ports) pooled.inputs.push_back(std::move(port));
  pooled.nodes.clear();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    // Casts of offsets and weights have no reader any more.
    const Node& node = graph.nodes[i];
    bool has_reader = true;
    for (size_t port = 0; node.Is("Cast") && port < drops_port.size(); ++port) {
      if (drops_port[port] && graph.inputs[port].value == node.inputs[0]) {
        has_reader = false;
      }
    }
    if (!drops_node[i] && has_reader) pooled.nodes.push_back(node);
  }
  return pooled;
}

// Of the inputs that are not jagged, else of offsets without an end, else of
// those with one, which counts as a row; its symbol may be none.
PortDim RowsOf(const Graph& graph, const std::vector<JaggedFeature>& features) {
  std::vector<bool> is_jagged(graph.inputs.size());
  PortDim rows;
  for (const JaggedFeature& feature : features) {
    is_jagged[feature.values] = is_jagged[feature.offsets] = true;
    for (const size_t weights : feature.weights) is_jagged[weights] = true;
  }
  for (const bool has_end : {false, true}) {
    for (const JaggedFeature& feature : features) {
      if (rows.symbol >= 0 || feature.has_end != has_end) continue;
      rows = graph.inputs[feature.offsets].dims[0];
    }
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Port& port = graph.inputs[i];
    if (!is_jagged[i] && !port.dims.empty()) return port.dims[0];
  }
  return rows;
}

// The symbol of the first dimension of all inputs, or why there is none.
StatusOr<int32_t> LeadingSymbol(const Graph& graph) {
  int32_t symbol = -1;
  const Port* first = nullptr;
  for (const Port& port : graph.inputs) {
    if (!port.rank_known || port.is_sequence || port.dims.empty()) {
      return Unimplemented(Named("input", port) +
                           " has no first dimension that could be the batch");
    }
    const PortDim& dim = port.dims[0];
    if (dim.symbol < 0) {
      return Unimplemented(
          "the first dimension of " + Named("input", port) +
          (dim.size >= 0 ? " is always " + std::to_string(dim.size)
                         : " has no name that other inputs could share"));
    }
    if (first != nullptr && dim.symbol != symbol) {
      return Unimplemented("the first dimensions of " + Named("input", *first) +
                           " and of '" + port.name + "' differ");
    }
    symbol = dim.symbol;
    first = &port;
  }
  if (first == nullptr) return Unimplemented("the graph has no inputs");
  return symbol;
}

BatchAxis ProveRows(const Graph& graph) {
  const StatusOr<int32_t> symbol = LeadingSymbol(graph);
  if (!symbol.ok()) return NotBatchable(std::string(symbol.status().message()));
  const Symbol& range = graph.symbols[static_cast<size_t>(*symbol)];
  // With one row the proof cannot see whether rows affect each other.
  const int64_t rows = std::max<int64_t>(range.min, 2);
  if (range.max <= rows) {
    return NotBatchable("'" + range.name + "' is at most " +
                        std::to_string(range.max));
  }
  // Sizes that the graph does not take tell nothing; two that it takes must
  // agree, since some graphs change with the size.
  int num_proofs = 0;
  std::optional<Status> failure;
  for (const int64_t size : kTrialSizes) {
    const StatusOr<std::string> why = Trial(graph, *symbol, size).WhyNot(rows);
    if (!why.ok()) {
      failure = why.status();
      continue;
    }
    if (!why->empty()) return NotBatchable(*why);
    if (++num_proofs == 2) break;
  }
  if (num_proofs == 0) {
    return NotBatchable("its shapes cannot be known before it runs: " +
                        std::string(failure->message()));
  }
  return {.batchable = true,
          .symbol = *symbol,
          .min_rows = range.min,
          .max_rows = range.max};
}

}  // namespace

bool CountsAnEnd(const BatchAxis& axis, const std::vector<Port>& inputs) {
  return axis.batchable &&
         std::any_of(axis.jagged.begin(), axis.jagged.end(),
                     [&](const JaggedFeature& feature) {
                       return feature.has_end &&
                              inputs[feature.offsets].dims[0].symbol ==
                                  axis.symbol;
                     });
}

BatchAxis FindBatchAxis(const Graph& whole) {
  const std::vector<JaggedFeature> jagged = FindJagged(whole);
  if (!jagged.empty()) {
    BatchAxis axis =
        ProveRows(WithPooledInputs(whole, jagged, RowsOf(whole, jagged)));
    axis.jagged = jagged;
    if (CountsAnEnd(axis, whole.inputs)) {
      axis.min_rows = std::max<int64_t>(axis.min_rows - 1, 1);
      axis.max_rows -= 1;
    }
    return axis;
  }
  return ProveRows(whole);
}

}  // namespace millrace::models::graph
