// What the pages would hold: one token in each cell. Rows write their token
// through the page table and read everything before them back, so a page that
// is lost, given twice or wrongly found shows as a foreign token.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "models/llm/step.h"

namespace millrace::scheduler {

class KvCells {
 public:
  explicit KvCells(int32_t num_pages)
      : cells_(int64_t{num_pages} * models::kPageTokens) {}

  // Copies, then all rows of a step.
  void Write(const models::StepBatch& batch) {
    for (int32_t i = 0; i < batch.num_copies; ++i) {
      const auto [src, dst] = batch.copies()[i];
      std::copy_n(cells_.begin() + Cell(src, 0), models::kPageTokens,
                  cells_.begin() + Cell(dst, 0));
    }
    std::set<int64_t> written;
    for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
      for (int32_t row = batch.q_start()[seq]; row < batch.q_start()[seq + 1];
           ++row) {
        for (int32_t group = 0; group < batch.limits().page_groups; ++group) {
          const int64_t cell = Cell(batch, seq, group, batch.positions()[row]);
          ASSERT_TRUE(written.insert(cell).second) << "written by two rows";
          cells_[cell] = {
              batch.tokens()[row],
              row - batch.q_start()[seq] >= batch.prompt_rows()[seq], group};
        }
      }
    }
  }

  // The tokens a sequence's last row sees in a page group from position `first`
  // on, itself included.
  std::vector<int32_t> Read(const models::StepBatch& batch, int32_t seq,
                            int32_t group = 0, int32_t first = 0) const {
    std::vector<int32_t> tokens(batch.kv_len()[seq]);
    for (int32_t position = first; position < batch.kv_len()[seq]; ++position) {
      const Content& content = cells_[Cell(batch, seq, group, position)];
      EXPECT_EQ(content.group, group) << "written by another page group";
      tokens[position] = content.token;
    }
    return tokens;
  }
  // Whether it was written as a generated one.
  bool IsGenerated(const models::StepBatch& batch, int32_t seq, int32_t group,
                   int32_t position) const {
    return cells_[Cell(batch, seq, group, position)].generated;
  }

  // A page as bytes, for a store outside.
  std::span<std::byte> Page(models::PageId page) {
    return std::as_writable_bytes(std::span(cells_).subspan(
        static_cast<size_t>(Cell(page, 0)), models::kPageTokens));
  }
  static constexpr int64_t page_bytes() {
    return models::kPageTokens * static_cast<int64_t>(sizeof(Content));
  }

  // A device fault: all is worthless.
  void Spoil() { std::ranges::fill(cells_, Content{}); }

 private:
  struct Content {
    int32_t token = -1;
    bool generated = false;
    int32_t group = 0;
  };

  static int64_t Cell(models::PageId page, int32_t position) {
    return static_cast<int64_t>(page) * models::kPageTokens +
           position % models::kPageTokens;
  }
  static int64_t Cell(const models::StepBatch& batch, int32_t seq,
                      int32_t group, int32_t position) {
    const models::PageId page =
        batch.pages(seq, group)[position / models::kPageTokens];
    EXPECT_NE(page, models::kNoPage) << "no page for position " << position;
    return page == models::kNoPage ? 0 : Cell(page, position);
  }

  std::vector<Content> cells_;
};

// The "model": the next token is a hash of the seed and all tokens before.
inline int32_t SimNext(std::span<const int32_t> tokens, uint64_t seed) {
  uint64_t hash = 14695981039346656037u ^ seed;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return static_cast<int32_t>(hash % 5);  // few, so that pages repeat
}

}  // namespace millrace::scheduler
