#include "models/graph/dim_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/infer_and_fold.h"

namespace millrace::models::graph {
namespace {

// The size of all dimensions but the batch and of the one that is looked at:
// most graphs take all of them; convolutions want images that are large enough
// and of whole blocks. None is 1, which any size may stand beside.
struct Pair {
  int64_t all;
  int64_t other;
};
constexpr std::array<Pair, 3> kTrials = {{{16, 24}, {64, 96}, {224, 288}}};
constexpr int64_t kTrialRows = 2;

struct Occurrence {
  size_t input;
  size_t axis;
};

int32_t AddOwnSymbol(Graph& graph, const Port& port, size_t axis) {
  std::string name = port.name + "." + std::to_string(axis);
  const auto is_taken = [&] {
    return std::any_of(graph.symbols.begin(), graph.symbols.end(),
                       [&](const Symbol& s) { return s.name == name; });
  };
  while (is_taken()) name += "_";
  return graph.AddSymbol(name);
}

std::vector<Occurrence> Find(const Graph& graph, int32_t symbol) {
  std::vector<Occurrence> found;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::vector<PortDim>& dims = graph.inputs[i].dims;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis].symbol == symbol) found.push_back({i, axis});
    }
  }
  return found;
}

bool IsFirstDim(const Graph& graph, int32_t symbol) {
  return std::any_of(
      graph.inputs.begin(), graph.inputs.end(), [&](const Port& port) {
        return !port.dims.empty() && port.dims[0].symbol == symbol;
      });
}

// Whether the graph has shapes when this one dimension differs from all others.
bool Passes(const Graph& graph, const Occurrence& apart, const Pair& sizes) {
  const auto size_of = [&](const PortDim& dim, bool is_apart) {
    if (dim.symbol < 0) return dim.size;
    const Symbol& range = graph.symbols[static_cast<size_t>(dim.symbol)];
    const bool is_batch = IsFirstDim(graph, dim.symbol) && !is_apart;
    return std::clamp(is_batch   ? kTrialRows
                      : is_apart ? sizes.other
                                 : sizes.all,
                      range.min, range.max);
  };
  std::vector<ValueType> types;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Port& port = graph.inputs[i];
    if (!port.rank_known || port.is_sequence) return false;
    std::vector<int64_t> dims;
    for (size_t axis = 0; axis < port.dims.size(); ++axis) {
      const bool is_apart = i == apart.input && axis == apart.axis;
      dims.push_back(size_of(port.dims[axis], is_apart));
      // A range that leaves no other size proves nothing.
      if (is_apart && dims.back() == size_of(port.dims[axis], false)) {
        return false;
      }
    }
    const StatusOr<Shape> shape = Shape::Checked(dims);
    if (!shape.ok()) return false;
    types.push_back({port.dtype, *shape});
  }
  return InferAndFold(graph, types).ok();
}

}  // namespace

void NameOpenDims(Graph& graph) {
  for (Port& port : graph.inputs) {
    for (size_t axis = 0; axis < port.dims.size(); ++axis) {
      PortDim& dim = port.dims[axis];
      if (dim.size < 0 && dim.symbol < 0) {
        dim.symbol = AddOwnSymbol(graph, port, axis);
      }
    }
  }
}

void SeparateDims(Graph& graph) {
  const auto num_symbols = static_cast<int32_t>(graph.symbols.size());
  for (int32_t symbol = 0; symbol < num_symbols; ++symbol) {
    std::vector<Occurrence> all = Find(graph, symbol);
    // The last first, so that the first keeps the name.
    for (size_t i = all.size(); i-- > 0 && all.size() > 1;) {
      const Occurrence one = all[i];
      if (one.axis == 0) continue;
      const auto passes = [&](const Pair& sizes) {
        return Passes(graph, one, sizes);
      };
      if (!std::any_of(kTrials.begin(), kTrials.end(), passes)) continue;
      Port& port = graph.inputs[one.input];
      const Symbol range = graph.symbols[static_cast<size_t>(symbol)];
      const int32_t own = AddOwnSymbol(graph, port, one.axis);
      graph.symbols.back().min = range.min;
      graph.symbols.back().max = range.max;
      port.dims[one.axis].symbol = own;
      all.erase(all.begin() + static_cast<int64_t>(i));
    }
  }
}

}  // namespace millrace::models::graph
