// A step that calls an operator's plain function.
#include <string>
#include <utility>

#include "models/graph/plan/lower.h"

namespace millrace::models::graph {
namespace {

class PlainStep : public Step {
 public:
  PlainStep(const Node& node, const LowerContext& context) : node_(node) {
    for (const ValueId id : node.inputs) {
      Arg& arg = args_.emplace_back();
      slots_in_.push_back(context.slot(id));
      if (id == kNoValue) continue;
      arg = {true, context.type(id).dtype, context.shape(id), nullptr};
    }
    for (const ValueId id : node.outputs) {
      results_.push_back({context.type(id).dtype, context.shape(id), nullptr});
      slots_out_.push_back(context.slot(id));
    }
  }

  bool splits() const override { return node_.op->work == Work::kSplits; }

  Status Run(const Slots& slots, const Team& team) const override {
    std::vector<Arg> args = args_;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].given) args[i].bytes = slots.at[slots_in_[i]];
    }
    std::vector<Result> results = results_;
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].bytes = slots.at[slots_out_[i]];
    }
    return node_.op->run({node_, args}, results, splits() ? team : Team{});
  }

  std::string Text() const override {
    std::string text(node_.op->name);
    for (const Arg& arg : args_) {
      if (arg.given) text += " " + TypeText(arg.dtype, arg.shape);
    }
    text += " ->";
    for (const Result& result : results_) {
      text += " " + TypeText(result.dtype, result.shape);
    }
    return text;
  }

 private:
  const Node node_;
  std::vector<Slot> slots_in_;
  std::vector<Slot> slots_out_;
  std::vector<Arg> args_;  // without their bytes, which differ between runs
  std::vector<Result> results_;
};

}  // namespace

std::unique_ptr<Step> MakePlainStep(const Node& node,
                                    const LowerContext& context) {
  return std::make_unique<PlainStep>(node, context);
}

}  // namespace millrace::models::graph
