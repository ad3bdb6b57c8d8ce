#include "models/graph/jagged.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/ops/embedding_bag.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kValues = 1;
constexpr size_t kOffsets = 2;
constexpr size_t kWeights = 3;

class Finder {
 public:
  explicit Finder(const Graph& graph)
      : graph_(graph), uses_(graph.CountUses()), casts_(graph.values.size()) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Port& port = graph.inputs[i];
      if (port.rank_known && !port.is_sequence && port.dims.size() == 1) {
        ports_[port.value] = i;
      }
    }
    for (const Node& node : graph.nodes) {
      if (node.Is("Cast") && node.outputs.size() == 1) {
        casts_[static_cast<size_t>(node.outputs[0])] = &node;
      }
    }
  }

  std::vector<JaggedFeature> Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].Is("EmbeddingBag")) Add(i);
    }
    std::vector<JaggedFeature> found;
    for (const auto& [values, feature] : features_) {
      if (feature && IsReadByBagsAlone(*feature) && IsAlone(*feature)) {
        found.push_back(*feature);
      }
    }
    return found;
  }

 private:
  std::optional<size_t> PortOf(ValueId id) const {
    const auto found = ports_.find(id);
    if (found == ports_.end()) return std::nullopt;
    return found->second;
  }
  static ValueId Operand(const Node& node, size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : kNoValue;
  }
  // What a Cast makes is as good as what it reads.
  ValueId BehindCast(ValueId id) const {
    const Node* cast =
        id == kNoValue ? nullptr : casts_[static_cast<size_t>(id)];
    return cast == nullptr ? id : cast->inputs[0];
  }

  // An EmbeddingBag that reads inputs; one that contradicts another makes the
  // feature none.
  void Add(size_t place) {
    const Node& node = graph_.nodes[place];
    const auto values = PortOf(Operand(node, kValues));
    if (!values) return;
    auto& feature =
        features_.try_emplace(*values, JaggedFeature{}).first->second;
    if (!feature) return;
    const auto offsets = PortOf(BehindCast(Operand(node, kOffsets)));
    const ValueId weight_id = Operand(node, kWeights);
    const auto weights = PortOf(BehindCast(weight_id));
    const Tensor* table = graph_.value(node.inputs[0]).constant.get();
    const bool has_end = node.attrs.Int("include_last_offset", 0) != 0;
    const bool fits = feature->bags.empty() || (feature->offsets == offsets &&
                                                feature->has_end == has_end);
    if (!offsets || !fits || table == nullptr || table->shape().rank() != 2 ||
        (weight_id != kNoValue && !weights)) {
      feature.reset();
      return;
    }
    feature->values = *values;
    feature->offsets = *offsets;
    feature->has_end = has_end;
    const int64_t rows = table->shape()[0];
    feature->num_rows =
        feature->bags.empty() ? rows : std::min(feature->num_rows, rows);
    feature->bags.push_back(place);
    auto& known = feature->weights;
    if (weights &&
        std::find(known.begin(), known.end(), *weights) == known.end()) {
      known.push_back(*weights);
    }
  }

  // Whether each reader of the inputs is one of its bags, in its place.
  bool IsReadByBagsAlone(const JaggedFeature& feature) const {
    std::map<ValueId, int32_t> reads;
    for (const size_t place : feature.bags) {
      const Node& node = graph_.nodes[place];
      for (const size_t i : {kValues, kOffsets, kWeights}) {
        const ValueId id = Operand(node, i);
        if (id != kNoValue) ++reads[id];
      }
    }
    std::map<ValueId, int32_t> of_inputs;  // by bags and by casts
    for (const auto& [id, count] : reads) {
      const ValueId input = BehindCast(id);
      if (input == id) {
        of_inputs[id] += count;
      } else if (uses_[static_cast<size_t>(id)] == count) {
        ++of_inputs[input];
      } else {
        return false;
      }
    }
    return std::all_of(
        of_inputs.begin(), of_inputs.end(), [&](const auto& each) {
          return uses_[static_cast<size_t>(each.first)] == each.second;
        });
  }

  // Whether no other feature has its offsets or weights: one that has as many
  // rows may have another number of values.
  bool IsAlone(const JaggedFeature& feature) const {
    for (const auto& [values, other] : features_) {
      if (!other || other->values == feature.values) continue;
      if (other->offsets == feature.offsets) return false;
      for (const size_t weights : feature.weights) {
        const auto& own = other->weights;
        if (std::find(own.begin(), own.end(), weights) != own.end()) {
          return false;
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const std::vector<int32_t> uses_;
  std::map<ValueId, size_t> ports_;  // of rank 1
  std::vector<const Node*> casts_;   // that make each value
  // By the place of the values; null: no feature after all.
  std::map<size_t, std::optional<JaggedFeature>> features_;
};

// A Cast between them would read as many as the plan was made for.
bool TakesWeightsAsTheyCome(const Graph& graph, const JaggedFeature& feature,
                            const Node& bag) {
  if (bag.inputs.size() <= kWeights || bag.inputs[kWeights] == kNoValue) {
    return true;
  }
  return std::any_of(feature.weights.begin(), feature.weights.end(),
                     [&](size_t input) {
                       return graph.inputs[input].value == bag.inputs[kWeights];
                     });
}

template <typename T>
void Fill(const JaggedFeature& feature, Tensor& values) {
  T* to = values.data<T>();
  const int64_t rows = std::max<int64_t>(feature.num_rows, 1);
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    to[i] = static_cast<T>(i % rows);
  }
}

template <typename T>
void Spread(int64_t values, bool has_end, Tensor& offsets) {
  T* to = offsets.data<T>();
  const int64_t count = offsets.num_elements();
  const int64_t rows = std::max<int64_t>(has_end ? count - 1 : count, 1);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<T>(std::min(i * values / rows, values));
  }
}

}  // namespace

