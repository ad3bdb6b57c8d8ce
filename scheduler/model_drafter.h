// Drafts with a second, smaller model of the same vocabulary: what it would
// say next, greedily. All sequences draft together, one token a step of the
// draft model:
//
//   step 1    what each lacks of its own tokens, in chunks when that is much
//   step 2    the first draft tokens     one row for each sequence
//   step 3    the second draft tokens    …
//
// A sequence whose chunk did not reach its last token drafts nothing yet.
//
// The draft model has KV pages of its own, kept by a DraftLedger. When one of
// its steps fails it is switched off for good: completions go on without it.
//
// Engine thread only, which is the draft model's worker 0, too.
// Source: speculative decoding, Leviathan et al. 2023; verified by equality
// with what the model draws, hence greedy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/base/clock.h"
#include "models/llm/runner.h"
#include "scheduler/draft_ledger.h"
#include "scheduler/drafter.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

struct ModelDrafterOptions {
  int32_t vocab_size = 0;  // of the model that checks
  bool prefix_caching = true;
  // As the model's own ledger has it: a sequence's page hashes serve both.
  uint64_t hash_mask = ~uint64_t{0};
  // What the chunks of one proposal may take, once a row has a price; 0: any.
  double catch_up_seconds = 0;
  const Clock* clock = &Clock::Real();
};

class ModelDrafter final : public Drafter {
 public:
  // The runner is borrowed; it has as many slots as sequences run.
  ModelDrafter(models::Runner& runner, const ModelDrafterOptions& options);

  void Propose(std::span<const DraftRequest> requests) override;
  void Release(const Sequence& sequence) override { ledger_.Release(sequence); }
  const StepCost* cost() const override { return &cost_; }
  std::optional<int32_t> Lacking(const Sequence& sequence) override;
  double seconds() const override { return seconds_; }
  const PageManager* pages() const override { return &ledger_.pages(); }

  const DraftLedger& ledger() const { return ledger_; }

 private:
  // Rows of one sequence in the step that is being built.
  struct Line {
    const DraftRequest* request;
    int32_t num_rows;  // the last ones it brings
    bool draws;
  };

  void CatchUp(std::span<const DraftRequest> requests);
  void DraftNext();
  void AddKnown(const DraftRequest& request, int32_t most_rows);
  void AddRows(const DraftRequest& request, int32_t begin,
               std::span<const int32_t> ids, bool draws);
  bool InVocabulary(std::span<const int32_t> ids) const;
  int32_t MostCatchUpRows() const;
  // Runs the batch; each line that draws has one draft token more, if it is
  // one.
  bool RunStep();

  const ModelDrafterOptions options_;
  models::Runner& runner_;
  DraftLedger ledger_;
  models::StepBatch batch_;
  std::vector<Line> lines_;  // of the batch
  StepShape shape_;
  StepCost cost_;
  double seconds_ = 0;
  bool broken_ = false;
};

}  // namespace millrace::scheduler
