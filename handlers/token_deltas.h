// Which delta of a parsed completion tells a token's log-probabilities: one of
// content for the tokens that content is made of, one of reasoning or of a call
// for all others, those of tags included. How the tokens were grouped as they
// came changes nothing.
//
//   tokens.Add(span, logprobs);                     // each token, then
//   parser.Step(byte);                              // each byte of their text
//   tokens.Step(parsed.Take(), {parsed.num_spaces(), parser.num_held()});
//   for (OutputDelta& delta : tokens.Take()) ...
//
// A parser holds bytes back, drops some and gives the others out in their
// order. After each byte it says which ones may still become content, so that
// content is always the first of these; its text decides nothing.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "handlers/messages.h"
#include "handlers/text_out.h"

namespace millrace::handlers {

class TokenDeltas {
 public:
  // What may still become content: white space behind the content so far, and
  // the last bytes.
  struct Held {
    size_t spaces = 0;
    size_t last = 0;
  };

  // The next token; its bytes may be parsed already.
  void Add(TokenSpan span, TokenLogprobs logprobs);
  // The parser has got the next byte of the text, made these of it, and holds
  // that.
  void Step(std::vector<OutputDelta> made, Held held);
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
  void Made(std::vector<OutputDelta> made, Held held);
  // Of content: the next `count` bytes that are held.
  void MadeContent(OutputDelta delta, size_t count);
  void Keep(Held held);
  void Append(OutputDelta delta);
  // Tokens that end up to here, as far as they are content or `all`.
  void Tell(int64_t end, bool all);
  bool IsContent(const TokenSpan& span) const;
  int64_t first_held() const {
    return held_.empty() ? num_bytes_ : held_.front();
  }

  std::vector<OutputDelta> deltas_;  // since the last Take
  std::deque<Token> tokens_;         // not told yet, in order
  int64_t num_bytes_ = 0;            // that the parser has
  std::deque<int64_t> held_;         // of these, those that may become content
  // Of the parser's white space, what is not there: something else came behind
  // it, and its tokens were told with that.
  size_t lost_spaces_ = 0;
  int64_t given_ = 0;  // up to here all was given out or dropped
  // Content among the bytes, ascending; none ends before the tokens to come.
  std::deque<TokenSpan> content_;
  int32_t last_call_ = -1;
};

}  // namespace millrace::handlers
