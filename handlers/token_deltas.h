// Which delta of a parsed completion tells a token's log-probabilities: one of
// content for the tokens that content is made of, one of reasoning or of a call
// for all others, those of tags included. How the tokens were grouped as they
// came changes nothing.
//
//   tokens.Add(span, logprobs);                     // each token, then
//   parser.Step(byte);                              // each byte of their text
//   tokens.Step(byte, parsed.Take());
//   for (OutputDelta& delta : tokens.Take()) ...
//
// A parser holds bytes back, drops some and gives the others out as they are.
// So content that comes out is looked for among the bytes held back: at their
// beginning, else as far behind as it goes (what stands before was dropped).
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "handlers/messages.h"
#include "handlers/text_out.h"

namespace millrace::handlers {

class TokenDeltas {
 public:
  // The next token; its bytes may be parsed already.
  void Add(TokenSpan span, TokenLogprobs logprobs);
  // The parser has got the next byte of the text, and made these of it.
  void Step(char byte, std::vector<OutputDelta> made);
  // There are no more bytes.
  void End(std::vector<OutputDelta> made);

  // All since the last call, neighbours of a kind joined. Tokens of tags may
  // have a delta without a text.
  std::vector<OutputDelta> Take();

 private:
  struct Token {
    TokenSpan span;
    TokenLogprobs logprobs;
  };
  void Made(std::vector<OutputDelta> made);
  void Append(OutputDelta delta);
  // Tokens that end up to here, as far as they are content or `all`.
  void Tell(int64_t end, bool all);
  bool IsContent(const TokenSpan& span) const;
  int64_t first_held() const {
    return num_bytes_ - static_cast<int64_t>(held_.size());
  }

  std::vector<OutputDelta> deltas_;  // since the last Take
  std::deque<Token> tokens_;         // not told yet, in order
  int64_t num_bytes_ = 0;            // that the parser has
  std::string held_;                 // of these the last, not given out
  // Content among the bytes, ascending; none ends before the tokens to come.
  std::deque<TokenSpan> content_;
  int32_t last_call_ = -1;
};

}  // namespace millrace::handlers
