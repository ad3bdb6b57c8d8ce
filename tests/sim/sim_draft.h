// A draft model whose text is that of the world's seed 0: right for some
// sequences, seldom for others. It says what follows the tokens its pages hold.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "models/llm/runner.h"
#include "tests/sim/kv_cells.h"

namespace millrace::scheduler {

class SimDraft final : public models::Runner {
 public:
  SimDraft(const models::StepLimits& limits, int32_t num_pages)
      : info_{.limits = limits,
              .vocab_size = 5,
              .max_context = limits.max_pages_per_seq * models::kPageTokens,
              .num_pages = num_pages},
        cells_(num_pages) {}

  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit&) override {}
  void Launch(const models::StepBatch& batch) override {
    ASSERT_LE(batch.num_tokens, info_.limits.max_tokens);
    cells_.Write(batch);
    result_.ids.clear();
    for (int32_t i = 0; i < batch.num_samples; ++i) {
      const int32_t seq = batch.sample_seqs()[i];
      ASSERT_EQ(batch.sample_rows()[i] + 1, batch.q_start()[seq + 1]);
      result_.ids.push_back(SimNext(cells_.Read(batch, seq), 0));
    }
  }
  StatusOr<const models::StepResult*> Wait() override {
    return &std::as_const(result_);
  }

 private:
  const models::RunnerInfo info_;
  KvCells cells_;
  models::StepResult result_;
};

}  // namespace millrace::scheduler
