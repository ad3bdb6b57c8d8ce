// A step that calls an operator's plain function.
#include <string>
#include <utility>

#include "models/graph/plan/lower.h"

namespace millrace::models::graph {
namespace {

class PlainStep : public Step {
 public:
  PlainStep(const Node& node, const LowerContext& context) : node_(node) {
    Operands operands;
    for (const ValueId id : node.inputs) {
      Arg& arg = operands.args.emplace_back();
      slots_in_.push_back(context.slot(id));
      if (id == kNoValue) continue;
      arg = {true, context.type(id).dtype, context.shape(id), nullptr};
    }
    for (const ValueId id : node.outputs) {
      operands.results.push_back(
          {context.type(id).dtype, context.shape(id), nullptr});
      slots_out_.push_back(context.slot(id));
    }
    operands_.resize(static_cast<size_t>(context.num_members), operands);
  }

  bool splits() const override { return node_.op->work == Work::kSplits; }

  Status Run(const Slots& slots, const Team& team) override {
    Operands& mine = operands_[static_cast<size_t>(team.index)];
    for (size_t i = 0; i < mine.args.size(); ++i) {
      if (mine.args[i].given) mine.args[i].bytes = slots.at[slots_in_[i]];
    }
    for (size_t i = 0; i < mine.results.size(); ++i) {
      mine.results[i].bytes = slots.at[slots_out_[i]];
    }
    return node_.op->run({node_, mine.args}, mine.results,
                         splits() ? team : Team{});
  }

  std::string Text() const override {
    std::string text(node_.op->name);
    const Operands& any = operands_[0];
    for (const Arg& arg : any.args) {
      if (arg.given) text += " " + TypeText(arg.dtype, arg.shape);
    }
    text += " ->";
    for (const Result& result : any.results) {
      text += " " + TypeText(result.dtype, result.shape);
    }
    return text;
  }

 private:
  // Each member's own, so that pointers can be put in without an allocation.
  struct Operands {
    std::vector<Arg> args;
    std::vector<Result> results;
  };

  const Node node_;
  std::vector<Slot> slots_in_;
  std::vector<Slot> slots_out_;
  std::vector<Operands> operands_;
};

}  // namespace

std::unique_ptr<Step> MakePlainStep(const Node& node,
                                    const LowerContext& context) {
  return std::make_unique<PlainStep>(node, context);
}

}  // namespace millrace::models::graph
