#include "models/graph/infer_and_fold.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "models/graph/fold_sequences.h"
#include "models/graph/interpret/parts.h"
#include "models/graph/interpreter.h"
#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"
#include "models/graph/string_types.h"

namespace millrace::models::graph {
namespace {

// A constant that is expanded to more than this stays small.
constexpr int64_t kMostExpandedBytes = int64_t{64} << 10;

// Whether a node has no effect: its result is its operand, as of an Expand to
// the size it has, a Slice of everything, a Cast to its own type.
bool IsNeedless(const Call& call, const std::vector<ValueType>& types) {
  const OpFacts& facts = call.node.op->facts;
  return types.size() == 1 && call.arg(0).given &&
         types[0] == ValueType{call.arg(0).dtype, call.arg(0).shape} &&
         (facts.reshapes ||
          (facts.is_needless != nullptr && facts.is_needless(call)));
}

// From the values of the graph (or body) being read to those being made.
using Mapping = std::vector<ValueId>;

class Folder {
 public:
  Folder(const Graph& from, bool types_known, const FoldLimits& limits)
      : types_known_(types_known),
        limits_(limits),
        sequences_(&made_, [this](const Node& near, std::string_view op,
                                  std::vector<ValueId> operands, Attrs attrs) {
          return Made(near, op, std::move(operands), std::move(attrs));
        }) {
    made_.name = from.name;
    made_.symbols = from.symbols;
  }

  StatusOr<Graph> Run(const Graph& from, const std::vector<ValueType>& types,
                      const std::vector<const Tensor*>& known) {
    Mapping mapping(from.values.size(), kNoValue);
    for (size_t i = 0; i < from.inputs.size(); ++i) {
      const Port& port = from.inputs[i];
      const ValueId id = made_.AddInput(port.name, port.dtype, port.dims);
      made_.inputs.back().rank_known = port.rank_known;
      ValueId seen = id;
      if (types_known_) made_.value(id).type = types[i];
      if (i < known.size() && known[i] != nullptr) {
        seen = made_.AddConstant(port.name, known[i]->Share());
      }
      mapping[static_cast<size_t>(port.value)] = seen;
    }
    RETURN_IF_ERROR(Nodes(from, mapping));
    for (const Port& port : from.outputs) {
      ASSIGN_OR_RETURN(const ValueId id, Mapped(from, mapping, port.value));
      if (sequences_.Any({id}))
        return NeedsBytes("a sequence that is a result");
      Port& made = made_.outputs.emplace_back(port);
      made.value = id;
    }
    DropUnread();
    return std::move(made_);
  }

 private:
  // ---- walking ----
  StatusOr<ValueId> Mapped(const Graph& from, Mapping& mapping, ValueId id) {
    if (id == kNoValue) return kNoValue;
    ValueId& to = mapping[static_cast<size_t>(id)];
    if (to == kNoValue) {
      const Value& value = from.value(id);
      CHECK(value.constant != nullptr, "values are made before they are read");
      to = made_.AddValue(value.name);
      made_.value(to) = value;
    }
    return to;
  }

