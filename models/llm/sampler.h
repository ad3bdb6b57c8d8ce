// Draws tokens from logits. State that outlives a step (penalty counts, length
// of the answer) is kept by slot. The order of work stands beside
// SamplingParams in step.h.
//
// A draw depends on the logits, the slot's state and (seed, position), on
// nothing else. Sample may run for different rows on several threads at once;
// InitSlot and Count only while none does.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "models/cpu/llm_kernels.h"
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
  };
  struct Drawn {
    int32_t id;
    float logprob;
  };

  Sampler(const KernelTable& kernels, int32_t vocab, int32_t num_slots);

  void InitSlot(const SlotInit& init);
  // A token was drawn for the slot and joins its answer.
  void Count(int32_t slot, int32_t id);

  // Changes the logits. `score_id` is kSample or the id to score; `guesses` are
  // taken for drawn, behind the counted tokens; `top` gets the alternatives,
  // kMaxTopLogprobs of them, unused ones -1.
  Drawn Sample(int32_t slot, int32_t position, int32_t score_id,
               std::span<const int32_t> guesses, std::span<float> logits,
               std::span<TokenLogprob> top, Scratch& scratch) const;

 private:
  struct Seen {
    bool in_prompt = false;
    int32_t in_answer = 0;
  };
  struct Slot {
    SamplingParams params;
    bool has_penalties = false;
    std::unordered_map<int32_t, Seen> seen;  // only with penalties
    int32_t answer_tokens = 0;
  };

  void Change(const Slot& slot, std::span<const int32_t> guesses,
              std::span<float> logits, Scratch& scratch) const;
  int32_t Greatest(std::span<const float> logits) const;
  // At least k weights are as great as this.
  float BoundOfTopK(const float* weights, int32_t k, Scratch& scratch) const;
  int32_t Draw(const SamplingParams& params, int32_t position,
               std::span<const float> logits, Scratch& scratch) const;

  const KernelTable& kernels_;
  const int32_t vocab_;
  std::vector<Slot> slots_;
};

}  // namespace millrace::models
