// Sampling without a full sort. top-k, min-p and top-p each keep a prefix of
// the tokens in order of weight, so they commute with one another but for the
// mass top-p measures: it is that of what top-k and min-p left. The random
// number is a hash of (seed, position), so a token drawn again after a
// preemption is the same token.
#include "models/llm/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "config/base/status.h"
#include "models/llm/dry.h"

namespace millrace::models {
namespace {

constexpr float kMinTemperature = 1e-5f;  // below it, greedy
// Whether XTC acts on a token is drawn apart from the token.
constexpr uint64_t kXtcStream = 0x58544358544358ull;

// llama.cpp's order.
constexpr DrawStage kUsualOrder[] = {DrawStage::kTopNSigma,  DrawStage::kTopK,
                                     DrawStage::kTypical,    DrawStage::kTopP,
                                     DrawStage::kMinP,       DrawStage::kXtc,
                                     DrawStage::kTemperature};

// Something is asked for that only llama.cpp's samplers have.
bool DrawsInTurn(const SamplingParams& params) {
  return params.typical_p < 1 || params.top_n_sigma > 0 ||
         params.xtc_probability > 0 || params.dynatemp_range > 0 ||
         params.min_keep > 1 || !params.order.empty();
}

// splitmix64's finaliser (Steele et al. 2014).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t RandomBits(uint64_t seed, int32_t position) {
  const uint64_t counter = Mix(static_cast<uint64_t>(position) + 1);
  return Mix(Mix(seed + 0x9e3779b97f4a7c15u) + counter);
}

// Uniform in [0, 1), 53 bits.
double Uniform(uint64_t seed, int32_t position) {
  return static_cast<double>(RandomBits(seed, position) >> 11) * 0x1p-53;
}

// The greater weight first, then the lower id: a strict order.
struct ByWeight {
  const float* weights;
  bool operator()(int32_t a, int32_t b) const {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  }
};

// Sorted candidates that hold the wanted mass: the shortest such prefix.
// Buckets by the leading bits of the float (an eighth of a power of two each)
// tell which candidates can matter, so that only those are sorted.
void KeepMass(const float* weights, double wanted,
              std::vector<int32_t>& candidates) {
  constexpr int kBuckets = 256 * 8;
  const auto bucket_of = [&](int32_t id) {
    return std::bit_cast<uint32_t>(weights[id]) >> 20;  // weights are in [0, 1]
  };
  std::vector<double> mass(kBuckets, 0.0);
  for (const int32_t id : candidates) mass[bucket_of(id)] += weights[id];
  int lowest = kBuckets;
  for (double sum = 0; lowest > 0 && sum < wanted;) sum += mass[--lowest];
  // Rounding may make the sorted sum fall short: one bucket more is free.
  lowest = std::max(0, lowest - 1);
  std::erase_if(candidates, [&](int32_t id) {
    return static_cast<int>(bucket_of(id)) < lowest;
  });
  std::sort(candidates.begin(), candidates.end(), ByWeight{weights});
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size()) {
    sum += weights[candidates[kept++]];
    if (sum >= wanted) break;
  }
  candidates.resize(std::max<size_t>(kept, 1));
}

}  // namespace

Sampler::Sampler(const KernelTable& kernels, int32_t vocab, int32_t num_slots)
    : kernels_(kernels),
      vocab_(vocab),
      slots_(static_cast<size_t>(num_slots)) {}

void Sampler::InitSlot(const SlotInit& init) {
  Slot& slot = slots_[static_cast<size_t>(init.slot)];
  slot.params = *init.sampling;
  slot.output_tokens = static_cast<int32_t>(init.output.size());
  slot.processors = MakeLogitsProcessors(slot.params, init.prompt, vocab_);
  for (const int32_t id : init.output) {
    for (const auto& processor : slot.processors) processor->Accept(id);
  }
  slot.mirostat_mu = init.mirostat_mu.value_or(2 * slot.params.mirostat.tau);
  slot.text.clear();
  if (slot.params.dry.multiplier != 0) {
    slot.text.assign(init.prompt.begin(), init.prompt.end());
    slot.text.insert(slot.text.end(), init.output.begin(), init.output.end());
  }
  slot.penalties.Reset(slot.params, init.prompt, init.output);
}

std::vector<int32_t> Sampler::ForcedTokens(int32_t slot, int32_t most) const {
  for (const auto& processor : slots_[static_cast<size_t>(slot)].processors) {
    std::vector<int32_t> ids = processor->ForcedTokens(most);
    if (!ids.empty()) return ids;
  }
  return {};
}

