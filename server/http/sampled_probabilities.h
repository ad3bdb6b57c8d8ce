// llama.cpp's post_sampling_probs: how likely each token was drawn, where the
// log-probabilities that a completion tells are enough to know:
//
//   temperature 0, or top_k 1    the token that was drawn has 1
//   temperature 1, nothing cut   the model's own probabilities
//   top_k of 2 to 20             those of the candidates, by temperature,
//                                top_p and min_p
//
// and nothing else changes the logits (penalties, biases, grammars, ...).
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "server/lifecycle/servable.h"

namespace millrace::server::http {

struct SampledProbability {
  handlers::TokenLogprobs::Candidate token;  // logprob: before sampling
  double probability = 0;
};

class SampledProbabilities {
 public:
  // `model`: for what the request leaves out. `num_shown`: the most candidates
  // to tell. INVALID_ARGUMENT at post_sampling_probs where the
  // probabilities cannot be known.
  static StatusOr<SampledProbabilities> Create(
      const handlers::GenerateOptions& options, const TextFacts& model,
      int num_shown);

  // Alternatives that the completion must tell with each token.
  int num_alternatives() const { return top_k_ > 1 ? top_k_ : num_shown_; }
  // Of the drawn token.
  double OfChosen(const handlers::TokenLogprobs& token) const;
  // The most likely ones, best first; none has 0.
  std::vector<SampledProbability> Top(
      const handlers::TokenLogprobs& token) const;

 private:
  // All that may be drawn, with their probabilities; only with top_k.
  std::vector<SampledProbability> Kept(
      std::span<const handlers::TokenLogprobs::Candidate> top) const;

  int num_shown_ = 0;
  int top_k_ = 0;  // 0: nothing is cut; 1: greedy
  double temperature_ = 1;
  double top_p_ = 1;
  double min_p_ = 0;
  bool temperature_last_ = false;  // llama.cpp's order
};

}  // namespace millrace::server::http
