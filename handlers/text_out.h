// Tokens in, text out: whole UTF-8 characters, never a part of a stop string,
// and log-probabilities together with the text they belong to.
//
//   TextOut out({.stop = {"\n\n"}});
//   for (token : tokens) if (!out.Push(piece, {})) break;   // stop string
//   sink->OnDelta(out.Take());
//   ... out.Finish(); sink->OnDelta(out.Take());
//
// The completion text is what its tokens' bytes spell, with each ill-formed
// part (also an incomplete character at the end) as U+FFFD, cut where the first
// stop string to be complete begins (or ends, with include_stop). How the
// tokens are spread over calls changes the chunks, never their concatenation.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "handlers/messages.h"
#include "handlers/stop_matcher.h"

namespace millrace::handlers {

// The bytes of the completion's text that a token is part of.
struct TokenSpan {
  int64_t begin;
  int64_t end;  // begin: it has no text
};

class TextOut {
 public:
  struct Options {
    std::vector<std::string> stop;  // valid UTF-8, none empty
    bool include_stop = false;      // the stop string stays in the text
  };
  explicit TextOut(Options options);

  // One token's bytes. Text of a token that may not stop (min_tokens) takes no
  // part in stop strings. False: a stop string is complete, push no more.
  [[nodiscard]] bool Push(std::string_view piece,
                          std::optional<TokenLogprobs> logprobs,
                          bool may_stop = true);
  // There are no more tokens: Take gives the rest. It may complete a stop
  // string even now (an incomplete character becomes U+FFFD).
  void Finish();

  // All text and tokens that can be released now. A token is released with the
  // last of its text. After a stop string, tokens with no text before the cut
  // are dropped from `logprobs` but counted in `num_tokens`. `spans`, if not
  // null, gets those of the tokens in `logprobs`.
  OutputDelta Take(std::vector<TokenSpan>* spans = nullptr);

  // The stop string that ended the text.
  const std::optional<std::string>& stop_string() const { return stopped_by_; }

 private:
  static constexpr int64_t kOpen = -1;  // its last character is not complete
  // Positions are bytes of the whole (clean) text.
  struct Pending {
    int64_t begin;
    int64_t end;
    std::optional<TokenLogprobs> logprobs;
  };
  int64_t end_position() const {
    return released_ + static_cast<int64_t>(text_.size());
  }
  void Append(std::string_view clean, bool may_stop);

  const bool include_stop_;
  StopMatcher matcher_;
  std::string tail_;  // raw bytes of an incomplete character
  std::string text_;  // clean, not released yet
  int64_t released_ = 0;
  // Ascending by begin and end; the open ones stand at the back.
  std::deque<Pending> pending_;
  bool finished_ = false;
  std::optional<std::string> stopped_by_;
};

}  // namespace millrace::handlers
