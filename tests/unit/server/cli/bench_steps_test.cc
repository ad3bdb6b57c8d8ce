// BenchSteps against a runner that checks every step it is given: rows,
// positions, pages and copies must be what an engine would send.
#include "server/cli/bench_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace millrace::server {
namespace {

using models::kNoPage;
using models::kPageTokens;
using models::PageId;

// Knows how many tokens each page holds, and fails where a row would read keys
// that nobody wrote.
class CheckingRunner final : public models::Runner {
 public:
  explicit CheckingRunner(int32_t max_tokens) {
    info_.limits = {.max_tokens = max_tokens,
                    .max_seqs = 4,
                    .max_pages_per_seq = 8,
                    .max_samples = 4};
    info_.vocab_size = 100;
    info_.max_context = 8 * kPageTokens;
    info_.num_pages = 33;
  }
  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit& init) override {
    slots_.insert(init.slot);
  }
  void Launch(const models::StepBatch& batch) override {
    ++num_steps;
    EXPECT_GT(batch.num_tokens, 0);
    EXPECT_LE(batch.num_tokens, info_.limits.max_tokens);
    for (int32_t i = 0; i < batch.num_copies; ++i) {
      written_[batch.copies()[i].dst] = written_[batch.copies()[i].src];
    }
    std::set<PageId> seen;
    for (int32_t seq = 0; seq < batch.num_seqs; ++seq)
      CheckSeq(batch, seq, seen);
    result_.ids.assign(batch.num_samples, 0);
    for (int32_t i = 0; i < batch.num_samples; ++i) {
      result_.ids[i] = 10 + batch.sample_seqs()[i];
      sampled_rows += 1;
    }
  }
  StatusOr<const models::StepResult*> Wait() override { return &result_; }

  int num_steps = 0;
  int sampled_rows = 0;
  int64_t rows = 0;
  std::vector<int32_t> decode_tokens;

 private:
  void CheckSeq(const models::StepBatch& batch, int32_t seq,
                std::set<PageId>& seen) {
    const int32_t begin = batch.q_start()[seq];
    const int32_t end = batch.q_start()[seq + 1];
    EXPECT_LT(begin, end);
    rows += end - begin;
    EXPECT_TRUE(slots_.count(batch.slot()[seq]));
    const int32_t length = batch.kv_len()[seq];
    EXPECT_EQ(batch.positions()[end - 1], length - 1);
    const auto pages = batch.pages(seq);
    for (int32_t row = begin; row < end; ++row) {
      const int32_t at = batch.positions()[row];
      EXPECT_EQ(at, length - (end - row));
      EXPECT_LT(batch.tokens()[row], info_.vocab_size);
      if (end - begin == 1) decode_tokens.push_back(batch.tokens()[row]);
      const PageId page = pages[at / kPageTokens];
      ASSERT_NE(page, kNoPage);
      ASSERT_LT(static_cast<int32_t>(page), info_.num_pages);
      written_[page] = std::max(written_[page], at % kPageTokens + 1);
    }
    for (int32_t i = 0; i * kPageTokens < length; ++i) {
      EXPECT_TRUE(seen.insert(pages[i]).second) << "a page of two sequences";
      EXPECT_GE(written_[pages[i]],
                std::min(length - i * kPageTokens, kPageTokens))
          << "page " << i << " of sequence " << seq << " was never filled";
    }
  }

  models::RunnerInfo info_;
  models::StepResult result_;
  std::set<int32_t> slots_;
  std::map<PageId, int32_t> written_;
};

TEST(BenchSteps, PrefillReadsEveryTokenOnceAndSamplesOnce) {
  CheckingRunner runner(50);
  BenchSteps steps(runner);
  ASSERT_TRUE(steps.Fill(1, 0, 120).ok());
  runner.rows = runner.sampled_rows = runner.num_steps = 0;
  ASSERT_TRUE(steps.Prefill(0, 120).ok());
  EXPECT_EQ(runner.rows, 120);
  EXPECT_EQ(runner.num_steps, 3);  // 50 + 50 + 20
  EXPECT_EQ(runner.sampled_rows, 1);
}

TEST(BenchSteps, DecodeStandsOnFilledPages) {
  CheckingRunner runner(50);
  BenchSteps steps(runner);
  ASSERT_TRUE(steps.Fill(4, 300, 20).ok());
  runner.rows = runner.num_steps = 0;
  ASSERT_TRUE(steps.Decode(4, 300, 20).ok());
  EXPECT_EQ(runner.num_steps, 20);
  EXPECT_EQ(runner.rows, 80);
}

TEST(BenchSteps, DecodeReadsWhatWasSampled) {
  CheckingRunner runner(50);
  BenchSteps steps(runner);
  ASSERT_TRUE(steps.Fill(2, 0, 3).ok());
  runner.decode_tokens.clear();
  ASSERT_TRUE(steps.Decode(2, 0, 3).ok());
  EXPECT_EQ(runner.decode_tokens, (std::vector<int32_t>{1, 1, 10, 11, 10, 11}));
}

TEST(BenchSteps, WorksAgainAtAnotherDepth) {
  CheckingRunner runner(50);
  BenchSteps steps(runner);
  for (const int32_t depth : {0, 64, 65, 448}) {
    ASSERT_TRUE(steps.Fill(3, depth, 64).ok()) << depth;
    EXPECT_TRUE(steps.Prefill(depth, 64).ok());
    EXPECT_TRUE(steps.Decode(3, depth, 64).ok());
  }
}

TEST(BenchSteps, WhatDoesNotFitIsRefused) {
  CheckingRunner runner(50);
  BenchSteps steps(runner);
  EXPECT_FALSE(steps.Fill(5, 0, 1).ok());     // four slots
  EXPECT_FALSE(steps.Fill(1, 500, 20).ok());  // 512 tokens of context
}

}  // namespace
}  // namespace millrace::server
