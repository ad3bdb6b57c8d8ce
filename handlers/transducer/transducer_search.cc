#include "handlers/transducer/transducer_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace millrace::handlers {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double LogAdd(double a, double b) {
  const double high = std::max(a, b);
  if (high == kNever) return high;
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

bool SameTokens(const Hypothesis& a, const Hypothesis& b) {
  return a.tokens.size() == b.tokens.size() &&
         // From behind: beams differ in their latest tokens.
         std::equal(a.tokens.rbegin(), a.tokens.rend(), b.tokens.rbegin(),
                    [](const auto& x, const auto& y) { return x.id == y.id; });
}

// By length, so that longer texts are not put off; the blank that every text
// begins with counts, and torchaudio adds one more.
double Rank(const Hypothesis& hypothesis) {
  return hypothesis.score / static_cast<double>(hypothesis.tokens.size() + 2);
}

}  // namespace

TransducerSearch::TransducerSearch(const TransducerOptions& options,
                                   std::vector<Hypothesis> kept,
                                   size_t num_frames, int64_t first_frame)
    : options_(options),
      num_frames_(num_frames),
      first_frame_(first_frame),
      ended_(std::move(kept)) {
  if (!ended_.empty()) {
    BeginFrame();
    return;
  }
  next_.emplace_back();
  asks_.push_back({options_.blank, nullptr});
  wants_ = Want::kPredictions;
}

void TransducerSearch::GivePredictions(
    std::vector<std::shared_ptr<const Prediction>> made) {
  for (size_t i = 0; i < next_.size(); ++i) {
    next_[i].prediction = std::move(made[i]);
  }
  asks_.clear();
  const bool is_first = alive_.empty() && ended_.empty();
  if (is_first) {
    ended_ = std::move(next_);
    next_.clear();
    return BeginFrame();
  }
  alive_ = std::move(next_);
  next_.clear();
  wants_ = Want::kLogits;
}

Status TransducerSearch::GiveLogits(std::span<const float> logits) {
  const auto num_tokens = static_cast<size_t>(options_.num_tokens);
  std::vector<double> log_probs(logits.begin(), logits.end());
  for (size_t row = 0; row < alive_.size(); ++row) {
    const std::span<double> values(log_probs.data() + row * num_tokens,
                                   num_tokens);
    const double high = *std::max_element(values.begin(), values.end());
    double sum = 0;
    for (const double value : values) sum += std::exp(value - high);
    if (!std::isfinite(sum)) {
      return Internal("the joiner's scores are no numbers");
    }
    for (double& value : values) value -= high + std::log(sum);
  }
  if (options_.greedy) {
    Greedy(log_probs);
    return OkStatus();
  }
  EndWithBlank(log_probs);
  if (symbols_ == options_.max_symbols) {
    EndFrame();
    return OkStatus();
  }
  const std::vector<Candidate> best = BestTokens(log_probs);
  if (best.empty()) {
    EndFrame();
  } else {
    GoOnWith(best);
  }
  return OkStatus();
}

void TransducerSearch::BeginFrame() {
  alive_.clear();
  symbols_ = 0;
  if (frame_ == num_frames_) {
    wants_ = Want::kNothing;
    return;
  }
  alive_ = std::move(ended_);
  ended_.clear();
  wants_ = Want::kLogits;
}

void TransducerSearch::EndFrame() {
  std::stable_sort(ended_.begin(), ended_.end(),
                   [](const Hypothesis& a, const Hypothesis& b) {
                     return Rank(a) > Rank(b);
                   });
  if (ended_.size() > options_.beam_width) ended_.resize(options_.beam_width);
  ++frame_;
  BeginFrame();
}

// Two ways to one text are one hypothesis.
void TransducerSearch::EndWithBlank(const std::vector<double>& log_probs) {
  for (size_t row = 0; row < alive_.size(); ++row) {
    const size_t at = row * static_cast<size_t>(options_.num_tokens) +
                      static_cast<size_t>(options_.blank);
    Hypothesis ended = alive_[row];
    ended.score += log_probs[at];
    const auto same = std::find_if(
        ended_.begin(), ended_.end(),
        [&](const Hypothesis& each) { return SameTokens(each, ended); });
    if (same == ended_.end()) {
      ended_.push_back(std::move(ended));
    } else {
      same->score = LogAdd(same->score, ended.score);
    }
  }
}

// Those that are better than the last one that would be kept of this frame.
std::vector<TransducerSearch::Candidate> TransducerSearch::BestTokens(
    const std::vector<double>& log_probs) const {
  double least = kNever;
  if (ended_.size() >= options_.beam_width) {
    std::vector<double> scores;
    for (const Hypothesis& each : ended_) scores.push_back(each.score);
    const auto last =
        scores.begin() + static_cast<std::ptrdiff_t>(options_.beam_width) - 1;
    std::nth_element(scores.begin(), last, scores.end(), std::greater<>());
    least = *last;
  }
  std::vector<Candidate> all;
  for (size_t row = 0; row < alive_.size(); ++row) {
    for (int64_t token = 0; token < options_.num_tokens; ++token) {
      const double score =
          alive_[row].score +
          log_probs[row * static_cast<size_t>(options_.num_tokens) +
                    static_cast<size_t>(token)];
      if (token != options_.blank && score > least) {
        all.push_back({row, token, score});
      }
    }
  }
  const size_t count = std::min(options_.beam_width, all.size());
  std::partial_sort(
      all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(),
      [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  all.resize(count);
  return all;
}

void TransducerSearch::GoOnWith(const std::vector<Candidate>& candidates) {
  const auto frame =
      static_cast<int32_t>(first_frame_ + static_cast<int64_t>(frame_));
  for (const Candidate& each : candidates) {
    const Hypothesis& from = alive_[each.from];
    asks_.push_back({each.token, from.prediction});
    next_.push_back({from.tokens, each.score, nullptr});
    next_.back().tokens.push_back({static_cast<int32_t>(each.token), frame});
  }
  ++symbols_;
  wants_ = Want::kPredictions;
}

void TransducerSearch::Greedy(const std::vector<double>& log_probs) {
  const auto best = std::max_element(log_probs.begin(), log_probs.end());
  int64_t token = best - log_probs.begin();
  if (symbols_ == options_.max_symbols) token = options_.blank;
  const double score = alive_[0].score + log_probs[static_cast<size_t>(token)];
  if (token != options_.blank) return GoOnWith({{0, token, score}});
  ended_ = std::move(alive_);
  ended_[0].score = score;
  EndFrame();
}

}  // namespace millrace::handlers
