#include "config/base/nearest.h"

#include <algorithm>
#include <cstddef>

namespace millrace {
namespace {

constexpr size_t kMostCharacters = 100;
// Of a name that others may go on from.
constexpr size_t kLeastBeginning = 5;

bool Same(char a, char b) {
  return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_'));
}

// Optimal string alignment distance, three rows of its table at a time.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1),
      row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1,
                         above[j - 1] + (Same(a[i - 1], b[j - 1]) ? 0u : 1u)});
      if (i > 1 && j > 1 && Same(a[i - 1], b[j - 2]) &&
          Same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string_view Nearest(std::string_view name,
                         const std::vector<std::string_view>& candidates) {
  name = name.substr(0, kMostCharacters);
  if (name.size() < 3) return {};
  size_t fewest = std::max<size_t>(name.size() / 4, 1) + 1;
  std::string_view best;
  for (const std::string_view candidate : candidates) {
    // Aliases such as "np" are near to many words.
    if (candidate.size() < 3) continue;
    const size_t edits = Edits(name, candidate);
    if (edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  if (!best.empty() || name.size() < kLeastBeginning) return best;
  for (const std::string_view candidate : candidates) {
    const bool begins = candidate.size() > name.size() &&
                        Same(candidate[name.size()], '-') &&
                        Edits(name, candidate.substr(0, name.size())) == 0;
    if (begins && (best.empty() || candidate.size() < best.size())) {
      best = candidate;
    }
  }
  return best;
}

}  // namespace millrace
