// Drafts the text that a grammar leaves no choice about: the names of an
// object's properties, the rest of a constant. Another drafter is asked where
// there is a choice; its tokens also stand where they begin with the forced
// ones and go on behind them.
//
// The text is nearly certain, the tokens that spell it less so. They are
// checked like any draft token: completions are the same with and without.
//
// Engine thread only.
#pragma once

#include <memory>
#include <span>

#include "models/llm/runner.h"
#include "scheduler/drafter.h"

namespace millrace::scheduler {

class ForcedDrafter final : public Drafter {
 public:
  // The runner is borrowed. `other` drafts without cost.
  ForcedDrafter(models::Runner& runner, std::unique_ptr<Drafter> other);

  void Propose(std::span<const DraftRequest> requests) override;
  void Release(const Sequence& sequence) override { other_->Release(sequence); }

 private:
  models::Runner& runner_;
  const std::unique_ptr<Drafter> other_;
};

}  // namespace millrace::scheduler
