// The text goes forward: a place behind the divergence wins over one before it.
#include "scheduler/prediction.h"

#include <algorithm>
#include <utility>

namespace millrace::scheduler {
namespace {

// Tokens that must stand alike before the text is followed again; more than the
// most say nothing more.
constexpr size_t kMinMatch = 2;
constexpr size_t kMaxMatch = 8;
// Places that one look-up visits: some microseconds beside a step.
constexpr size_t kMostPlaces = 16'384;

}  // namespace

Prediction::Prediction(std::vector<int32_t> tokens)
    : tokens_(std::move(tokens)) {}

std::vector<int32_t> Prediction::Propose(std::span<const int32_t> output,
                                         int32_t max_tokens) {
  if (tokens_.empty()) return {};
  const bool is_new = output.size() > num_read_;
  for (; num_read_ < output.size(); ++num_read_) {
    lost_ =
        lost_ || next_ >= tokens_.size() || tokens_[next_] != output[num_read_];
    if (!lost_) ++next_;
  }
  if (lost_ && is_new) LookUp(output);
  if (lost_) return {};
  const size_t count = std::min(static_cast<size_t>(std::max(max_tokens, 0)),
                                tokens_.size() - next_);
  const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(next_);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

void Prediction::LookUp(std::span<const int32_t> output) {
  const size_t size = tokens_.size();
  size_t longest = kMinMatch - 1;
  size_t best = 0;  // the place behind the best match
  for (size_t i = 0; i < std::min(size, kMostPlaces); ++i) {
    // Ends of matches: from the divergence on, then from the beginning.
    const size_t end = (next_ + i) % size;
    size_t length = 0;
    while (length < kMaxMatch && length <= end && length < output.size() &&
           tokens_[end - length] == output[output.size() - 1 - length]) {
      ++length;
    }
    if (length <= longest) continue;
    longest = length;
    best = end + 1;
    if (length == kMaxMatch) break;
  }
  if (longest < kMinMatch) return;
  next_ = best;
  lost_ = false;
}

}  // namespace millrace::scheduler
