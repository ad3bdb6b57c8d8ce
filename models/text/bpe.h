// Byte-pair merging over token ids: of all neighbours that a merge joins, the
// best-ranked pair (the leftmost of equals) becomes one token, again and again
// until none is left.
//
// Immutable once filled; then thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::models {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank;  // lower is earlier; kNone when the pair has no merge
    int32_t token;  // what the pair becomes
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit MergeTable(size_t num_merges);
  // The first entry of a pair stands. At most num_merges calls.
  void Add(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const;

  // Merges the tokens in place.
  void Apply(std::vector<int32_t>& tokens) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  size_t SlotOf(uint64_t pair) const;
  void ApplyToFew(std::vector<int32_t>& tokens) const;
  void ApplyToMany(std::vector<int32_t>& tokens) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
};

}  // namespace millrace::models
