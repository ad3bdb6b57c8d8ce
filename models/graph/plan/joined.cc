// Concats are visited from the last to the first: of those that share operands
// the last one is the largest, mostly, and an operand that is itself a Concat
// has its place before its own operands look for theirs.
#include "models/graph/plan/joined.h"

#include <algorithm>

#include "models/graph/op.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/alias.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

int64_t RowsOf(const Shape& shape) {
  return shape.Product(0, shape.rank() - 1);
}

int AxisOf(const Node& node, const Shape& shape) {
  const auto axis = static_cast<int>(node.attrs.Int("axis", 0));
  return axis < 0 ? axis + shape.rank() : axis;
}

// Whether parts of the result are rows at one distance, or one piece.
bool IsOfRows(const Node& node, const Graph& graph) {
  const Shape& out = graph.value(node.outputs[0]).type->shape;
  const int axis = AxisOf(node, out);
  return axis == out.rank() - 1 || out.Product(0, axis) == 1;
}

// Elementwise steps walk rows at a distance one by one, dense ones many at
// once: rows that are one by one anyhow, or long enough.
bool WalksRows(const Node& node, const Graph& graph) {
  constexpr int64_t kLong = 64;
  const Shape& out = graph.value(node.outputs[0]).type->shape;
  return out.back() >= kLong ||
         std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
           const Shape& x = graph.value(id).type->shape;
           return x.num_elements() > 1 && x != out;
         });
}

// Whether the node's step can write rows at a distance.
bool WritesApart(const Node& node, const Graph& graph, const Kernels& kernels) {
  if (StandsSideBySide(node, graph)) {
    // A column of the kernel is to be whole panels.
    const bool rounds = kernels.bf16 != nullptr && node.attrs.Int("bf16", 0);
    const int64_t panel = rounds ? kernels.bf16->panel : kernels.dense.panel;
    return graph.value(node.outputs[0]).type->shape.back() % panel == 0;
  }
  if (node.op == &fused::kPointwise) {
    // The result is walked as one operand more.
    return node.inputs.size() < kMaxBroadcast && WalksRows(node, graph);
  }
  return node.op == &fused::kConv || node.op == &fused::kConvTranspose ||
         node.op == &fused::kLinear || node.op == &fused::kPool ||
         node.op == &fused::kResize ||
         (node.Is("Concat") && IsOfRows(node, graph));
}

// Whether it can read rows of operand i at a distance.
bool ReadsApart(const Node& node, size_t i, const Graph& graph) {
  if (StandsSideBySide(node, graph)) return i == 0;
  if (node.op == &fused::kConv || node.op == &fused::kConvTranspose ||
      node.op == &fused::kLinear) {
    return i == 0 || i >= fused::kResidual;
  }
  if (node.op == &fused::kPool || node.op == &fused::kResize) return i == 0;
  if (node.op == &fused::kPointwise) return WalksRows(node, graph);
  return node.Is("Concat") && IsOfRows(node, graph);
}

// Rows at a distance are no stream that a core would foresee: beyond the L2
// cache they are slow to read (a MaxPool of 224 x 224 x 32 in 64: 1.26 ms
// instead of 0.30, and the copy took 0.6; Zen 4), unless a step asks for them
// ahead, or reads nothing but the whole.
constexpr int64_t kNear = 1 << 20;
bool AsksAhead(const Node& node) {
  return node.op == &fused::kPointwise || node.Is("Concat");
}

class JoinPass {
 public:
  JoinPass(const Graph& graph, const Kernels& kernels)
      : graph_(graph),
        kernels_(kernels),
        places_(Apart(graph)),
        facts_(graph.values.size()) {}