  Status Nodes(const Graph& from, Mapping& mapping) {
    for (const Node& node : from.nodes) {
      std::vector<ValueId> operands;
      for (const ValueId id : node.inputs) {
        ASSIGN_OR_RETURN(operands.emplace_back(), Mapped(from, mapping, id));
      }
      ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                       One(node, std::move(operands)));
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] == kNoValue) continue;
        mapping[static_cast<size_t>(node.outputs[i])] = results[i];
      }
    }
    return OkStatus();
  }

  // The values that stand for the results of one node on these operands.
  StatusOr<std::vector<ValueId>> One(const Node& node,
                                     std::vector<ValueId> operands) {
    if (loop_depth_ > 0) ++unrolled_nodes_;
    if (node.Is("Identity")) return operands;
    if (node.Is("If")) return Branch(node, operands);
    if (node.Is("Loop")) return Unrolled(node, operands);
    if (types_known_ && IsOnSequences(node)) {
      ASSIGN_OR_RETURN(const FoldedSequences::Results results,
                       sequences_.Fold(node, operands));
      return results ? *results : NotKnown(node, std::move(operands));
    }
    if (sequences_.Any(operands)) return NotKnown(node, std::move(operands));
    // What the interpreter alone can do: sequences and the like.
    if (node.op->infer == nullptr) return NotKnown(node, std::move(operands));
    if (node.Is("Shape")) {
      const Value& of = made_.value(operands[0]);
      if (of.type) return Sizes(node, of.type->shape);
    }
    if (IsTypedCastLike(node, operands)) {
      return One(AsCast(node, operands), {operands[0]});
    }
    if (!AllTyped(operands)) return Kept(node, std::move(operands), {});
    std::vector<Arg> args = Args(operands, false);
    auto types = InferTypes(Call{node, args});
    if (!types.ok() && IsNeedsBytes(types.status())) {
      args = Args(operands, true);
      types = InferTypes(Call{node, args});
    }
    if (!types.ok()) {
      if (!types_known_ && IsNeedsBytes(types.status())) {
        return Kept(node, std::move(operands), {});
      }
      return types.status().Prefixed("node '" + node.name + "' (" +
                                     std::string(node.op->name) + ")");
    }
    if (types->size() < node.outputs.size()) {
      return InvalidArgument(
          "node '" + node.name + "' (" + std::string(node.op->name) + ") has " +
          std::to_string(types->size()) + " results, but the graph needs " +
          std::to_string(node.outputs.size()));
    }
    if (IsNeedless(Call{node, args}, *types)) return operands;
    if (Folds(node, operands, *types)) return Folded(node, operands);
    return Kept(node, std::move(operands), *types);
  }

  // Of its second operand, CastLike needs the type alone.
  bool IsTypedCastLike(const Node& node,
                       const std::vector<ValueId>& operands) const {
    return node.Is("CastLike") && operands.size() == 2 &&
           operands[1] != kNoValue && made_.value(operands[1]).type.has_value();
  }
  Node AsCast(const Node& node, const std::vector<ValueId>& operands) const {
    Node cast = node;
    cast.op = FindOp("Cast");
    cast.attrs = {{"to", OnnxNumber(made_.value(operands[1]).type->dtype)}};
    return cast;
  }

  StatusOr<std::vector<ValueId>> Inlined(const Graph& body,
                                         const std::vector<ValueId>& operands) {
    CHECK(operands.size() == body.inputs.size(),
          "a body gets one operand for each input");
    Mapping mapping(body.values.size(), kNoValue);
    for (size_t i = 0; i < operands.size(); ++i) {
      mapping[static_cast<size_t>(body.inputs[i].value)] = operands[i];
    }
    RETURN_IF_ERROR(Nodes(body, mapping));
    std::vector<ValueId> results;
    for (const Port& port : body.outputs) {
      ASSIGN_OR_RETURN(results.emplace_back(),
                       Mapped(body, mapping, port.value));
    }
    return results;
  }

  // If: the condition, then what the branches capture.
  StatusOr<std::vector<ValueId>> Branch(const Node& node,
                                        std::vector<ValueId>& operands) {
    const Tensor* condition = Constant(operands[0]);
    if (!IsOne(condition, DType::kBool)) {
      return NotKnown(node, std::move(operands));
    }
    const bool then = *condition->data<bool>();
    return Inlined(*node.bodies[then ? 0 : 1],
                   {operands.begin() + 1, operands.end()});
  }

  // Loop: trip count, condition, carried values, then what the body captures.
  StatusOr<std::vector<ValueId>> Unrolled(const Node& node,
                                          std::vector<ValueId>& operands) {
    const Graph& body = *node.bodies[0];
    const auto num_carried =
        static_cast<size_t>(node.attrs.Int("num_carried", 0));
    const Tensor* trips =
        operands[0] == kNoValue ? nullptr : Constant(operands[0]);
    const Tensor* go =
        operands[1] == kNoValue ? nullptr : Constant(operands[1]);
    const bool known = IsOne(trips, DType::kI64) &&
                       (operands[1] == kNoValue || IsOne(go, DType::kBool));
    if (!known) return NotKnown(node, std::move(operands));
    const int64_t count = *trips->data<int64_t>();
    bool goes_on = go == nullptr || *go->data<bool>();
    std::vector<ValueId> carried(
        operands.begin() + 2,
        operands.begin() + 2 + static_cast<int64_t>(num_carried));
    const std::vector<ValueId> captured(
        operands.begin() + 2 + static_cast<int64_t>(num_carried),
        operands.end());
    std::vector<std::vector<ValueId>> scanned(body.outputs.size() - 1 -
                                              num_carried);
    const size_t num_values = made_.values.size();
    const size_t num_nodes = made_.nodes.size();
    for (int64_t trip = 0; trip < count && goes_on; ++trip) {
      unrolled_nodes_ += 2;  // its number and its condition are values, too
      if (unrolled_nodes_ > limits_.max_unrolled_nodes ||
          unrolled_bytes_ > limits_.max_unrolled_bytes) {
        Rewind(num_values, num_nodes);
        return NotKnown(node, std::move(operands));
      }
      std::vector<ValueId> inputs = {
          made_.AddConstant("trip", Tensor::Scalar(trip)),
          made_.AddConstant("go", True())};
      inputs.insert(inputs.end(), carried.begin(), carried.end());
      inputs.insert(inputs.end(), captured.begin(), captured.end());
      ++loop_depth_;
      ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                       Inlined(body, inputs));
      --loop_depth_;
      const Tensor* next = Constant(results[0]);
      if (!IsOne(next, DType::kBool)) {
        Rewind(num_values, num_nodes);
        return NotKnown(node, std::move(operands));
      }
      goes_on = *next->data<bool>();
      std::copy_n(results.begin() + 1, num_carried, carried.begin());
      for (size_t i = 0; i < scanned.size(); ++i) {
        scanned[i].push_back(results[1 + num_carried + i]);
      }
    }
    for (size_t i = 0; i < scanned.size(); ++i) {
      if (scanned[i].empty()) {
        carried.push_back(made_.AddConstant(
            node.name, OfNoTrip(body.outputs[1 + num_carried + i])));
      } else {
        ASSIGN_OR_RETURN(carried.emplace_back(), Stacked(node, scanned[i]));
      }
    }
    return carried;
  }

  // Drops what was made since there were so many values and nodes.
  void Rewind(size_t num_values, size_t num_nodes) {
    sequences_.Forget(static_cast<ValueId>(num_values));
    made_.values.resize(num_values);
    made_.nodes.resize(num_nodes);
  }

  StatusOr<ValueId> Stacked(const Node& node,
                            const std::vector<ValueId>& parts) {
    const ValueId axis =
        made_.AddConstant("axis", Tensor::Int64s(std::vector<int64_t>{0}));
    std::vector<ValueId> rows;
    for (const ValueId part : parts) {
      ASSIGN_OR_RETURN(rows.emplace_back(),
                       Made(node, "Unsqueeze", {part, axis}, {}));
    }
    return Made(node, "Concat", std::move(rows), {{"axis", int64_t{0}}});
  }

  StatusOr<ValueId> Made(const Node& near, std::string_view op,
                         std::vector<ValueId> operands, Attrs attrs) {
    Node node{.op = FindOp(op),
              .name = near.name,
              .inputs = operands,
              .outputs = {kNoValue + 1},
              .attrs = std::move(attrs),
              .bodies = {}};
    CHECK(node.op != nullptr, "an operator that folding makes use of");
    ASSIGN_OR_RETURN(const std::vector<ValueId> ids,
                     One(node, std::move(operands)));
    return ids[0];
  }

  // ---- what is known ----
  static bool IsOne(const Tensor* tensor, DType dtype) {
    return tensor != nullptr && tensor->dtype() == dtype &&
           tensor->num_elements() == 1;
  }

  const Tensor* Constant(ValueId id) const {
    return made_.value(id).constant.get();
  }

  bool AllTyped(const std::vector<ValueId>& operands) const {
    return std::all_of(operands.begin(), operands.end(), [&](ValueId id) {
      return id == kNoValue || made_.value(id).type.has_value();
    });
  }

  // Late constants are as good as unknown unless `late`: nearly always their
  // types are enough.
  std::vector<Arg> Args(const std::vector<ValueId>& operands, bool late) const {
    std::vector<Arg> args(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == kNoValue) continue;
      const Value& value = made_.value(operands[i]);
      args[i] = {true, value.type->dtype, value.type->shape,
                 value.constant && (late || !value.constant->is_late())
                     ? value.constant->bytes()
                     : nullptr};
    }
    return args;
  }

  bool Folds(const Node& node, const std::vector<ValueId>& operands,
             const std::vector<ValueType>& types) const {
    if (!node.op->pure || !node.bodies.empty()) return false;
    int64_t most = limits_.max_folded_bytes;
    for (const ValueId id : operands) {
      if (id == kNoValue) continue;
      if (Constant(id) == nullptr) return false;
      most = std::max(most, Constant(id)->num_bytes());
    }
    int64_t bytes = 0;
    for (const ValueType& type : types) {
      bytes += type.shape.num_elements() * DTypeBytes(type.dtype);
    }
    // Most readers broadcast what is left as it is.
    if (node.Is("Expand") && bytes > kMostExpandedBytes) return false;
    return bytes <= most;
  }

  // ---- making ----
  StatusOr<std::vector<ValueId>> Folded(const Node& node,
                                        const std::vector<ValueId>& operands) {
    std::vector<Tensor> read(operands.size());
    std::vector<const Tensor*> tensors;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] != kNoValue) read[i] = Constant(operands[i])->Aligned();
      tensors.push_back(operands[i] == kNoValue ? nullptr : &read[i]);
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> results, RunNode(node, tensors));
    std::vector<ValueId> ids;
    for (Tensor& result : results) {
      if (loop_depth_ > 0) unrolled_bytes_ += result.num_bytes();
      ids.push_back(made_.AddConstant(node.name, std::move(result)));
    }
    return ids;
  }

  std::vector<ValueId> Sizes(const Node& node, const Shape& shape) {
    const int64_t rank = shape.rank();
    const auto clipped = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const int64_t begin = clipped(node.attrs.Int("start", 0));
    const int64_t end = std::max(begin, clipped(node.attrs.Int("end", rank)));
    return {made_.AddConstant(
        node.name,
        Tensor::Int64s(shape.dims().subspan(
            static_cast<size_t>(begin), static_cast<size_t>(end - begin))))};
  }

  StatusOr<std::vector<ValueId>> NotKnown(const Node& node,
                                          std::vector<ValueId> operands) {
    if (types_known_) {
      return NeedsBytes("what decides node '" + node.name + "'");
    }
    return Kept(node, std::move(operands), {});
  }

  // `types` may be empty: not known.
  StatusOr<std::vector<ValueId>> Kept(const Node& node,
                                      std::vector<ValueId> operands,
                                      const std::vector<ValueType>& types) {
    if (static_cast<int64_t>(made_.nodes.size()) >= limits_.max_nodes) {
      return ResourceExhausted("the graph has more than " +
                               std::to_string(limits_.max_nodes) +
                               " nodes once its loops are unrolled");
    }
    Node& copy = made_.nodes.emplace_back(node);
    copy.inputs = std::move(operands);
    std::vector<ValueId> ids;
    // Results that the graph leaves out are made all the same: the operator's
    // function writes them.
    const size_t count = std::max(types.size(), node.outputs.size());
    copy.outputs.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const ValueId id = made_.AddValue(node.name);
      if (!types.empty()) made_.value(id).type = types[i];
      made_.nodes.back().outputs[i] = id;
      ids.push_back(id);
    }
    return ids;
  }

  static Tensor True() {
    Tensor tensor = Tensor::Make(DType::kBool, {});
    *tensor.data<bool>() = true;
    return tensor;
  }

  void DropUnread() {
    std::vector<bool> read(made_.values.size());
    const auto mark = [&](ValueId id) {
      if (id != kNoValue) read[static_cast<size_t>(id)] = true;
    };
    for (const Port& port : made_.outputs) mark(port.value);
    std::vector<Node> kept;
    for (auto node = made_.nodes.rbegin(); node != made_.nodes.rend(); ++node) {
      const bool wanted = std::any_of(
          node->outputs.begin(), node->outputs.end(),
          [&](ValueId id) { return read[static_cast<size_t>(id)]; });
      if (!wanted) continue;
      for (const ValueId id : node->inputs) mark(id);
      kept.push_back(std::move(*node));
    }
    std::reverse(kept.begin(), kept.end());
    made_.nodes = std::move(kept);
  }

  const bool types_known_;
  const FoldLimits limits_;
  Graph made_;
  FoldedSequences sequences_;
  int loop_depth_ = 0;  // of loops that are being unrolled
  int64_t unrolled_nodes_ = 0;
  int64_t unrolled_bytes_ = 0;
};

}  // namespace

StatusOr<Graph> InferAndFold(const Graph& graph,
                             const std::vector<ValueType>& input_types,
                             const std::vector<const Tensor*>& input_values,
                             const FoldLimits& limits) {
  const bool types_known = !input_types.empty() || graph.inputs.empty();
  CHECK(input_types.empty() || input_types.size() == graph.inputs.size(),
        "a type for each input");
  Folder folder(graph, types_known, limits);
  return folder.Run(graph, input_types, input_values);
}

}  // namespace millrace::models::graph
