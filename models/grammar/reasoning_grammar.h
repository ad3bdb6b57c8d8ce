// What a completion that begins with reasoning is held to: reasoning ends after
// so many tokens, and a grammar says what stands behind it.
//
//   <think> … tokens, `budget` at most … </think> {"answer": 1}
//                                       ^ the grammar begins
//
// The tags are found in the bytes of tokens, so that it does not matter how a
// model spells them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/mutex.h"
#include "models/grammar/token_grammar.h"

namespace millrace::models {

// The tokens of a vocabulary that hold a byte with more than white space behind
// it: they may end a tag and go on. Found once for each byte that is asked for,
// since all pieces are read for it; a model keeps one of these for its
// requests. Thread-safe.
class TagEnds {
 public:
  using Ids = std::shared_ptr<const std::vector<int32_t>>;

  // `piece` of the ids below num_ids is that of the one vocabulary.
  Ids With(char last, const std::function<std::string_view(int32_t)>& piece,
           int32_t num_ids);

 private:
  Mutex mu_;
  std::map<char, Ids> found_ GUARDED_BY(mu_);
};

struct ReasoningRules {
  std::string open;
  std::string close;
  bool begun = false;  // the prompt ends within reasoning
  // Tokens of reasoning, then `close_ids` follow; absent: no limit.
  std::optional<int64_t> budget = {};
  // Tokens that spell `close`; not empty.
  std::vector<int32_t> close_ids = {};
  // Where the grammar waits for the end of reasoning that the prompt has begun,
  // that end is the tag and none of these ids, which end a completion.
  bool delays_grammar = false;
  std::vector<int32_t> stop_ids = {};
  // The bytes of a token, special ones with theirs; of the ids below num_ids.
  std::function<std::string_view(int32_t)> piece;
  int32_t num_ids = 0;
  // Of this vocabulary; null: what it would keep is found again.
  std::shared_ptr<TagEnds> tag_ends = {};
};

// `behind` holds the text behind the reasoning, or, unless `delays_grammar`,
// all of it; null: nothing does.
std::shared_ptr<const TokenGrammar> MakeReasoningGrammar(
    ReasoningRules rules, std::shared_ptr<const TokenGrammar> behind);

}  // namespace millrace::models
