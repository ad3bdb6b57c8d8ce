// Masks of the tokens that a grammar allows, for the rows of one step. The
// workers of a team fill them in parallel: a shared counter gives each of them
// the next sequence.
//
//   masks.Begin(batch);   // the engine's thread, before the step
//   ... on every worker, once the logits are known ...
//   if (!masks.empty()) {
//     masks.Fill();
//     worker.Barrier();
//   }
//   sampler.Sample(…, masks.Of(i));
//
// A mask depends on its sequence alone, so it does not matter who fills it.
// Begin while no worker runs; Fill on all workers at once; Of behind a barrier.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/llm/sampler.h"
#include "models/llm/step.h"

namespace millrace::models {

class RowMasks {
 public:
  // The sampler outlives this.
  explicit RowMasks(Sampler& sampler) : sampler_(sampler) {}

  // Finds the rows that need masks. The batch outlives the step.
  void Begin(const StepBatch& batch);
  // No row of the step needs a mask.
  bool empty() const { return sequences_.empty(); }
  // Fills masks until none is left to take; others may still be at work.
  void Fill();
  // Of sample i, see Sampler::FillMasks; none if all tokens are allowed.
  std::span<const uint32_t> Of(int32_t sample) const;

 private:
  static constexpr size_t kNone = ~size_t{0};
  // The rows of a sequence that draw, one behind the other.
  struct Sequence {
    int32_t slot;
    std::span<const int32_t> drafts;  // behind its first row
    size_t begin;                     // of its masks in words_
  };

  Sampler& sampler_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> words_;  // masks, one after the other
  std::vector<size_t> mask_at_;  // [num_samples], into words_, or kNone
  // Index of the next sequence to fill. Memory order is relaxed because the
  // sequences are written before the step starts, and the masks are read behind
  // a barrier.
  std::atomic<size_t> next_{0};
};

}  // namespace millrace::models
