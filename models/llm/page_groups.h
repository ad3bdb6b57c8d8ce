// Page groups: layers whose keys and values share pages. A model that mixes
// layers with a sliding window and layers that see all has several, so that the
// sliding ones give pages back while the others keep theirs:
//
//   gpt-oss, 12 layers that see all, 12 that slide (window 128): pages of 12
//   layers, two groups, hence two page tables for each sequence
//
//     group 0, window 0     [ 5 ][ 9 ][ 2 ][ 7 ]     keeps all
//     group 1, window 128   [ - ][ 4 ][ 8 ][ 1 ]     what its window has left
//
// All pages have one size, and come out of one pool, so that no memory is set
// aside for one kind of layers; where layers are 5 to 1 (Gemma 3), those that
// slide make several groups. A layer that attends in chunks sees no more than
// a window of the chunk's size, and counts as if it had that.
// Source: vLLM's hybrid KV cache manager (docs.vllm.ai, design documents).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/llm/step.h"

namespace millrace::models {

// Each table of a sequence costs time between steps and in a step's message.
inline constexpr int32_t kMostPageGroups = 8;

// Where a layer's keys and values are.
struct KvPlace {
  int32_t layer = 0;  // within a page
  int32_t group = 0;
};

struct PageGroups {
  // Of each group, see RunnerInfo; several: the first sees all.
  std::vector<int32_t> windows = {0};
  int32_t layers_per_page = 0;
  // Of each layer; empty: one group, whose pages hold the layers in order.
  std::vector<KvPlace> places = {};

  int32_t count() const { return static_cast<int32_t>(windows.size()); }
};

// `layer_windows`: keys that each layer's rows see, 0: all. One group, whose
// window is the widest.
PageGroups OnePageGroup(std::span<const int32_t> layer_windows);

// The groups with which a sequence of `context` tokens holds least memory while
// it is completed. One group where no layer sees all, where all do, and where
// several would not save a tenth.
PageGroups GroupPages(std::span<const int32_t> layer_windows, int32_t context);

// Pages of a group that a sequence of `num_tokens` tokens holds at most, if a
// step computes at most `max_rows` of them.
constexpr int64_t MostPages(int32_t window, int32_t max_rows,
                            int64_t num_tokens) {
  const int64_t all = (num_tokens + kPageTokens - 1) / kPageTokens;
  if (window == 0) return all;
  // From the first key that the first row of a step sees to the last row,
  // wherever in a page they begin.
  const int64_t span = int64_t{window} - 1 + max_rows;
  return std::min(all, (span + kPageTokens - 2) / kPageTokens + 1);
}

// Those of all groups.
constexpr int64_t MostPages(std::span<const int32_t> windows, int32_t max_rows,
                            int64_t num_tokens) {
  int64_t pages = 0;
  for (const int32_t window : windows) {
    pages += MostPages(window, max_rows, num_tokens);
  }
  return pages;
}

// Tokens of the longest sequence, at most `most_tokens`, that `num_pages` pages
// hold. Less than `most_tokens`, it fills its pages.
constexpr int64_t LongestSequence(std::span<const int32_t> windows,
                                  int32_t max_rows, int64_t num_pages,
                                  int64_t most_tokens) {
  const auto fits = [&](int64_t tokens) {
    return MostPages(windows, max_rows, tokens) <= num_pages;
  };
  if (fits(most_tokens)) return most_tokens;
  int64_t fitting = 0;
  int64_t too_many = (most_tokens + kPageTokens - 1) / kPageTokens;
  while (too_many - fitting > 1) {
    const int64_t middle = (fitting + too_many) / 2;
    (fits(middle * kPageTokens) ? fitting : too_many) = middle;
  }
  return fitting * kPageTokens;
}

}  // namespace millrace::models