bool Sampler::DrawsFromLogits(const Slot& slot) const {
  const SamplingParams& params = slot.params;
  return !params.logprobs && params.top_logprobs == 0 &&
         params.logit_bias.empty() && !params.mirostat.on &&
         params.dry.multiplier == 0 && !slot.penalties.active() &&
         slot.processors.empty() && slot.output_tokens >= params.min_tokens;
}

bool Sampler::TakesGreatest(int32_t slot_index) const {
  const Slot& slot = slots_[static_cast<size_t>(slot_index)];
  return slot.params.temperature < kMinTemperature && DrawsFromLogits(slot);
}

std::optional<Sampler::PlainDraw> Sampler::PlainDrawOf(int32_t slot_index,
                                                       int32_t position) const {
  const Slot& slot = slots_[static_cast<size_t>(slot_index)];
  const SamplingParams& params = slot.params;
  if (params.temperature < kMinTemperature || DrawsInTurn(params) ||
      !DrawsFromLogits(slot)) {
    return std::nullopt;
  }
  return PlainDraw{.inverse_temperature = 1.0f / params.temperature,
                   .top_k = params.top_k,
                   .top_p = params.top_p,
                   .min_p = params.min_p,
                   .random = RandomBits(params.seed, position)};
}

void Sampler::Count(int32_t slot_index, const Drawn& drawn) {
  Slot& slot = slots_[static_cast<size_t>(slot_index)];
  const int32_t id = drawn.id;
  if (slot.params.mirostat.on) slot.mirostat_mu = drawn.mirostat_mu;
  if (slot.params.dry.multiplier != 0) slot.text.push_back(id);
  ++slot.output_tokens;
  slot.penalties.Count(id);
  for (const auto& processor : slot.processors) processor->Accept(id);
}

void Sampler::FillMasks(int32_t slot_index, std::span<const int32_t> drafts,
                        std::span<uint32_t> masks) {
  const Slot& slot = slots_[static_cast<size_t>(slot_index)];
  const size_t words = mask_words();
  std::ranges::fill(masks, ~0u);
  // Bits behind the last token are not set.
  const int32_t rest = vocab_ % 32;
  for (size_t i = words; rest != 0 && i <= masks.size(); i += words) {
    masks[i - 1] = (1u << rest) - 1;
  }
  size_t accepted = 0;
  while (true) {
    const auto mask = masks.subspan(accepted * words, words);
    for (const auto& processor : slot.processors) processor->Restrict(mask);
    if (accepted == drafts.size()) break;
    const int32_t id = drafts[accepted];
    if (id < 0 || id >= vocab_ || !IsAllowed(mask, id)) break;
    for (const auto& processor : slot.processors) processor->Accept(id);
    ++accepted;
  }
  if (accepted == 0) return;
  for (const auto& processor : slot.processors) {
    processor->Rollback(static_cast<int32_t>(accepted));
  }
}

int32_t Sampler::Apply(std::span<const uint32_t> mask,
                       std::span<float> logits) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  int32_t first = -1;
  bool any = false;  // an allowed token can be drawn
  for (int32_t begin = 0; begin < vocab_; begin += 32) {
    const uint32_t word = mask[static_cast<size_t>(begin) / 32];
    if (any && word == ~0u) continue;
    const int32_t end = std::min(begin + 32, vocab_);
    if (word == 0) {
      std::fill(logits.begin() + begin, logits.begin() + end, kNever);
      continue;
    }
    for (int32_t id = begin; id < end; ++id) {
      if (!IsAllowed(mask, id)) {
        logits[id] = kNever;
        continue;
      }
      if (first < 0) first = id;
      any = any || logits[id] > kNever;
    }
  }
  return any ? -1 : first;
}

void Sampler::Change(const Slot& slot, std::span<const int32_t> drafts,
                     std::span<float> logits, Scratch& scratch) const {
  const SamplingParams& params = slot.params;
  const auto valid = [&](int32_t id) { return id >= 0 && id < vocab_; };
  const auto remember = [&](int32_t id) {
    scratch.raw.emplace_back(id, logits[id]);
  };
  for (const auto& [id, bias] : params.logit_bias) {
    if (!valid(id)) continue;
    remember(id);
    logits[id] += bias;
  }
  const auto num_drafts = static_cast<int32_t>(drafts.size());
  if (slot.output_tokens + num_drafts < params.min_tokens) {
    for (const int32_t id : params.stop_ids) {
      if (!valid(id)) continue;
      remember(id);
      logits[id] = -std::numeric_limits<float>::infinity();
    }
  }
  if (params.dry_first) PenaliseRepetition(slot, drafts, logits, scratch);
  slot.penalties.Apply(drafts, logits, scratch.raw);
  if (!params.dry_first) PenaliseRepetition(slot, drafts, logits, scratch);
}

