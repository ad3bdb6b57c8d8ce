// The masks of a sequence's rows are filled one after the other, as each
// follows from the draft token before it; sequences are filled side by side.
#include "models/llm/cpu/row_masks.h"

namespace millrace::models {

void RowMasks::Begin(const StepBatch& batch) {
  sequences_.clear();
  mask_at_.assign(static_cast<size_t>(batch.num_samples), kNone);
  next_.store(0, std::memory_order_relaxed);
  const size_t mask_words = sampler_.mask_words();
  size_t used = 0;
  int32_t end = 0;
  for (int32_t i = 0; i < batch.num_samples; i = end) {
    const int32_t seq = batch.sample_seqs()[i];
    end = i + 1;
    const int32_t slot = batch.slot()[seq];
    if (batch.score_ids()[i] != kSample || !sampler_.NeedsMasks(slot)) continue;
    // A sequence's rows that draw are its last ones, one behind the other.
    while (end < batch.num_samples && batch.sample_seqs()[end] == seq) ++end;
    sequences_.push_back(
        {slot, batch.tokens().subspan(batch.sample_rows()[i] + 1, end - i - 1),
         used});
    for (int32_t k = i; k < end; ++k, used += mask_words) {
      mask_at_[static_cast<size_t>(k)] = used;
    }
  }
  if (words_.size() < used) words_.resize(used);
}

void RowMasks::Fill() {
  const size_t mask_words = sampler_.mask_words();
  while (true) {
    const size_t taken = next_.fetch_add(1, std::memory_order_relaxed);
    if (taken >= sequences_.size()) return;
    const Sequence& sequence = sequences_[taken];
    sampler_.FillMasks(
        sequence.slot, sequence.drafts,
        std::span(words_).subspan(sequence.begin,
                                  mask_words * (sequence.drafts.size() + 1)));
  }
}

std::span<const uint32_t> RowMasks::Of(int32_t sample) const {
  const size_t at = mask_at_[static_cast<size_t>(sample)];
  if (at == kNone) return {};
  return std::span(words_).subspan(at, sampler_.mask_words());
}

}  // namespace millrace::models
