// Which tokens a sequence may draw next. A LogitsProcessor follows the output
// tokens of one sequence and fills a bitmask of the ids that may come next:
// 32-bit words, bit i % 32 of word i / 32 is set when token i is allowed (the
// layout of xgrammar).
//
//   auto processors = MakeLogitsProcessors(params, prompt, vocab);
//   std::vector<uint32_t> mask(TokenMaskWords(vocab), ~0u);
//   for (auto& processor : processors) processor->Restrict(mask);
//   ... a token is drawn ...
//   for (auto& processor : processors) processor->Accept(id);
//
// Draft tokens are tried by Accept and taken back by Rollback. After a
// preemption the state is made anew and Accept is called for each output token
// there is, so it depends on the tokens alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/llm/step.h"

namespace millrace::models {

inline size_t TokenMaskWords(int32_t vocab) {
  return (static_cast<size_t>(vocab) + 31) / 32;
}
inline bool IsAllowed(std::span<const uint32_t> mask, int32_t id) {
  const auto bit = static_cast<uint32_t>(id);
  return (mask[bit / 32] >> (bit % 32) & 1u) != 0;
}

// The state of one sequence. One thread at a time.
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;

  // Clears the bits of tokens that may not come next, and sets none. A mask
  // with an allowed token keeps one. [TokenMaskWords(vocab)]
  virtual void Restrict(std::span<uint32_t> mask) const = 0;
  // The next output token; Restrict left its bit.
  virtual void Accept(int32_t id) = 0;
  // Takes the last n accepted tokens back. Only draft tokens are taken back, so
  // n is below the number of rows that a step has for one sequence.
  virtual void Rollback(int32_t n) = 0;
  // Draft tokens of the only text that may come next, see GrammarMatcher.
  virtual std::vector<int32_t> ForcedTokens(int32_t /*most*/) const {
    return {};
  }
};

// Those that the parameters ask for, in the order in which they restrict a
// mask: grammar, allowed_token_ids, suppress_tokens, bad_words,
// no_repeat_ngram_size. None: any token may be drawn.
std::vector<std::unique_ptr<LogitsProcessor>> MakeLogitsProcessors(
    const SamplingParams& params, std::span<const int32_t> prompt,
    int32_t vocab);

}  // namespace millrace::models
