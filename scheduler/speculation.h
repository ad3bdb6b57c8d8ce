// Speculative decoding: which draft tokens are checked. A draft token costs a
// row of the step and gains a token with some probability; it is taken when it
// gains more tokens per second than the step makes without it. So a lone
// sequence, whose step is bound by memory, takes long drafts, a full batch
// none.
//
//   Speculation speculation(options);
//   speculation.Propose(targets, shape, cost);   // for all that decode
//   ... the step runs ...
//   speculation.Learn(record, num_taken, sampled);
//
// How often draft tokens are accepted is learnt for each sequence and each kind
// of draft token, also from drafts that were not taken: their first token can
// still be compared with what was drawn.
//
// What the client predicts comes first, since it costs nothing; the drafter is
// asked for the other sequences.
//
// A drafter that costs is asked only for what PlanDrafts thinks worth it. While
// that is nothing, a hundredth of the time is saved up and spent on trials with
// one sequence, so that neither prices nor rates are believed forever.
//
// Deterministic, without a clock. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "scheduler/draft_plan.h"
#include "scheduler/drafter.h"
#include "scheduler/prediction.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

// Decaying counts of draft tokens by kind.
class AcceptanceRates {
 public:
  // `expected` stands for what is not known yet.
  double Rate(int32_t kind, double expected) const;
  void Count(int32_t kind, int32_t num_true, int32_t num_false);

 private:
  struct Counts {
    double come_true = 0;
    double all = 0;
  };
  std::array<Counts, kDraftKinds> counts_;
};

// How a sequence's drafts did so far, and the draft for this step.
struct DraftRecord {
  AcceptanceRates rates;
  Draft draft;  // as proposed; the sequence's own draft is what was taken
  Prediction prediction;  // of the client
};

class Speculation {
 public:
  // At most `max_tokens` draft tokens a sequence and step; `always` so many,
  // whether that pays or not.
  Speculation(std::unique_ptr<Drafter> drafter, int32_t max_tokens,
              bool always = false);

  struct Target {
    Sequence* sequence;  // decodes
    DraftRecord* record;
  };
  // Has draft tokens proposed, never beyond a longest completion, and sets each
  // sequence's draft to the part of its proposal that pays beside `decodes`,
  // all rows of the step without draft tokens.
  // Returns the seconds that the proposals took.
  double Propose(std::span<const Target> targets, const StepShape& decodes,
                 const StepCost& cost);

  // `sampled` are the ids drawn for the sequence in this step: what was taken
  // and accepted, and the first that was not.
  void Learn(DraftRecord& record, int32_t num_taken,
             std::span<const int32_t> sampled);

  // The sequence stops running.
  void Release(const Sequence& sequence) { drafter_->Release(sequence); }
  const Drafter& drafter() const { return *drafter_; }

 private:
  double Rate(const DraftRecord& record) const;
  // Cuts the requests to a drafter that costs to what pays, or to a trial.
  void Plan(std::span<const Target> targets, const StepShape& decodes,
            const StepCost& cost, std::span<DraftRequest> requests);
  void Try(std::span<const DraftCandidate> candidates,
           std::span<DraftRequest> requests);
  void Choose(std::span<const Target> targets, const StepShape& decodes,
              const StepCost& cost, double spent_seconds) const;

  const std::unique_ptr<Drafter> drafter_;
  const int32_t max_tokens_;
  const bool always_;
  const double first_rate_;
  bool trying_ = false;       // in this step
  double trial_seconds_ = 0;  // saved up for trials
  AcceptanceRates all_;  // of all sequences: what a new one is expected to do
};

}  // namespace millrace::scheduler
