#include "handlers/token_deltas.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace millrace::handlers {

void TokenDeltas::Add(TokenSpan span, TokenLogprobs logprobs) {
  // Without a text it goes with what comes next.
  span.end = std::max(span.end, span.begin + 1);
  tokens_.push_back({span, std::move(logprobs)});
  const int64_t first = tokens_.front().span.begin;
  while (!content_.empty() && content_.front().end < first) {
    content_.pop_front();
  }
}

void TokenDeltas::Step(std::vector<OutputDelta> made, Held held) {
  held_.push_back(num_bytes_++);
  Made(std::move(made), held);
}

void TokenDeltas::End(std::vector<OutputDelta> made) {
  Made(std::move(made), {});
  // Tokens without a text behind the last byte go with that.
  for (Token& token : tokens_) {
    token.span.begin = std::min(token.span.begin, num_bytes_ - 1);
  }
  if (num_bytes_ == 0) content_.push_back({-1, 0});
  Tell(std::numeric_limits<int64_t>::max(), /*all=*/true);
}

std::vector<OutputDelta> TokenDeltas::Take() {
  Tell(given_, /*all=*/true);
  return std::exchange(deltas_, {});
}

void TokenDeltas::Made(std::vector<OutputDelta> made, Held held) {
  size_t to_come = 0;  // bytes of content in what is left of `made`
  for (const OutputDelta& delta : made) {
    if (delta.kind == DeltaKind::kContent) to_come += delta.text.size();
  }
  // Content takes all white space before it along.
  lost_spaces_ = to_come > 0 ? 0 : std::min(lost_spaces_, held.spaces);
  held.spaces -= lost_spaces_;
  for (OutputDelta& delta : made) {
    if (delta.kind == DeltaKind::kContent) {
      to_come -= delta.text.size();
      const size_t behind = to_come + held.spaces + held.last;
      const size_t left = held_.size() - std::min(held_.size(), behind);
      // The text may have bytes that are not there: white space that is lost,
      // and what the prompt began the completion with.
      const size_t count = std::min(delta.text.size(), left);
      MadeContent(std::move(delta), count);
      continue;
    }
    if (to_come == 0) lost_spaces_ += std::exchange(held.spaces, 0);
    Keep({.spaces = 0, .last = to_come + held.spaces + held.last});
    given_ = first_held();
    // Content that ends in a token which goes on with something else.
    Tell(given_, /*all=*/false);
    Append(std::move(delta));
    Tell(given_, /*all=*/true);
  }
  Keep(held);
}

void TokenDeltas::MadeContent(OutputDelta delta, size_t count) {
  given_ = first_held();
  Tell(given_, /*all=*/true);
  for (size_t i = 0; i < count; ++i) {
    const int64_t at = held_.front();
    held_.pop_front();
    if (content_.empty() || content_.back().end != at) {
      content_.push_back({at, at});
    }
    content_.back().end = given_ = at + 1;
  }
  Append(std::move(delta));
  Tell(given_, /*all=*/true);
}

// The bytes between are dropped.
void TokenDeltas::Keep(Held held) {
  if (held_.size() <= held.spaces + held.last) return;
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(held.spaces),
              held_.end() - static_cast<ptrdiff_t>(held.last));
}

void TokenDeltas::Append(OutputDelta delta) {
  if (delta.kind == DeltaKind::kToolCall) last_call_ = delta.call_idx;
  if (!deltas_.empty() && deltas_.back().kind == delta.kind &&
      delta.call_name.empty()) {
    deltas_.back().text += delta.text;
  } else {
    deltas_.push_back(std::move(delta));
  }
}

void TokenDeltas::Tell(int64_t end, bool all) {
  while (!tokens_.empty() && tokens_.front().span.end <= end) {
    const bool is_content = IsContent(tokens_.front().span);
    if (!is_content && !all) return;
    if (deltas_.empty() ||
        (deltas_.back().kind == DeltaKind::kContent) != is_content) {
      OutputDelta& delta = deltas_.emplace_back();
      if (!is_content) {
        delta.kind =
            last_call_ < 0 ? DeltaKind::kReasoning : DeltaKind::kToolCall;
        delta.call_idx = std::max(last_call_, 0);
      }
    }
    deltas_.back().logprobs.push_back(std::move(tokens_.front().logprobs));
    tokens_.pop_front();
  }
}

bool TokenDeltas::IsContent(const TokenSpan& span) const {
  return std::ranges::any_of(content_, [&](const TokenSpan& part) {
    return part.begin < span.end && span.begin < part.end;
  });
}

}  // namespace millrace::handlers