std::vector<JaggedFeature> FindJagged(const Graph& graph) {
  return Finder(graph).Run();
}

std::vector<bool> HoldsJaggedValues(const Graph& graph) {
  std::vector<bool> holds(graph.inputs.size());
  for (const JaggedFeature& feature : FindJagged(graph)) {
    const bool by_kernels = std::all_of(
        feature.bags.begin(), feature.bags.end(), [&](size_t place) {
          const Node& bag = graph.nodes[place];
          return PoolsByKernel(bag,
                               graph.value(bag.inputs[0]).constant->dtype()) &&
                 TakesWeightsAsTheyCome(graph, feature, bag);
        });
    if (!by_kernels) continue;
    holds[feature.values] = true;
    for (const size_t weights : feature.weights) holds[weights] = true;
  }
  return holds;
}

void SizeJaggedEnds(const Graph& graph, std::map<std::string, int64_t>& sizes) {
  const std::vector<JaggedFeature> features = FindJagged(graph);
  std::vector<bool> is_part(graph.inputs.size());
  for (const JaggedFeature& feature : features) {
    is_part[feature.values] = is_part[feature.offsets] = true;
    for (const size_t weights : feature.weights) is_part[weights] = true;
  }
  const auto name_of = [&](const Port& port) {
    const bool varies = !port.dims.empty() && port.dims[0].symbol >= 0;
    return varies ? graph.symbols[static_cast<size_t>(port.dims[0].symbol)].name
                  : std::string();
  };
  int64_t rows = 1;
  for (size_t i = graph.inputs.size(); i-- > 0;) {
    const auto found = sizes.find(name_of(graph.inputs[i]));
    if (!is_part[i] && found != sizes.end()) rows = found->second;
  }
  for (const JaggedFeature& feature : features) {
    const std::string name = name_of(graph.inputs[feature.offsets]);
    if (feature.has_end && !name.empty()) sizes.emplace(name, rows + 1);
  }
}

void FillJagged(const Graph& graph, std::vector<Tensor>& inputs) {
  for (const JaggedFeature& feature : FindJagged(graph)) {
    Tensor& values = inputs[feature.values];
    Tensor& offsets = inputs[feature.offsets];
    const int64_t count = values.num_elements();
    values.dtype() == DType::kI32 ? Fill<int32_t>(feature, values)
                                  : Fill<int64_t>(feature, values);
    offsets.dtype() == DType::kI32
        ? Spread<int32_t>(count, feature.has_end, offsets)
        : Spread<int64_t>(count, feature.has_end, offsets);
  }
}

}  // namespace millrace::models::graph