void Sampler::PenaliseRepetition(const Slot& slot,
                                 std::span<const int32_t> drafts,
                                 std::span<float> logits,
                                 Scratch& scratch) const {
  const SamplingParams& params = slot.params;
  if (params.dry.multiplier == 0) return;
  scratch.text = slot.text;
  scratch.text.insert(scratch.text.end(), drafts.begin(), drafts.end());
  for (const auto& [id, penalty] : DryPenalties(params.dry, scratch.text)) {
    if (id < 0 || id >= vocab_) continue;
    scratch.raw.emplace_back(id, logits[id]);
    logits[id] -= penalty;
  }
}

int32_t Sampler::Greatest(std::span<const float> logits) const {
  const float greatest = kernels_.max(logits.data(), vocab_);
  for (int32_t id = 0; id < vocab_; ++id) {
    if (logits[id] == greatest) return id;
  }
  return 0;  // only NaN
}

float Sampler::BoundOfTopK(const float* weights, int32_t k,
                           Scratch& scratch) const {
  constexpr int32_t kBlock = 64;
  if (k > vocab_ / kBlock) return 0;
  std::vector<float>& maxima = scratch.maxima;
  maxima.clear();
  for (int32_t at = 0; at < vocab_; at += kBlock) {
    maxima.push_back(kernels_.max(weights + at, std::min(kBlock, vocab_ - at)));
  }
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(),
                   std::greater<>());
  return maxima[static_cast<size_t>(k - 1)];
}

int32_t Sampler::Draw(const SamplingParams& params, int32_t position,
                      std::span<const float> logits, Scratch& scratch) const {
  scratch.weights.resize(static_cast<size_t>(vocab_));
  float* weights = scratch.weights.data();
  const float greatest = kernels_.max(logits.data(), vocab_);
  const double all = kernels_.sum_exp(logits.data(), vocab_, greatest,
                                      1.0f / params.temperature, weights);
  const double u = Uniform(params.seed, position);

  const bool cut = (params.top_k > 0 && params.top_k < vocab_) ||
                   params.min_p > 0 || params.top_p < 1;
  if (!cut) {
    double rest = u * all;
    int32_t last = 0;
    for (int32_t id = 0; id < vocab_; ++id) {
      if (weights[id] == 0) continue;
      last = id;
      rest -= weights[id];
      if (rest < 0) break;
    }
    return last;
  }

  // A weight below which no token can be kept, so that few are looked at: the
  // greatest weight is 1, k blocks whose maxima are at least x hold k tokens
  // that are, and n tokens below (1 - p) / n of the mass hold less than 1 - p.
  std::vector<int32_t>& candidates = scratch.candidates;
  const bool top_k = params.top_k > 0 && params.top_k < vocab_;
  float least = std::max(params.min_p, std::numeric_limits<float>::min());
  if (top_k) {
    least = std::max(least, BoundOfTopK(weights, params.top_k, scratch));
  } else if (params.min_p <= 0) {
    least = std::max(
        least, static_cast<float>(0.5 * (1 - params.top_p) * all / vocab_));
  }
  candidates.clear();
  for (int32_t id = 0; id < vocab_; ++id) {
    if (weights[id] >= least) candidates.push_back(id);
  }
  if (candidates.empty()) return Greatest(logits);
  if (top_k && static_cast<size_t>(params.top_k) < candidates.size()) {
    const auto nth = candidates.begin() + params.top_k;
    std::nth_element(candidates.begin(), nth, candidates.end(),
                     ByWeight{weights});
    candidates.erase(nth, candidates.end());
    // Sums below run in this order, which must be the same everywhere.
    std::sort(candidates.begin(), candidates.end());
  }
  if (params.top_p < 1) {
    double left = all;
    if (top_k || params.min_p > 0) {
      left = 0;
      for (const int32_t id : candidates) left += weights[id];
    }
    KeepMass(weights, params.top_p * left, candidates);
  }

  double mass = 0;
  for (const int32_t id : candidates) mass += weights[id];
  double rest = u * mass;
  for (const int32_t id : candidates) {
    rest -= weights[id];
    if (rest < 0) return id;
  }
  return candidates.back();
}

