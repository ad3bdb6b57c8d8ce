// Trees of elementwise FP32 operators of one shape become one node, whose loop
// keeps what is between them in cache. A node takes the program of each operand
// that only it reads, and its own instruction behind.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/graph/activation.h"
#include "models/graph/fused_params.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kMostInstructions = 24;

std::optional<Pointwise> BinaryOf(const Node& node) {
  struct Row {
    std::string_view op;
    Pointwise kind;
  };
  constexpr std::array kRows = {
      Row{"Add", Pointwise::kAdd}, Row{"Sub", Pointwise::kSub},
      Row{"Mul", Pointwise::kMul}, Row{"Div", Pointwise::kDiv},
      Row{"Min", Pointwise::kMin}, Row{"Max", Pointwise::kMax}};
  if (node.inputs.size() != 2) return std::nullopt;
  for (const Row& row : kRows) {
    if (node.Is(row.op)) return row.kind;
  }
  return std::nullopt;
}

// A program under construction, with the operands that it reads.
struct Tree {
  std::vector<ValueId> operands;
  Program program;
};

class PointwisePass {
 public:
  explicit PointwisePass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.outputs.size() != 1 || !IsFloat32(node.outputs[0])) continue;
      if (const auto kind = BinaryOf(node)) {
        if (!IsFloat32(node.inputs[0])) continue;
        Join(node, {.kind = *kind}, 2);
      } else if (const auto f = ActivationOf(graph_, node)) {
        Join(node, {.f = f->f, .a = f->a, .b = f->b}, 1);
      }
    }
    editor_.Finish();
  }

 private:
  bool IsFloat32(ValueId id) const {
    return graph_.value(id).type->dtype == DType::kF32;
  }

  void Join(Node& node, Instruction last, size_t num_operands) {
    // Whatever does not fit is read from memory instead.
    for (unsigned inlined = (1u << num_operands); inlined-- > 0;) {
      Tree tree;
      std::array<int32_t, 2> registers = {};
      for (size_t i = 0; i < num_operands; ++i) {
        registers[i] = Append(tree, node, i, (inlined >> i & 1u) != 0);
      }
      if (tree.operands.size() > kMaxBroadcast ||
          tree.program.size() >= kMostInstructions) {
        continue;
      }
      last.x = registers[0];
      last.y = registers[1];
      tree.program.push_back(last);
      Renumber(tree);
      editor_.Rewrite(
          node, fused::kPointwise, tree.operands,
          FusedAttrs(PointwiseParams{.program = tree.program, .scales = {}}));
      return;
    }
  }

  // While a tree grows, operands are counted from 0 and results of
  // instructions from kResults.
  static constexpr int32_t kResults = 1000;

  static int32_t Operand(Tree& tree, ValueId id) {
    const auto found =
        std::find(tree.operands.begin(), tree.operands.end(), id);
    if (found == tree.operands.end()) tree.operands.push_back(id);
    return static_cast<int32_t>(
        std::find(tree.operands.begin(), tree.operands.end(), id) -
        tree.operands.begin());
  }

  // The register that holds operand i of the node.
  int32_t Append(Tree& tree, const Node& node, size_t i, bool inlined) {
    const ValueId id = node.inputs[i];
    const Node* maker = editor_.SoleMaker(id, fused::kPointwise.name);
    const Shape& out = graph_.value(node.outputs[0]).type->shape;
    if (!inlined || maker == nullptr || graph_.value(id).type->shape != out) {
      return Operand(tree, id);
    }
    const auto begin = static_cast<int32_t>(tree.program.size());
    const auto num_operands = static_cast<int32_t>(maker->inputs.size());
    const auto moved = [&](int32_t reg) {
      return reg < num_operands
                 ? Operand(tree, maker->inputs[static_cast<size_t>(reg)])
                 : kResults + begin + reg - num_operands;
    };
    for (Instruction instruction :
         ParamsOf<PointwiseParams>(maker->attrs).program) {
      instruction.x = moved(instruction.x);
      instruction.y = moved(instruction.y);
      tree.program.push_back(instruction);
    }
    return kResults + static_cast<int32_t>(tree.program.size()) - 1;
  }

  static void Renumber(Tree& tree) {
    const auto count = static_cast<int32_t>(tree.operands.size());
    for (Instruction& instruction : tree.program) {
      for (int32_t* reg : {&instruction.x, &instruction.y}) {
        if (*reg >= kResults) *reg += count - kResults;
      }
    }
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void FusePointwise(Graph& graph) { PointwisePass(graph).Run(); }

}  // namespace millrace::models::graph
