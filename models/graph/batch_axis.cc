#include "models/graph/batch_axis.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "models/graph/infer_and_fold.h"
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

}  // namespace

BatchAxis FindBatchAxis(const Graph& graph) {
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

}  // namespace millrace::models::graph
