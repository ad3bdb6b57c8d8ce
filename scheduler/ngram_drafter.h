// Prompt lookup: drafts what followed the last tokens the last time that they
// stood in the sequence, prompt or completion. Right in quotations, edits and
// code. The kind of a draft is the length of its match.
//
// Stateless and thread-safe.
// Source: prompt lookup decoding, Saxena 2023.
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/drafter.h"

namespace millrace::scheduler {

class NgramDrafter final : public Drafter {
 public:
  // Matches of at least min_match and at most max_match tokens, the longest
  // first, among equals the most recent. 1 <= min_match <= max_match.
  NgramDrafter(int32_t min_match, int32_t max_match);

  void Propose(std::span<const DraftRequest> requests) override;
  // The same for one sequence of `tokens`.
  Draft Propose(std::span<const int32_t> tokens, int32_t max_tokens) const;

 private:
  const int32_t min_match_;
  const int32_t max_match_;
};

}  // namespace millrace::scheduler
