// As in llama.cpp: what is left of a breaker behind a token that ends with its
// beginning is encoded in one way only, so other spellings are not seen.
#include "handlers/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

constexpr size_t kMaxTail = 20;  // tokens

// Bytes of `text` that the piece ends with, at most all but one, the most of
// them first; none: empty.
std::vector<size_t> BeginningsAtEnd(std::string_view piece,
                                    std::string_view text) {
  std::vector<size_t> lengths;
  for (size_t n = std::min(piece.size(), text.size() - 1); n > 0; --n) {
    if (piece.ends_with(text.substr(0, n))) lengths.push_back(n);
  }
  return lengths;
}

}  // namespace

std::shared_ptr<const models::DryBreakers> MakeDryBreakers(
    const models::Tokenizer& tokenizer, std::span<const std::string> texts) {
  auto breakers = std::make_shared<models::DryBreakers>();
  for (const std::string& text : texts) {
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      const std::string_view piece = tokenizer.Piece(id, true);
      const auto add = [&](std::vector<int32_t> tail) {
        auto& tails = breakers->tails[id];
        if (std::ranges::find(tails, tail) == tails.end()) {
          tails.push_back(std::move(tail));
        }
      };
      if (piece.find(text) != std::string_view::npos) {
        add({});
        continue;
      }
      for (const size_t length : BeginningsAtEnd(piece, text)) {
        std::vector<int32_t> tail =
            tokenizer.Encode(std::string_view(text).substr(length), {});
        if (tail.size() > kMaxTail) tail.resize(kMaxTail);
        add(std::move(tail));
      }
    }
  }
  return breakers;
}

}  // namespace millrace::handlers
