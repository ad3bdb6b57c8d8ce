#include "models/graph/passes/lookup_tables.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kMostNodes = 16;

using Table = std::array<uint8_t, 256>;

Table Identity() {
  Table table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(i);
  }
  return table;
}

class Island {
 public:
  Island(const Graph& graph, Editor& editor) : graph_(graph), editor_(editor) {}

  std::optional<ByteFunction> Of(const Node& quantize, ValueId floats) {
    shape_ = graph_.value(floats).type->shape;
    if (!Collect(floats) || leaves_.empty()) return std::nullopt;
    ByteFunction function;
    function.of = SourceOf();
    if (function.of == kNoValue) return std::nullopt;
    std::map<ValueId, Tensor> known;
    for (const Node* node : order_) {
      auto result = Run(*node, function.of, known);
      if (!result) return std::nullopt;
      known.emplace(node->outputs[0], *std::move(result));
    }
    const auto bytes = Result(quantize, known.find(floats)->second);
    if (!bytes) return std::nullopt;
    std::memcpy(function.table.data(), bytes->bytes(), function.table.size());
    return function;
  }

 private:
  // Nodes that make a value from leaves, each once, in their order.
  bool Collect(ValueId id) {
    if (editor_.Constant(id) != nullptr) {
      return editor_.Constant(id)->num_elements() == 1;
    }
    const Node* maker = editor_.Maker(id);
    if (maker == nullptr || maker->outputs.size() != 1 ||
        graph_.value(id).type->shape != shape_) {
      return false;
    }
    if (std::find(order_.begin(), order_.end(), maker) != order_.end()) {
      return true;
    }
    if (const auto leaf = DequantisedOf(graph_, editor_, id)) {
      leaves_.push_back(leaf->bytes);
    } else if (maker->op->facts.elementwise != Elementwise::kNo) {
      if (graph_.value(id).type->dtype != DType::kF32) return false;
      for (const ValueId input : maker->inputs) {
        if (input != kNoValue && !Collect(input)) return false;
      }
    } else {
      return false;
    }
    order_.push_back(maker);
    return order_.size() <= kMostNodes;
  }

  // What all leaves are functions of.
  ValueId SourceOf() {
    const auto all_are = [&](ValueId id, auto f) {
      return std::all_of(leaves_.begin(), leaves_.end(),
                         [&](ValueId leaf) { return f(leaf) == id; });
    };
    if (all_are(leaves_[0], [](ValueId id) { return id; })) return leaves_[0];
    const auto root = [&](ValueId id) { return Root(id, nullptr); };
    const ValueId source = root(leaves_[0]);
    return all_are(source, root) ? source : kNoValue;
  }

  // Follows tables to the bytes they read, or to `until`.
  ValueId Root(ValueId id, Table* table, ValueId until = kNoValue) {
    while (id != until) {
      const Node* maker = editor_.Maker(id);
      if (maker == nullptr || maker->op != &fused::kLookup) break;
      const auto* through = editor_.Constant(maker->inputs[1])->data<uint8_t>();
      if (table != nullptr) {
        // table[through[x]]: the maker's table comes first.
        Table joined;
        for (size_t i = 0; i < joined.size(); ++i) {
          joined[i] = (*table)[through[i]];
        }
        *table = joined;
      }
      id = maker->inputs[0];
    }
    return id;
  }

  std::optional<Tensor> Run(const Node& node, ValueId source,
                            const std::map<ValueId, Tensor>& known) {
    Tensor bytes = Tensor::Make(DType::kU8, {256});
    std::vector<const Tensor*> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) {
        operands.push_back(nullptr);
      } else if (const Tensor* constant = editor_.Constant(id)) {
        operands.push_back(constant);
      } else if (const auto found = known.find(id); found != known.end()) {
        operands.push_back(&found->second);
      } else {  // a leaf's bytes
        Table table = Identity();
        Root(id, &table, source);
        std::memcpy(bytes.bytes(), table.data(), table.size());
        operands.push_back(&bytes);
      }
    }
    return First(RunNode(node, operands));
  }

  std::optional<Tensor> Result(const Node& quantize, const Tensor& floats) {
    if (floats.num_elements() != 256) return std::nullopt;
    std::vector<const Tensor*> operands = {&floats};
    for (size_t i = 1; i < quantize.inputs.size(); ++i) {
      operands.push_back(editor_.Constant(quantize.inputs[i]));
    }
    return First(RunNode(quantize, operands));
  }

  static std::optional<Tensor> First(StatusOr<std::vector<Tensor>> results) {
    if (!results.ok() || results->empty()) return std::nullopt;
    return std::move((*results)[0]);
  }

  const Graph& graph_;
  Editor& editor_;
  Shape shape_;
  std::vector<const Node*> order_;
  std::vector<ValueId> leaves_;  // bytes
};

}  // namespace

bool ByteFunction::IsIdentity() const { return table == Identity(); }

bool ByteFunction::Rises() const {
  return std::is_sorted(table.begin(), table.end());
}

std::optional<ByteFunction> ByteFunctionOf(const Graph& graph, Editor& editor,
                                           const Node& quantize,
                                           ValueId floats) {
  return Island(graph, editor).Of(quantize, floats);
}

Tensor TableTensor(const ByteFunction& function) {
  Tensor tensor = Tensor::Make(DType::kU8, {256});
  std::memcpy(tensor.bytes(), function.table.data(), function.table.size());
  return tensor;
}

}  // namespace millrace::models::graph
