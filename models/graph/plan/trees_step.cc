// Decision trees by the dense kernels: blocks of rows, within them blocks of
// trees.
#include "models/graph/plan/trees_step.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/cpu/tree_kernels.h"
#include "models/graph/ml/tree_ensemble.h"

namespace millrace::models::graph {
namespace {

const TreeEnsemble& TreesOf(const Node& node, const LowerContext& context) {
  return *reinterpret_cast<const TreeEnsemble*>(
      context.constant(node.inputs[1])->bytes());
}

class TreesStep : public Step {
 public:
  TreesStep(const Node& node, const LowerContext& context)
      : trees_(TreesOf(node, context)),
        walk_(WalkTreesOf(context.dense.name)),
        num_members_(context.num_members),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        columns_(context.shape(node.inputs[0]).back()),
        rows_(context.shape(node.outputs[0])[0]) {}

  // Fewer rows take less time than waking a second member.
  bool splits() const override { return rows_ > kShareRows; }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }

  Status Run(const Slots& slots, const Team& team) const override {
    std::byte* const scratch = slots.scratch + team.index * MemberScratch();
    auto* const sums = reinterpret_cast<double*>(scratch);
    auto* const leaves =
        reinterpret_cast<int32_t*>(scratch + BlockRows() * SumBytes());
    const int64_t targets = trees_.num_targets;
    const auto [begin, end] = splits() ? team.Share(rows_, kShareRows)
                                       : std::pair<int64_t, int64_t>(0, rows_);
    for (int64_t row = begin; row < end; row += BlockRows()) {
      const int64_t count = std::min(BlockRows(), end - row);
      SumTrees(trees_, walk_, slots.data<float>(x_) + row * columns_, columns_,
               count, leaves, sums);
      float* y = slots.data<float>(y_) + row * targets;
      for (int64_t i = 0; i < count; ++i) {
        trees_.Finish(sums + i * targets);
        for (int64_t k = 0; k < targets; ++k) {
          y[i * targets + k] = static_cast<float>(sums[i * targets + k]);
        }
      }
    }
    return OkStatus();
  }

  std::string Text() const override {
    return "Trees " + std::to_string(trees_.roots.size()) + " of " +
           std::to_string(trees_.nodes.size()) + " nodes, " +
           std::to_string(rows_) + " x " + std::to_string(columns_) + " -> " +
           std::to_string(trees_.num_targets);
  }

 private:
  static constexpr int64_t kShareRows = 16;  // what a member gets at least

  // As many as have few sums, so that scratch does not grow with the targets
  // beyond those of one row.
  int64_t BlockRows() const {
    constexpr int64_t kMostSumBytes = 1 << 20;
    const int64_t fit = std::max(kMostSumBytes / SumBytes(), int64_t{1});
    return std::clamp(rows_, int64_t{1}, std::min(fit, kTreeRows));
  }
  int64_t SumBytes() const {
    return trees_.num_targets * static_cast<int64_t>(sizeof(double));
  }
  int64_t MemberScratch() const {
    const int64_t bytes =
        BlockRows() * SumBytes() +
        BlockRows() * kTreeBlock * static_cast<int64_t>(sizeof(int32_t));
    return (bytes + 63) / 64 * 64;
  }

  const TreeEnsemble& trees_;  // the bytes of a constant, which the plan keeps
  const WalkTrees walk_;
  const int64_t num_members_;
  const Slot x_;
  const Slot y_;
  const int64_t columns_;
  const int64_t rows_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeTreesStep(const Node& node,
                                              const LowerContext& context) {
  // Offsets within a block of rows are 32 bits.
  constexpr int64_t kMostColumns = int64_t{1} << 24;
  const bool fits = context.type(node.inputs[0]).dtype == DType::kF32 &&
                    context.shape(node.inputs[0]).back() <= kMostColumns;
  if (!fits || TreesOf(node, context).packed == nullptr) {
    return std::unique_ptr<Step>();
  }
  return std::unique_ptr<Step>(std::make_unique<TreesStep>(node, context));
}

}  // namespace millrace::models::graph
