// The text that a mask of allowed tokens leaves no choice about, and the token
// that spells the most of it. With the tokens "a", "ab", "abx" and "aby"
// allowed the text "ab" comes next, whichever of them is drawn.
//
// That is right but for texts that begin with an allowed token and go on as no
// token does: with "a" and "ab" allowed, "ac" may come where no token is "ac".
// So it is good for draft tokens, which are checked.
//
//   ForcedTokenFinder finder(texts);
//   finder.Find(mask);   // id of "ab"
//
// Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::models {

class ForcedTokenFinder {
 public:
  ForcedTokenFinder() = default;
  // Bytes of each token by id; empty: it stands for no text.
  explicit ForcedTokenFinder(std::vector<std::string> texts)
      : texts_(std::move(texts)) {}

  // `mask` has bit i % 32 of word i / 32 set for each allowed token i. Nothing
  // if two allowed tokens begin with different bytes, one has no text, or none
  // spells a beginning of the text. Of tokens with the same text the first.
  std::optional<int32_t> Find(std::span<const uint32_t> mask) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace millrace::models
