#include "models/llm/penalties.h"

#include <algorithm>

namespace millrace::models {
namespace {

int32_t CountOf(std::span<const int32_t> ids, int32_t id) {
  return static_cast<int32_t>(std::ranges::count(ids, id));
}

}  // namespace

void Penalties::Reset(const SamplingParams& params,
                      std::span<const int32_t> prompt,
                      std::span<const int32_t> output) {
  repetition_ = params.repetition_penalty;
  presence_ = params.presence_penalty;
  frequency_ = params.frequency_penalty;
  last_n_ = static_cast<size_t>(std::max(params.penalty_last_n, 0));
  active_ = repetition_ != 1.0f || presence_ != 0.0f || frequency_ != 0.0f;
  times_.clear();
  text_.clear();
  if (!active_) return;
  if (last_n_ == 0) {
    for (const int32_t id : prompt) times_[id] = 0;
    for (const int32_t id : output) ++times_[id];
    return;
  }
  text_.assign(prompt.begin(), prompt.end());
  text_.insert(text_.end(), output.begin(), output.end());
  for (const int32_t id : Window()) ++times_[id];
}

std::span<const int32_t> Penalties::Window() const {
  return std::span(text_).last(std::min(text_.size(), last_n_));
}

void Penalties::Count(int32_t id) {
  if (!active_) return;
  ++times_[id];
  if (last_n_ == 0) return;
  text_.push_back(id);
  if (text_.size() <= last_n_) return;
  const auto gone = times_.find(text_.rbegin()[last_n_]);
  if (--gone->second == 0) times_.erase(gone);
}

void Penalties::Apply(std::span<const int32_t> drafts, std::span<float> logits,
                      std::vector<std::pair<int32_t, float>>& raw) const {
  if (!active_) return;
  const auto penalise = [&](int32_t id, int32_t times) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) return;
    raw.emplace_back(id, logits[id]);
    float& x = logits[id];
    if (repetition_ != 1.0f) x = x > 0 ? x / repetition_ : x * repetition_;
    if (times > 0) {
      x -= presence_;
      x -= frequency_ * static_cast<float>(times);
    }
  };
  // As many of the oldest tokens leave the window as drafts are too many.
  std::span<const int32_t> gone;
  if (last_n_ > 0) {
    drafts = drafts.last(std::min(drafts.size(), last_n_));
    const auto window = Window();
    const size_t wanted = window.size() + drafts.size();
    if (wanted > last_n_) gone = window.first(wanted - last_n_);
  }
  // Each token is changed on its own, so the map's order does not matter.
  for (const auto& [id, times] : times_) {
    const int32_t now = times + CountOf(drafts, id) - CountOf(gone, id);
    if (now > 0 || last_n_ == 0) penalise(id, now);
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    const bool first = CountOf(drafts.first(i), drafts[i]) == 0;
    if (!first || times_.contains(drafts[i])) continue;
    penalise(drafts[i], CountOf(drafts, drafts[i]));
  }
}

}  // namespace millrace::models
