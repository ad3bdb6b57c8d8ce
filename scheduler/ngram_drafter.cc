// A backward search instead of an index: it reads a few thousand integers, some
// microseconds beside a step's milliseconds, and has no state to keep in order.
#include "scheduler/ngram_drafter.h"

#include <algorithm>

#include "config/base/status.h"

namespace millrace::scheduler {
namespace {

constexpr int32_t kMostTokensSearched = 16'384;

}  // namespace

NgramDrafter::NgramDrafter(int32_t min_match, int32_t max_match)
    : min_match_(min_match), max_match_(max_match) {
  CHECK(1 <= min_match && min_match <= max_match,
        "a match has a token at least");
}

void NgramDrafter::Propose(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    *request.draft = Propose(request.sequence->tokens, request.max_tokens);
  }
}

Draft NgramDrafter::Propose(std::span<const int32_t> tokens,
                            int32_t max_tokens) const {
  Draft draft;
  const auto n = static_cast<int32_t>(tokens.size());
  if (n < min_match_ + 1 || max_tokens < 1) return draft;
  const int32_t oldest = std::max(0, n - 1 - kMostTokensSearched);
  const int32_t last = tokens[n - 1];
  int32_t longest = min_match_ - 1;
  int32_t follows = -1;  // first token after the best match
  for (int32_t end = n - 2; end >= oldest && longest < max_match_; --end) {
    if (tokens[end] != last) continue;
    int32_t length = 1;
    while (length < max_match_ && length <= end &&
           tokens[end - length] == tokens[n - 1 - length]) {
      ++length;
    }
    if (length <= longest) continue;
    longest = length;
    follows = end + 1;
  }
  if (follows < 0) return draft;
  draft.kind = std::min(longest, kForcedKind) - 1;
  const int32_t count = std::min(max_tokens, n - follows);
  draft.tokens.assign(tokens.begin() + follows,
                      tokens.begin() + follows + count);
  return draft;
}

}  // namespace millrace::scheduler
