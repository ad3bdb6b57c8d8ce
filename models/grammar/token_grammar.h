// A compiled constraint over the tokens of one vocabulary, and its state along
// one completion.
//
//   std::unique_ptr<GrammarMatcher> matcher = grammar.NewMatcher();
//   matcher->Fill(mask);              // which ids may come next
//   ... a token is drawn ...
//   matcher->Accept(id);
//
// A mask has a bit for each id: bit i % 32 of word i / 32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace millrace::models {

// The state of one completion; it depends on the accepted tokens alone. One
// thread at a time.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // Writes every word: the tokens that may come next. At least one bit is set:
  // where the text is complete, or no token leads on, those of the ids that end
  // a completion. [(vocab + 31) / 32]
  virtual void Fill(std::span<uint32_t> mask) = 0;
  // False, and no change, if the token may not come next.
  virtual bool Accept(int32_t id) = 0;
  // Takes the last n accepted tokens back.
  virtual void Rollback(int32_t n) = 0;
  // Where all allowed tokens begin one text, those that spell the most of it,
  // `most` at most; else none. For draft tokens: others may spell the same
  // text, and rarely another text may come (see ForcedTokenFinder).
  virtual std::vector<int32_t> ForcedTokens(int32_t /*most*/) { return {}; }
};

// Immutable and thread-safe.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  virtual std::unique_ptr<GrammarMatcher> NewMatcher() const = 0;
  virtual int64_t memory_bytes() const = 0;
};

}  // namespace millrace::models
