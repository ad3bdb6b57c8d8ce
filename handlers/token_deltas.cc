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

void TokenDeltas::Step(char byte, std::vector<OutputDelta> made) {
  ++num_bytes_;
  held_ += byte;
  Made(std::move(made));
}

void TokenDeltas::End(std::vector<OutputDelta> made) {
  Made(std::move(made));
  held_.clear();
  // Tokens without a text behind the last byte go with that.
  for (Token& token : tokens_) {
    token.span.begin = std::min(token.span.begin, num_bytes_ - 1);
  }
  if (num_bytes_ == 0) content_.push_back({-1, 0});
  Tell(std::numeric_limits<int64_t>::max(), /*all=*/true);
}

std::vector<OutputDelta> TokenDeltas::Take() {
  Tell(first_held(), /*all=*/true);
  return std::exchange(deltas_, {});
}

void TokenDeltas::Made(std::vector<OutputDelta> made) {
  for (OutputDelta& delta : made) {
    if (delta.kind != DeltaKind::kContent) {
      held_.clear();
      // Content that ends in a token which goes on with something else.
      Tell(num_bytes_, /*all=*/false);
      Append(std::move(delta));
      Tell(num_bytes_, /*all=*/true);
      continue;
    }
    size_t at = held_.starts_with(delta.text) ? 0 : held_.rfind(delta.text);
    size_t size = delta.text.size();
    if (at == held_.npos) {  // not as it came
      at = 0;
      size = held_.size();
    }
    const int64_t begin = first_held() + static_cast<int64_t>(at);
    Tell(begin, /*all=*/true);
    held_.erase(0, at + size);
    if (content_.empty() || content_.back().end != begin) {
      content_.push_back({begin, begin});
    }
    content_.back().end = first_held();
    Append(std::move(delta));
    Tell(first_held(), /*all=*/true);
  }
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
