// Draws tokens from logits. State that outlives a step (penalty counts, length
// of the completion, mirostat's bound) is kept by slot. The order of work
// stands beside SamplingParams in step.h.
//
// A draw depends on the logits, the slot's state and (seed, position), on
// nothing else. Sample may run for different rows on several threads at once,
// and so may FillMasks for different slots; not the two for one slot. InitSlot,
// ForcedTokens and Count only while none does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/candidates.h"
#include "models/llm/logits_processor.h"
#include "models/llm/penalties.h"
#include "models/llm/step.h"

namespace millrace::models {

class Sampler {
 public:
  // Buffers of one thread.
  struct Scratch {
    std::vector<float> weights;  // [vocab]
    std::vector<int32_t> candidates;
    std::vector<float> maxima;
    std::vector<std::pair<int32_t, float>> raw;  // logits before changes
    std::vector<int32_t> text;                   // known tokens and drafts
    Candidates::Room room;
  };
  struct Drawn {
    int32_t id;
    float logprob;
    float mirostat_mu = 0;  // from now on
  };

  Sampler(const KernelTable& kernels, int32_t vocab, int32_t num_slots);

  void InitSlot(const SlotInit& init);
  // Some tokens are forbidden, so that rows of the slot need masks.
  bool NeedsMasks(int32_t slot) const {
    return !slots_[static_cast<size_t>(slot)].processors.empty();
  }
  // A row of the slot draws the greatest of the logits as they are, without
  // log-probabilities: Sample would find the same.
  bool TakesGreatest(int32_t slot) const;
  // What a draw needs beside the logits where it is of temperature, top-k,
  // min-p and top-p alone, without log-probabilities.
  struct PlainDraw {
    float inverse_temperature;
    int32_t top_k;
    float top_p;
    float min_p;
    uint64_t random;  // its upper 53 bits are the draw's number in [0, 1)
  };
  // Of a row at `position` of the slot; none where a draw needs more.
  std::optional<PlainDraw> PlainDrawOf(int32_t slot, int32_t position) const;
  // Words of a mask, see logits_processor.h.
  size_t mask_words() const { return TokenMaskWords(vocab_); }
  // The allowed tokens of a row and of those behind it that hold `drafts`, one
  // mask after the other: [drafts.size() + 1][mask_words()]. Behind a draft
  // token that is not allowed nothing can count, and masks allow everything.
  void FillMasks(int32_t slot, std::span<const int32_t> drafts,
                 std::span<uint32_t> masks);
  // What a grammar of the slot leaves no choice about, see LogitsProcessor.
  // Only while no Sample runs.
  std::vector<int32_t> ForcedTokens(int32_t slot, int32_t most) const;
  // A token was drawn for the slot and joins its output.
  void Count(int32_t slot, const Drawn& drawn);

  // Changes the logits. `score_id` is kSample or the id to score; `drafts` are
  // taken for drawn, behind the counted tokens; `top` gets the alternatives,
  // kMaxTopLogprobs of them, unused ones -1. `mask` is of FillMasks, or empty:
  // all are allowed. When all allowed tokens are forbidden by other rules (stop
  // ids before min_tokens), the first of them is drawn. Slots with mirostat
  // have no drafts: its bound behind them is not known.
  Drawn Sample(int32_t slot, int32_t position, int32_t score_id,
               std::span<const int32_t> drafts, std::span<float> logits,
               std::span<TokenLogprob> top, Scratch& scratch,
               std::span<const uint32_t> mask = {}) const;

 private:
  struct Slot {
    SamplingParams params;
    Penalties penalties;
    std::vector<int32_t> text;  // prompt and output, only with DRY
    float mirostat_mu = 0;
    int32_t output_tokens = 0;
    std::vector<std::unique_ptr<LogitsProcessor>> processors;
  };

  // The draw is from the logits as they are, without log-probabilities.
  bool DrawsFromLogits(const Slot& slot) const;
  void Change(const Slot& slot, std::span<const int32_t> drafts,
              std::span<float> logits, Scratch& scratch) const;
  // DRY's penalties.
  void PenaliseRepetition(const Slot& slot, std::span<const int32_t> drafts,
                          std::span<float> logits, Scratch& scratch) const;
  // The logits of tokens that are not allowed become -inf. The first allowed
  // one if no logit is left above that, else -1.
  int32_t Apply(std::span<const uint32_t> mask, std::span<float> logits) const;
  int32_t Greatest(std::span<const float> logits) const;
  // At least k weights are as great as this.
  float BoundOfTopK(const float* weights, int32_t k, Scratch& scratch) const;
  int32_t Draw(const SamplingParams& params, int32_t position,
               std::span<const float> logits, Scratch& scratch) const;
  // In llama.cpp's order, see SamplingParams.
  int32_t DrawInTurn(const SamplingParams& params, int32_t position,
                     std::span<const float> logits, Scratch& scratch) const;
  // `mu` becomes the bound behind the token.
  int32_t DrawMirostat(const SamplingParams& params, int32_t position,
                       std::span<const float> logits, Scratch& scratch,
                       float& mu) const;

  const KernelTable& kernels_;
  const int32_t vocab_;
  std::vector<Slot> slots_;
};

}  // namespace millrace::models