  std::vector<Place> Run() {
    Look();
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (graph_.nodes[i].Is("Concat")) Join(graph_.nodes[i]);
    }
    return std::move(places_);
  }

 private:
  struct Reader {
    const Node* node;
    size_t operand;
  };
  // Of a value; of one with several names, which are one storage, the first.
  struct Facts {
    ValueId name_of = kNoValue;
    const Node* maker = nullptr;
    std::vector<Reader> readers;
    std::vector<ValueId> names;
    bool is_fixed = false;  // a constant, or the caller's
  };

  Facts& Of(ValueId id) {
    return facts_[static_cast<size_t>(facts_[static_cast<size_t>(id)].name_of)];
  }
  ValueId Name(ValueId id) { return facts_[static_cast<size_t>(id)].name_of; }
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }
  int64_t BytesOf(ValueId id) const {
    return ShapeOf(id).num_elements() *
           DTypeBytes(graph_.value(id).type->dtype);
  }

  void Look() {
    for (size_t id = 0; id < facts_.size(); ++id) {
      facts_[id].name_of = static_cast<ValueId>(id);
      facts_[id].names = {static_cast<ValueId>(id)};
      facts_[id].is_fixed = graph_.values[id].constant != nullptr ||
                            !graph_.values[id].type.has_value();
    }
    for (const Node& node : graph_.nodes) {
      if (IsAlias(node, graph_)) {
        facts_[static_cast<size_t>(node.outputs[0])].name_of =
            Name(node.inputs[0]);
        Of(node.inputs[0]).names.push_back(node.outputs[0]);
        continue;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        Of(node.inputs[i]).readers.push_back({&node, i});
      }
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) Of(id).maker = &node;
      }
    }
    for (const auto* ports : {&graph_.inputs, &graph_.outputs}) {
      for (const Port& port : *ports) Of(port.value).is_fixed = true;
    }
  }

  void Join(const Node& node) {
    const ValueId y = node.outputs[0];
    if (ShapeOf(y).num_elements() == 0 || IsPartAsItIs(node)) return;
    const std::vector<Place> wanted = WantedPlaces(node, graph_, places_);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (CanLie(node.inputs[i], wanted[i])) Put(node.inputs[i], wanted[i]);
    }
  }

  // The operands lie side by side already, and so the result may lie there.
  bool IsPartAsItIs(const Node& node) {
    const ValueId y = node.outputs[0];
    Place place = places_[static_cast<size_t>(node.inputs[0])];
    if (RowsOf(ShapeOf(y)) == 1) place.distance = ShapeOf(y).back();
    if (place.storage == kNoValue || !CanLie(y, place)) return false;
    Put(y, place);
    if (IsJoined(node, graph_, places_)) return true;
    Put(y, {});
    return false;
  }

  // Its other names lie there as well; all are dense where there are such.
  void Put(ValueId id, const Place& place) {
    for (const ValueId name : Of(id).names) {
      Place& of = places_[static_cast<size_t>(name)];
      of.storage = place.storage;
      of.offset = place.offset;
      of.distance = ShapeOf(name).rank() == 0 ? 0 : ShapeOf(name).back();
    }
    if (place.storage != kNoValue) {
      places_[static_cast<size_t>(id)].distance = place.distance;
    }
  }

  bool CanLie(ValueId id, const Place& place) {
    const ValueType& type = *graph_.value(id).type;
    Facts& facts = Of(id);
    if (facts.is_fixed || facts.maker == nullptr ||
        places_[static_cast<size_t>(id)].storage != kNoValue ||
        type.shape.num_elements() == 0) {
      return false;
    }
    if (type.dtype == DType::kBF16 &&
        (place.offset % 2 != 0 || place.distance % 2 != 0)) {
      return false;
    }
    if (place.distance == type.shape.back() || RowsOf(type.shape) == 1) {
      return true;
    }
    const bool near = BytesOf(place.storage) <= kNear;
    return facts.names.size() == 1 &&
           WritesApart(*facts.maker, graph_, kernels_) &&
           std::all_of(facts.readers.begin(), facts.readers.end(),
                       [&](const Reader& reader) {
                         return ReadsApart(*reader.node, reader.operand,
                                           graph_) &&
                                (near || AsksAhead(*reader.node));
                       });
  }

  const Graph& graph_;
  const Kernels& kernels_;
  std::vector<Place> places_;
  std::vector<Facts> facts_;  // of each value
};

}  // namespace

std::vector<Place> Apart(const Graph& graph) {
  std::vector<Place> places(graph.values.size());
  for (size_t id = 0; id < places.size(); ++id) {
    const auto& type = graph.values[id].type;
    if (type && type->shape.rank() > 0)
      places[id].distance = type->shape.back();
  }
  return places;
}

std::vector<Place> JoinValues(const Graph& graph, const Kernels& kernels) {
  return JoinPass(graph, kernels).Run();
}

std::vector<Place> WantedPlaces(const Node& node, const Graph& graph,
                                const std::vector<Place>& places) {
  const ValueId y = node.outputs[0];
  const Shape& out = graph.value(y).type->shape;
  if (!IsOfRows(node, graph)) return {};
  const bool side_by_side = AxisOf(node, out) == out.rank() - 1;
  Place at = places[static_cast<size_t>(y)];
  if (at.storage == kNoValue) at = {y, 0, out.back()};
  std::vector<Place> wanted;
  for (const ValueId id : node.inputs) {
    const Shape& x = graph.value(id).type->shape;
    wanted.push_back(at);
    if (RowsOf(x) == 1) wanted.back().distance = x.back();
    at.offset += side_by_side ? x.back() : RowsOf(x) * at.distance;
  }
  return wanted;
}

bool LiesAt(ValueId id, const Place& wanted, const Graph& graph,
            const std::vector<Place>& places) {
  return places[static_cast<size_t>(id)] == wanted ||
         graph.value(id).type->shape.num_elements() == 0;
}

bool IsJoined(const Node& node, const Graph& graph,
              const std::vector<Place>& places) {
  if (!node.Is("Concat")) return false;
  const std::vector<Place> wanted = WantedPlaces(node, graph, places);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!LiesAt(node.inputs[i], wanted[i], graph, places)) return false;
  }
  return !wanted.empty();
}

}  // namespace millrace::models::graph
