// Which guesses are worth a row. A guess costs a row of the step and gains a
// token with some probability; it is taken when it gains more tokens per second
// than the step makes without it. So a lone sequence, whose step is bound by
// memory, takes long guesses, a full batch none.
//
//   Speculation speculation(options);
//   speculation.Guess(guessers, shape, cost);   // for all that decode
//   ... the step runs ...
//   speculation.Learn(record, num_taken, sampled);
//
// How often guesses come true is learnt for each sequence and each kind of
// guess, also from guesses that were not taken: their first token can still be
// compared with what was drawn.
//
// Deterministic, without a clock. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "scheduler/drafter.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

// Decaying counts of guesses by kind.
class GuessRates {
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

// What a sequence's guesses were so far, and the one for this step.
struct GuessRecord {
  GuessRates rates;
  Draft draft;  // as proposed; the sequence's own draft is what was taken
};

class Speculation {
 public:
  // At most `max_tokens` guesses a sequence and step.
  Speculation(std::unique_ptr<Drafter> drafter, int32_t max_tokens);

  struct Guesser {
    Sequence* sequence;  // decodes
    GuessRecord* record;
  };
  // Has guesses proposed, never beyond a longest answer, and sets each
  // sequence's draft to the part of its proposal that pays beside `decodes`,
  // all rows of the step without guesses.
  void Guess(std::span<const Guesser> guessers, const StepShape& decodes,
             const StepCost& cost);

  // `sampled` are the ids drawn for the sequence in this step: what was taken
  // and came true, and the first that did not.
  void Learn(GuessRecord& record, int32_t num_taken,
             std::span<const int32_t> sampled);

 private:
  double Rate(const GuessRecord& record) const;
  void Choose(std::span<const Guesser> guessers, const StepShape& decodes,
              const StepCost& cost) const;

  const std::unique_ptr<Drafter> drafter_;
  const int32_t max_tokens_;
  GuessRates all_;  // of all sequences: what a new one is expected to do
};

}  // namespace millrace::scheduler
