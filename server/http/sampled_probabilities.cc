#include "server/http/sampled_probabilities.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace millrace::server::http {
namespace {

using Candidate = handlers::TokenLogprobs::Candidate;

constexpr int64_t kMostCandidates = 20;  // that a completion tells

double Pick(std::optional<double> wanted, std::optional<double> usual,
            double otherwise) {
  return wanted.value_or(usual.value_or(otherwise));
}

// The first field that changes logits or candidates in a way that only the
// sampler knows; null: none.
const char* ChangedBy(const handlers::GenerateOptions& options,
                      const TextFacts& model) {
  const double threshold = options.xtc_threshold.value_or(0.1);
  if (options.mirostat != 0) return "mirostat";
  if (options.min_keep > 1) return "min_keep";
  if (!options.sampler_order.empty() &&
      !std::ranges::is_sorted(options.sampler_order)) {
    return "the order of samplers";
  }
  if (options.typical_p.value_or(1) < 1) return "typical_p";
  if (options.top_n_sigma.value_or(0) > 0) return "top_n_sigma";
  if (options.xtc_probability.value_or(0) > 0 && threshold <= 0.5) {
    return "xtc_probability";
  }
  if (options.dynatemp_range.value_or(0) > 0) return "dynatemp_range";
  if (options.dry_multiplier.value_or(0) != 0) return "dry_multiplier";
  if (Pick(options.repetition_penalty,
           model.default_sampling.repetition_penalty, 1) != 1) {
    return "repeat_penalty";
  }
  if (options.presence_penalty.value_or(0) != 0) return "presence_penalty";
  if (options.frequency_penalty.value_or(0) != 0) return "frequency_penalty";
  if (!options.logit_bias.empty()) return "logit_bias";
  if (!options.allowed_token_ids.empty()) return "allowed_token_ids";
  if (!options.bad_words.empty()) return "bad_words";
  if (!options.suppress_tokens.empty()) return "suppress_tokens";
  if (options.no_repeat_ngram_size > 0) return "no_repeat_ngram_size";
  if (options.constraint) return "a grammar";
  if (options.min_tokens > 0) return "min_tokens";
  return nullptr;
}

Status Unknown(const std::string& why) {
  return InvalidArgument("post_sampling_probs is true but " + why)
      .At("post_sampling_probs")
      .Because("unsupported_parameter");
}

}  // namespace

StatusOr<SampledProbabilities> SampledProbabilities::Create(
    const handlers::GenerateOptions& options, const TextFacts& model,
    int num_shown) {
  SampledProbabilities made;
  made.num_shown_ = num_shown;
  made.temperature_ =
      Pick(options.temperature, model.default_sampling.temperature, 1);
  made.top_p_ = Pick(options.top_p, model.default_sampling.top_p, 1);
  made.min_p_ = Pick(options.min_p, model.default_sampling.min_p, 0);
  made.temperature_last_ =
      options.xtc_probability.value_or(0) > 0 || !options.sampler_order.empty();
  const int64_t top_k =
      options.top_k.value_or(model.default_sampling.top_k.value_or(0));
  // Mirostat takes the place of top_k.
  if (made.temperature_ < 1e-5 ||
      (top_k == 1 && options.mirostat == 0 &&
       std::ranges::is_sorted(options.sampler_order))) {
    made.top_k_ = 1;
    return made;
  }
  if (const char* field = ChangedBy(options, model)) {
    return Unknown(std::string(field) +
                   " changes them in a way that is not told; leave one out");
  }
  if (top_k > kMostCandidates ||
      (top_k <= 0 &&
       (made.temperature_ != 1 || made.top_p_ < 1 || made.min_p_ > 0))) {
    return Unknown("that takes temperature 0, a top_k of 1 to " +
                   std::to_string(kMostCandidates) +
                   ", or temperature 1 with top_k 0, top_p 1 and min_p 0");
  }
  made.top_k_ = static_cast<int>(std::max<int64_t>(top_k, 0));
  return made;
}

std::vector<SampledProbability> SampledProbabilities::Kept(
    std::span<const Candidate> top) const {
  std::vector<SampledProbability> kept;
  const double cut_at = temperature_last_ ? 1 : temperature_;
  for (const Candidate& each :
       top.first(std::min(top.size(), static_cast<size_t>(top_k_)))) {
    const double shift = each.logprob - top.front().logprob;
    kept.push_back({each, std::exp(shift / cut_at)});
  }
  const auto cut_min_p = [&] {
    std::erase_if(kept, [&](const SampledProbability& each) {
      return each.probability < min_p_;  // the best has 1
    });
  };
  const auto cut_top_p = [&] {
    if (top_p_ >= 1) return;
    double mass = 0;
    for (const SampledProbability& each : kept) mass += each.probability;
    double held = 0;
    size_t count = 0;
    while (count < kept.size() && held < top_p_ * mass) {
      held += kept[count++].probability;
    }
    kept.resize(std::max<size_t>(count, 1));
  };
  if (temperature_last_) {
    cut_top_p();
    cut_min_p();
    for (SampledProbability& each : kept) {
      each.probability = std::pow(each.probability, 1 / temperature_);
    }
  } else {
    cut_min_p();
    cut_top_p();
  }
  double mass = 0;
  for (const SampledProbability& each : kept) mass += each.probability;
  for (SampledProbability& each : kept) each.probability /= mass;
  return kept;
}

double SampledProbabilities::OfChosen(
    const handlers::TokenLogprobs& token) const {
  if (top_k_ == 1) return 1;
  if (top_k_ == 0) return std::exp(token.chosen.logprob);
  for (const SampledProbability& each : Kept(token.top)) {
    if (each.token.id == token.chosen.id) return each.probability;
  }
  return 0;
}

std::vector<SampledProbability> SampledProbabilities::Top(
    const handlers::TokenLogprobs& token) const {
  if (top_k_ == 1) return {{token.chosen, 1}};
  std::vector<SampledProbability> top;
  if (top_k_ == 0) {
    for (const Candidate& each : token.top) {
      top.push_back({each, std::exp(each.logprob)});
    }
  } else {
    top = Kept(token.top);
  }
  std::erase_if(top, [](const SampledProbability& each) {
    return each.probability == 0;
  });
  if (top.size() > static_cast<size_t>(num_shown_)) {
    top.resize(static_cast<size_t>(num_shown_));
  }
  return top;
}

}  // namespace millrace::server::http
