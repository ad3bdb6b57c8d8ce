// Drafter: proposes the next tokens of sequences cheaply, so that the model
// checks several draft tokens in one step. A draft token never changes a
// completion, only how many steps it takes.
//
//   drafter.Propose(requests);        // all that decode, together
//   drafter.Release(sequence);        // before it gives up its slot
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/page_manager.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

namespace millrace::scheduler {

// How sure a drafter is: draft tokens of one kind are accepted about equally
// often.
inline constexpr int32_t kDraftKinds = 10;
// What the client predicts, and what a grammar leaves no choice about; the
// others are the drafter's own.
inline constexpr int32_t kPredictedKind = kDraftKinds - 1;
inline constexpr int32_t kForcedKind = kDraftKinds - 2;

struct Draft {
  std::vector<int32_t> tokens;
  int32_t kind = 0;  // below kDraftKinds
};

struct DraftRequest {
  const Sequence* sequence;  // running, its last token still to be computed
  int32_t max_tokens;
  Draft* draft;  // empty before; at most max_tokens ids after
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual void Propose(std::span<const DraftRequest> requests) = 0;
  // The sequence stops running: what is kept of it is worth nothing.
  virtual void Release(const Sequence&) {}

  // Of a drafter whose draft tokens take time, else null: the price of one of
  // its steps, which drafts one token for each of its sequences.
  virtual const StepCost* cost() const { return nullptr; }
  // ... and the rows it has to compute before its first draft token; nothing
  // where it cannot draft.
  virtual std::optional<int32_t> Lacking(const Sequence&) { return 0; }
  // Seconds that all proposals took so far.
  virtual double seconds() const { return 0; }
  // Those of its own KV cache, or null.
  virtual const PageManager* pages() const { return nullptr; }
};

}  // namespace millrace::scheduler
