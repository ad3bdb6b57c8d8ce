// Drafters guess the next tokens of a sequence, cheaply; the model then checks
// several guesses in one step. A guess never changes an answer, only how many
// steps it takes.
//
//   NgramDrafter drafter(2, 4);
//   Draft draft = drafter.Propose(sequence.tokens, 5);
//
// Stateless and thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::scheduler {

// How sure a drafter is: guesses of one kind come true about equally often.
inline constexpr int32_t kDraftKinds = 8;

struct Draft {
  std::vector<int32_t> tokens;
  int32_t kind = 0;  // below kDraftKinds
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most `max_tokens` ids that may follow `tokens`, or none.
  virtual Draft Propose(std::span<const int32_t> tokens,
                        int32_t max_tokens) const = 0;
};

// Looks the end of the sequence up in the sequence itself, prompt and answer:
// what followed the last time may follow again. Quoting, editing and code make
// it come true. The kind of a guess is the length of its match.
// Source: prompt lookup decoding, Saxena 2023.
class NgramDrafter final : public Drafter {
 public:
  // Matches of at least min_match and at most max_match tokens, the longest
  // first, among equals the most recent. 1 <= min_match <= max_match.
  NgramDrafter(int32_t min_match, int32_t max_match);
  Draft Propose(std::span<const int32_t> tokens,
                int32_t max_tokens) const override;

 private:
  const int32_t min_match_;
  const int32_t max_match_;
};

}  // namespace millrace::scheduler
