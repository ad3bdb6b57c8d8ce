// A draft model over the fake runner's text: it reads back what its KV pages
// hold, as that one does, and says what would follow. So a draft token is
// accepted only if its pages held the sequence's own tokens, whatever was
// rolled back before.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/clock.h"
#include "models/llm/runner.h"

namespace millrace::scheduler {

struct FakeDraftOptions {
  int32_t right_of_8 = 8;  // draft tokens that are what a greedy answer says
  int32_t num_pages = 64;
  int32_t max_context = 1024;
  int32_t max_tokens = 512;
  int32_t max_seqs = 16;
  int32_t fault_at_step = 0;  // counted from 1; 0: never
  // Moved on by what a step takes; null: steps take no time.
  FakeClock* clock = nullptr;
  Clock::Duration step_time{0};
  Clock::Duration row_time{0};
};

class FakeDraft final : public models::Runner {
 public:
  explicit FakeDraft(const FakeDraftOptions& options);

  const models::RunnerInfo& info() const override { return info_; }
  void InitSlot(const models::SlotInit& init) override;
  void Launch(const models::StepBatch& batch) override;
  StatusOr<const models::StepResult*> Wait() override;

  int32_t steps() const { return steps_; }
  int64_t rows() const { return rows_; }

 private:
  int64_t Cell(const models::StepBatch& batch, int32_t seq, int32_t position);

  const FakeDraftOptions options_;
  models::RunnerInfo info_;
  std::vector<int32_t> kv_;  // [page][kPageTokens]
  models::StepResult result_;
  int32_t steps_ = 0;
  int64_t rows_ = 0;
};

}  // namespace millrace::scheduler
