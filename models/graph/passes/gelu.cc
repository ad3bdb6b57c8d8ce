// GELU that is spelled out becomes one operator: products of x, a half and
// 1 + erf(x / sqrt(2)) in any order.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

constexpr double kTolerance = 1e-6;
constexpr int kMostProducts = 3;

class GeluPass {
 public:
  explicit GeluPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.Is("Mul")) Match(node);
    }
    editor_.Finish();
  }

 private:
  const ValueType& TypeOf(ValueId id) const { return *graph_.value(id).type; }

  std::optional<double> Number(ValueId id) const {
    const Tensor* tensor = editor_.Constant(id);
    if (tensor == nullptr || tensor->dtype() != DType::kF32 ||
        tensor->num_elements() != 1) {
      return std::nullopt;
    }
    return *tensor->data<float>();
  }

  // What a tree of products multiplies: values, and one number. Trees of more
  // than three factors are no GELU, so that a chain is not followed far.
  void Factors(const Node& mul, std::vector<ValueId>& values, double& number,
               int depth = 0) {
    for (const ValueId id : mul.inputs) {
      if (const auto n = Number(id)) {
        number *= *n;
      } else if (const Node* inner = editor_.SoleMaker(id, "Mul");
                 inner != nullptr && depth < kMostProducts) {
        Factors(*inner, values, number, depth + 1);
      } else {
        values.push_back(id);
      }
    }
  }

  // Whether the value is 1 + erf(x / sqrt(2)).
  bool IsBell(ValueId id, ValueId x) {
    const Node* sum = editor_.SoleMaker(id, "Add");
    if (sum == nullptr) return false;
    for (size_t side = 0; side < 2; ++side) {
      const auto one = Number(sum->inputs[1 - side]);
      const Node* erf = editor_.SoleMaker(sum->inputs[side], "Erf");
      if (!one || *one != 1 || erf == nullptr) continue;
      const Node* scaled = editor_.Maker(erf->inputs[0]);
      if (scaled == nullptr || editor_.NumReaders(erf->inputs[0]) != 1) {
        return false;
      }
      for (size_t at = 0; at < (scaled->Is("Mul") ? 2u : 1u); ++at) {
        if (scaled->inputs.size() != 2 || scaled->inputs[at] != x) continue;
        const auto by = Number(scaled->inputs[1 - at]);
        if (!by) continue;
        const double factor = scaled->Is("Mul")   ? *by
                              : scaled->Is("Div") ? 1 / *by
                                                  : 0;
        return std::abs(factor - std::sqrt(0.5)) < kTolerance;
      }
    }
    return false;
  }

  void Match(Node& node) {
    if (TypeOf(node.outputs[0]).dtype != DType::kF32) return;
    std::vector<ValueId> values;
    double number = 1;
    Factors(node, values, number);
    if (values.size() != 2 || std::abs(number - 0.5) > kTolerance) return;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId x = values[i];
      if (!IsBell(values[1 - i], x) ||
          TypeOf(x).shape != TypeOf(node.outputs[0]).shape) {
        continue;
      }
      editor_.Rewrite(node, *FindOp("Gelu"), {x}, {});
      return;
    }
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void RecogniseGelu(Graph& graph) { GeluPass(graph).Run(); }

}  // namespace millrace::models::graph
