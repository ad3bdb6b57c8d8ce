#include "scheduler/forced_drafter.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "config/base/status.h"

namespace millrace::scheduler {

ForcedDrafter::ForcedDrafter(models::Runner& runner,
                             std::unique_ptr<Drafter> other)
    : runner_(runner), other_(std::move(other)) {
  CHECK(other_->cost() == nullptr, "proposals are not planned by their cost");
}

void ForcedDrafter::Propose(std::span<const DraftRequest> requests) {
  other_->Propose(requests);
  for (const auto& [sequence, max_tokens, draft] : requests) {
    if (max_tokens <= 0) continue;
    std::vector<int32_t> ids = runner_.ForcedTokens(sequence->slot, max_tokens);
    if (ids.empty()) continue;
    const bool goes_on =
        draft->tokens.size() > ids.size() &&
        std::equal(ids.begin(), ids.end(), draft->tokens.begin());
    if (!goes_on) *draft = {std::move(ids), kForcedKind};
  }
}

}  // namespace millrace::scheduler
