// How a step's attention is cut: every row gets every split that it sees once,
// and partial results have a place each.
#include "models/llm/cuda/step_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

struct Sequence {
  int32_t length;
  int32_t rows;
  int32_t prompt_rows;
};

struct Filled {
  StepMessage message;
  std::vector<int32_t> words;
  std::span<const cuda::AttendItem> items(bool prompts) const {
    const StepMessage::Work& work = message.work(0);
    return {
        reinterpret_cast<const cuda::AttendItem*>(
            words.data() + (prompts ? work.prompt_items : work.items)),
        static_cast<size_t>(prompts ? work.num_prompt_items : work.num_items)};
  }
  std::span<const cuda::AttendMerge> merges() const {
    const StepMessage::Work& work = message.work(0);
    return {
        reinterpret_cast<const cuda::AttendMerge*>(words.data() + work.merges),
        static_cast<size_t>(work.num_merges)};
  }
};

constexpr int32_t kHeads = 32, kKvHeads = 8, kBlocks = 528;

Filled Fill(const std::vector<Sequence>& sequences, int32_t window,
            cuda::KvFormat format = cuda::KvFormat::kF16,
            bool chunked = false) {
  StepLimits limits = {.max_seqs = static_cast<int32_t>(sequences.size()),
                       .max_samples = 1};
  for (const Sequence& sequence : sequences) {
    limits.max_tokens += sequence.rows;
    limits.max_pages_per_seq = std::max(limits.max_pages_per_seq,
                                        (sequence.length + 63) / kPageTokens);
  }
  BackendShape shape;
  shape.heads = kHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = 128;
  StepBatch batch(limits);
  for (const Sequence& sequence : sequences) {
    const auto s = static_cast<size_t>(batch.num_seqs++);
    for (int32_t i = 0; i < sequence.rows; ++i) {
      batch.positions()[static_cast<size_t>(batch.num_tokens++)] =
          sequence.length - sequence.rows + i;
    }
    batch.q_start()[s + 1] = batch.num_tokens;
    batch.kv_len()[s] = sequence.length;
    batch.prompt_rows()[s] = sequence.prompt_rows;
  }
  Filled filled = {StepMessage(shape, limits, format, kBlocks, false), {}};
  filled.message.AddWindow(window, chunked);
  filled.words.resize(static_cast<size_t>(filled.message.most_bytes() / 4));
  filled.message.Fill(batch, {}, filled.words.data());
  EXPECT_LE(filled.message.bytes(), filled.message.most_bytes());

  // How often each row gets each of its splits, by what way.
  std::map<std::pair<int32_t, int32_t>, int32_t> got;
  std::map<int32_t, std::pair<int32_t, int32_t>> places;  // partial results
  for (const bool prompts : {false, true}) {
    for (const cuda::AttendItem& item : filled.items(prompts)) {
      EXPECT_LE(item.num_rows * (kHeads / kKvHeads),
                cuda::PairsOfItem(format, prompts, 128));
      for (int32_t i = 0; i < item.num_rows; ++i) {
        for (int32_t n = 0; n < item.num_splits; ++n) {
          const std::pair<int32_t, int32_t> split = {item.first_row + i,
                                                     item.first_split + n};
          EXPECT_EQ(++got[split], 1) << split.first << " " << split.second;
          if (item.partial < 0) continue;
          const int32_t place = item.partial + i * item.partial_step + n;
          EXPECT_LT(place, StepMessage::kMostPartials);
          EXPECT_TRUE(places.emplace(place, split).second) << place;
        }
      }
    }
  }
  int32_t joined = 0;
  for (const cuda::AttendMerge& merge : filled.merges()) {
    const int32_t first = places[merge.first_partial].second;
    for (int32_t i = 0; i < merge.num_partials; ++i, ++joined) {
      EXPECT_EQ(places[merge.first_partial + i],
                std::pair(merge.row, first + i));
    }
  }
  EXPECT_EQ(joined, static_cast<int32_t>(places.size()));
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    for (int32_t row = batch.q_start()[s]; row < batch.q_start()[s + 1];
         ++row) {
      const bool prompt = format != cuda::KvFormat::kF32 &&
                          row < batch.q_start()[s] + batch.prompt_rows()[s];
      const int32_t keys = prompt ? cuda::kPromptSplitKeys : cuda::kSplitKeys;
      const int32_t own = batch.positions()[static_cast<size_t>(row)];
      const int32_t from = window == 0 ? 0
                           : chunked   ? own / window * window
                                       : std::max(0, own - window + 1);
      for (int32_t split = from / keys; split <= own / keys; ++split) {
        EXPECT_EQ((got[{row, split}]), 1) << row << " " << split;
      }
    }
  }
  return filled;
}

TEST(StepMessage, LongContextsOccupyTheDeviceWhateverTheBatch) {
  for (int32_t seqs = 1; seqs <= 128; seqs *= 2) {
    const Filled filled =
        Fill(std::vector<Sequence>(static_cast<size_t>(seqs),
                                   Sequence{131072 / seqs, 1, 0}),
             0);
    const auto blocks =
        static_cast<int32_t>(filled.items(false).size()) * kKvHeads;
    EXPECT_GE(blocks, kBlocks) << seqs;
    EXPECT_LE(blocks, 4 * kBlocks) << seqs;
  }
}

TEST(StepMessage, EveryRowGetsEverySplitOnce) {
  for (const auto& [window, chunked] :
       {std::pair{0, false}, {1000, false}, {1000, true}}) {
    for (const auto format :
         {cuda::KvFormat::kF16, cuda::KvFormat::kF32, cuda::KvFormat::kInt8}) {
      Fill({{1, 1, 0}}, window, format, chunked);
      Fill({{256, 1, 0}, {257, 1, 0}, {300, 300, 300}}, window, format,
           chunked);
      // A prompt behind a cached prefix, draft tokens, a preempted sequence
      // whose rows are of both kinds.
      Fill({{20000, 20, 20}, {5000, 6, 0}, {2900, 2900, 2700}}, window, format,
           chunked);
    }
  }
}

TEST(StepMessage, WindowsAndChunksOfOneSizeAreApart) {
  BackendShape shape;
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = 16;
  StepMessage message(shape, {.max_tokens = 1, .max_seqs = 1},
                      cuda::KvFormat::kF16, 1, false);
  EXPECT_EQ(message.AddWindow(100), 0u);
  EXPECT_EQ(message.AddWindow(100, true), 1u);
  EXPECT_EQ(message.AddWindow(100), 0u);
  EXPECT_EQ(message.AddWindow(100, true), 1u);
}

TEST(StepMessage, FewRowsOfAPromptBehindManyKeysAreSplit) {
  EXPECT_EQ(Fill({{100000, 20, 20}}, 0).items(true).size(), 25u);
  EXPECT_EQ(Fill({{8192, 8192, 8192}}, 0).items(true).size(), 256u);
}

TEST(StepMessage, MorePartialResultsThanFitAreNotMade) {
  const Filled filled =
      Fill(std::vector<Sequence>(16, Sequence{131072, 1, 0}), 0);
  EXPECT_EQ(filled.merges().size(), 4u);
  EXPECT_EQ(
      std::ranges::count(filled.items(false), -1, &cuda::AttendItem::partial),
      12);
}

}  // namespace
}  // namespace millrace::models
