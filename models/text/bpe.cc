// Merging in two ways with one result: a word of few tokens is scanned again
// for each merge, a long run keeps its pairs in a heap, so that a megabyte of
// one letter costs n log n. Heap entries are never taken out when a neighbour
// changes: an entry whose tokens are no longer there is skipped when it
// surfaces.
#include "models/text/bpe.h"

#include <bit>
#include <queue>

namespace millrace::models {
namespace {

constexpr size_t kFew = 32;
constexpr uint64_t kEmpty = UINT64_MAX;  // ids are not negative

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
         static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t num_merges)
    : slots_(std::bit_ceil(2 * num_merges + 2), Slot{kEmpty, {kNone, -1}}) {}

// The slot that holds the pair, or the empty one where it would stand.
size_t MergeTable::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  // Fibonacci hashing; the product's high half is the well mixed one.
  size_t at = (pair * 0x9E3779B97F4A7C15u >> 32) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty) {
    at = (at + 1) & mask;
  }
  return at;
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = PairOf(left, right);
  Slot& slot = slots_[SlotOf(pair)];
  if (slot.pair == kEmpty) slot = {pair, merge};
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[SlotOf(PairOf(left, right))].merge;
}

void MergeTable::Apply(std::vector<int32_t>& tokens) const {
  if (tokens.size() <= kFew) {
    ApplyToFew(tokens);
  } else {
    ApplyToMany(tokens);
  }
}

void MergeTable::ApplyToFew(std::vector<int32_t>& tokens) const {
  while (tokens.size() > 1) {
    Merge best{kNone, -1};
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge merge = Find(tokens[i], tokens[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        best_at = i;
      }
    }
    if (best.rank == kNone) return;
    tokens[best_at] = best.token;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

void MergeTable::ApplyToMany(std::vector<int32_t>& tokens) const {
  constexpr size_t kEnd = SIZE_MAX;
  constexpr int32_t kGone = -1;
  struct Candidate {
    uint32_t rank;
    int32_t left_token;  // with right_token: what stood there when pushed
    int32_t right_token;
    int32_t token;
    size_t at;
    bool operator<(const Candidate& other) const {  // the queue's top is last
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const size_t size = tokens.size();
  std::vector<size_t> next(size), previous(size);
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  std::vector<Candidate> initial;
  initial.reserve(size);
  const auto candidate = [&](size_t at) -> Candidate {
    const int32_t left = tokens[at], right = tokens[next[at]];
    const Merge merge = Find(left, right);
    return {merge.rank, left, right, merge.token, at};
  };
  for (size_t i = 0; i + 1 < size; ++i) {
    const Candidate pair = candidate(i);
    if (pair.rank != kNone) initial.push_back(pair);
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(),
                                       std::move(initial));
  const auto push = [&](size_t at) {
    const Candidate pair = candidate(at);
    if (pair.rank != kNone) queue.push(pair);
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const size_t right = next[best.at];
    if (tokens[best.at] != best.left_token || right == kEnd ||
        tokens[right] != best.right_token) {
      continue;  // a neighbour was merged meanwhile
    }
    tokens[best.at] = best.token;
    tokens[right] = kGone;
    next[best.at] = next[right];
    if (next[right] != kEnd) {
      previous[next[right]] = best.at;
      push(best.at);
    }
    if (previous[best.at] != kEnd) push(previous[best.at]);
  }
  std::erase(tokens, kGone);
}

}  // namespace millrace::models