int32_t Sampler::DrawInTurn(const SamplingParams& params, int32_t position,
                            std::span<const float> logits,
                            Scratch& scratch) const {
  Candidates left(kernels_, logits, 1.0f, scratch.room);
  const std::span<const DrawStage> order =
      params.order.empty() ? std::span<const DrawStage>(kUsualOrder)
                           : std::span<const DrawStage>(params.order);
  float temperature = 1;
  for (size_t i = 0; i < order.size(); ++i) {
    switch (order[i]) {
      case DrawStage::kTopNSigma:
        left.KeepTopNSigma(params.top_n_sigma);
        break;
      case DrawStage::kTopK:
        left.KeepTopK(params.top_k);
        break;
      case DrawStage::kTypical:
        left.KeepTypical(params.typical_p, params.min_keep);
        break;
      case DrawStage::kTopP:
        left.KeepTopP(params.top_p, params.min_keep);
        break;
      case DrawStage::kMinP:
        left.KeepMinP(params.min_p, params.min_keep);
        break;
      case DrawStage::kXtc:
        if (Uniform(params.seed ^ kXtcStream, position) <
            params.xtc_probability) {
          left.DropTop(params.xtc_threshold, params.min_keep);
        }
        break;
      case DrawStage::kTemperature:
        temperature =
            left.DynamicTemperature(params.temperature, params.dynatemp_range,
                                    params.dynatemp_exponent);
        if (i + 1 < order.size()) left.Temper(temperature);
        break;
    }
  }
  return left.Draw(temperature, Uniform(params.seed, position));
}

int32_t Sampler::DrawMirostat(const SamplingParams& params, int32_t position,
                              std::span<const float> logits, Scratch& scratch,
                              float& mu) const {
  Candidates left(kernels_, logits, params.temperature, scratch.room);
  if (params.mirostat.version == 1) {
    left.KeepZipf(mu);
  } else {
    left.KeepSurprise(mu);
  }
  const int32_t id =
      left.Draw(params.temperature, Uniform(params.seed, position));
  mu -= params.mirostat.eta * (left.Surprise(id) - params.mirostat.tau);
  return id;
}

Sampler::Drawn Sampler::Sample(int32_t slot_index, int32_t position,
                               int32_t score_id,
                               std::span<const int32_t> drafts,
                               std::span<float> logits,
                               std::span<TokenLogprob> top, Scratch& scratch,
                               std::span<const uint32_t> mask) const {
  const Slot& slot = slots_[static_cast<size_t>(slot_index)];
  const SamplingParams& params = slot.params;
  std::fill(top.begin(), top.end(), TokenLogprob{-1, 0.0f});
  const bool scores = score_id != kSample;
  const bool wants_logprob = scores || params.logprobs;
  double log_sum = 0;
  if (wants_logprob) {
    const float greatest = kernels_.max(logits.data(), vocab_);
    log_sum = static_cast<double>(greatest) +
              std::log(kernels_.sum_exp(logits.data(), vocab_, greatest, 1.0f,
                                        nullptr));
  }
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  const int32_t num_top =
      wants_logprob ? std::min({params.top_logprobs, kMaxTopLogprobs, vocab_})
                    : 0;
  if (num_top > 0) {
    // The best so far, ordered; one comparison for nearly every token.
    std::pair<float, int32_t> best[kMaxTopLogprobs];
    int32_t held = 0;
    for (int32_t id = 0; id < vocab_; ++id) {
      const float x = logits[id];
      if (held == num_top && !(x > best[held - 1].first)) continue;
      int32_t at = held < num_top ? held++ : held - 1;
      for (; at > 0 && x > best[at - 1].first; --at) best[at] = best[at - 1];
      best[at] = {x, id};
    }
    for (int32_t i = 0; i < held; ++i) {
      top[static_cast<size_t>(i)] = {best[i].second, logprob(best[i].first)};
    }
  }
  if (scores) {
    const bool valid = score_id >= 0 && score_id < vocab_;
    return {score_id, valid ? logprob(logits[score_id])
                            : -std::numeric_limits<float>::infinity()};
  }

  scratch.raw.clear();
  Change(slot, drafts, logits, scratch);
  const int32_t only = mask.empty() ? -1 : Apply(mask, logits);
  float mu = slot.mirostat_mu;
  int32_t id = only;
  if (only >= 0) {
    // Nothing is left to draw.
  } else if (params.temperature < kMinTemperature ||
             !std::isfinite(kernels_.max(logits.data(), vocab_))) {
    id = Greatest(logits);
  } else if (params.mirostat.on) {
    CHECK(drafts.empty(), "mirostat's bound behind draft tokens is not known");
    id = DrawMirostat(params, position, logits, scratch, mu);
  } else if (DrawsInTurn(params)) {
    id = DrawInTurn(params, position, logits, scratch);
  } else {
    id = Draw(params, position, logits, scratch);
  }
  if (!wants_logprob) return {id, 0.0f, mu};
  float raw = logits[id];
  for (const auto& [changed, value] : scratch.raw) {
    if (changed == id) {
      raw = value;  // the first entry is the oldest
      break;
    }
  }
  return {id, logprob(raw), mu};
}

}  // namespace millrace::models
