// Embedding bags by the kernels that pool rows of a table.
#include <array>
#include <string>

#include "models/cpu/pool_rows.h"
#include "models/graph/ops/embedding_bag.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

class BagStep : public Step {
 public:
  BagStep(const Node& node, const LowerContext& context)
      : node_(node), pool_(PoolRowsOf(context.dense.name)) {
    for (size_t i = 0; i < args_.size(); ++i) {
      const ValueId id = i < node.inputs.size() ? node.inputs[i] : kNoValue;
      slots_[i] = context.slot(id);
      if (id == kNoValue) continue;
      args_[i] = {true, context.type(id).dtype, context.shape(id), nullptr};
    }
    const auto name_of = [&](size_t i, std::string& name) {
      if (!args_[i].given) return;
      const std::string& own = context.graph.value(node.inputs[i]).name;
      if (!own.empty()) name = own;
    };
    name_of(0, names_.table);
    name_of(1, names_.indices);
    name_of(2, names_.offsets);
    result_ = {context.type(node.outputs[0]).dtype,
               context.shape(node.outputs[0]), nullptr};
    out_ = context.slot(node.outputs[0]);
  }

  Status Run(const Slots& slots, const Team& team) const override {
    std::array<Arg, 4> args = args_;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].given) args[i].bytes = slots.at[slots_[i]];
    }
    // A plan serves requests with fewer values, too.
    if (args[2].given && slots.elements != nullptr) {
      const int64_t values = slots.elements[slots_[1]];
      if (values >= 0) args[1].shape = {values};
      const int64_t weights =
          args[3].given ? slots.elements[slots_[3]] : int64_t{-1};
      if (weights >= 0 && weights != args[1].num_elements()) {
        return InvalidArgument("'" + names_.indices + "' has " +
                               std::to_string(args[1].num_elements()) +
                               " values, but " + std::to_string(weights) +
                               " weights are given");
      }
    }
    Result result = result_;
    result.bytes = slots.at[out_];
    return RunBags({node_, args}, result, team, pool_, names_);
  }

  std::string Text() const override {
    return "EmbeddingBag " + std::string(node_.attrs.Text("mode", "sum")) +
           " " + TypeText(args_[0].dtype, args_[0].shape) + ", " +
           std::to_string(args_[1].num_elements()) + " rows at most -> " +
           std::to_string(result_.shape[0]) + " bags";
  }

 private:
  const Node node_;
  const PoolRows pool_;
  std::array<Arg, 4> args_;  // without their bytes, which differ between runs
  std::array<Slot, 4> slots_;
  BagNames names_;
  Result result_;
  Slot out_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeBagStep(const Node& node,
                                            const LowerContext& context) {
  if (!PoolsByKernel(node, context.type(node.inputs[0]).dtype)) {
    return std::unique_ptr<Step>();
  }
  return std::unique_ptr<Step>(std::make_unique<BagStep>(node, context));
}

}  // namespace millrace::models::graph
