#include "tests/unit/scheduler/fake_draft.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/unit/scheduler/fake_runner.h"

namespace millrace::scheduler {

using models::kNoPage;
using models::kPageTokens;
using models::PageId;

FakeDraft::FakeDraft(const FakeDraftOptions& options)
    : options_(options), kv_(int64_t{options.num_pages} * kPageTokens, -1) {
  info_.limits.max_tokens = options.max_tokens;
  info_.limits.max_seqs = options.max_seqs;
  info_.limits.max_samples = options.max_seqs;
  info_.limits.max_pages_per_seq =
      (options.max_context + kPageTokens - 1) / kPageTokens;
  info_.vocab_size = kFakeVocab;
  info_.max_context = options.max_context;
  info_.num_pages = options.num_pages;
}

void FakeDraft::InitSlot(const models::SlotInit& init) {
  EXPECT_EQ(init.sampling->temperature, 0) << "draft tokens are greedy";
}

int64_t FakeDraft::Cell(const models::StepBatch& batch, int32_t seq,
                        int32_t position) {
  const PageId page = batch.pages(seq)[position / kPageTokens];
  EXPECT_NE(page, kNoPage) << "no page for position " << position;
  if (page == kNoPage) return 0;
  return static_cast<int64_t>(page) * kPageTokens + position % kPageTokens;
}

void FakeDraft::Launch(const models::StepBatch& batch) {
  ++steps_;
  rows_ += batch.num_tokens;
  EXPECT_GT(batch.num_tokens, 0);
  EXPECT_LE(batch.num_tokens, options_.max_tokens);
  EXPECT_EQ(batch.num_copies, 0);
  if (options_.clock != nullptr) {
    options_.clock->Advance(options_.step_time +
                            batch.num_tokens * options_.row_time);
  }
  std::set<int64_t> written;
  std::set<int32_t> slots;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    EXPECT_TRUE(slots.insert(batch.slot()[seq]).second);
    const int32_t end = batch.q_start()[seq + 1];
    EXPECT_EQ(batch.positions()[end - 1] + 1, batch.kv_len()[seq]);
    EXPECT_LE(batch.kv_len()[seq], options_.max_context);
    for (int32_t row = batch.q_start()[seq]; row < end; ++row) {
      const int64_t cell = Cell(batch, seq, batch.positions()[row]);
      EXPECT_TRUE(written.insert(cell).second) << "written by two rows";
      kv_[cell] = batch.tokens()[row];
    }
  }
  models::SamplingParams greedy;
  greedy.temperature = 0;
  result_.ids.clear();
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    const int32_t seq = batch.sample_seqs()[i];
    std::vector<int32_t> visible;
    for (int32_t p = 0; p <= batch.positions()[batch.sample_rows()[i]]; ++p) {
      visible.push_back(kv_[Cell(batch, seq, p)]);
    }
    int32_t id = FakeNext(visible, 0, greedy);
    if (visible.size() * 5 % 8 >= static_cast<size_t>(options_.right_of_8)) {
      id = (id + 1) % kFakeVocab;
    }
    result_.ids.push_back(id);
  }
}

StatusOr<const models::StepResult*> FakeDraft::Wait() {
  if (steps_ == options_.fault_at_step) {
    return Internal("the fake draft device fell over");
  }
  return &std::as_const(result_);
}

}  // namespace millrace::scheduler
