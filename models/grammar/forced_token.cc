#include "models/grammar/forced_token.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>

namespace millrace::models {
namespace {

// Calls visit(id) for the allowed ids in order while it returns true.
template <typename Visit>
void VisitAllowed(std::span<const uint32_t> mask, const Visit& visit) {
  for (size_t i = 0; i < mask.size(); ++i) {
    for (uint32_t word = mask[i]; word != 0; word &= word - 1) {
      if (!visit(i * 32 + static_cast<size_t>(std::countr_zero(word)))) return;
    }
  }
}

}  // namespace

std::optional<int32_t> ForcedTokenFinder::Find(
    std::span<const uint32_t> mask) const {
  std::string_view forced;
  bool begun = false;
  bool parted = false;  // behind `forced` tokens differ
  VisitAllowed(mask, [&](size_t id) {
    const std::string_view text =
        id < texts_.size() ? std::string_view(texts_[id]) : std::string_view();
    if (!begun) {
      begun = true;
      forced = text;
      return !forced.empty();
    }
    const auto at = std::ranges::mismatch(forced, text);
    const auto same = static_cast<size_t>(at.in1 - forced.begin());
    if (same < std::min(forced.size(), text.size()) || same == 0) {
      forced = forced.substr(0, same);
      parted = true;
    } else if (!parted && text.size() > forced.size()) {
      forced = text;
    }
    return !forced.empty();
  });
  if (forced.empty()) return std::nullopt;
  std::optional<int32_t> longest;
  size_t size = 0;
  VisitAllowed(mask, [&](size_t id) {
    const std::string_view text = texts_[id];
    if (text.size() > size && forced.starts_with(text)) {
      longest = static_cast<int32_t>(id);
      size = text.size();
    }
    return true;
  });
  return longest;
}

}  // namespace millrace::models
