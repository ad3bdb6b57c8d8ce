// Finds special tokens in text: a trie over their bytes; the longest match at
// the leftmost place wins.
//
// Immutable once filled; then thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::models {

class SpecialMatcher {
 public:
  SpecialMatcher();
  // `always`: found in every text; else only where control tokens are wanted.
  // An empty text is ignored; the first id of a text stands.
  void Add(std::string_view text, int32_t id, bool always);

  struct Match {
    size_t begin;  // the text's size when there is none
    size_t end;
    int32_t id;
  };
  Match Find(std::string_view text, size_t from, bool with_control) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    int32_t id = -1;
    bool always = false;
  };
  uint32_t Child(uint32_t node, char byte) const;  // 0: none

  std::vector<Node> nodes_;          // the first is the root
  std::array<uint32_t, 256> first_;  // the root's children
};

}  // namespace millrace::models
