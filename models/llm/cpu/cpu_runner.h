// The Runner of a model on CPU cores: recipe phases by the backend, then
// sampling as one more phase of the team, rows split.
//
// The thread that calls Launch first is worker 0 and must stay the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/cpu/cpu_backend.h"
#include "models/llm/cpu/row_masks.h"
#include "models/llm/kv_pool.h"
#include "models/llm/page_access.h"
#include "models/llm/runner.h"
#include "models/llm/sampler.h"

namespace millrace::models {

class CpuRunner final : public Runner, public LogitsView, public PageAccess {
 public:
  // The backend is recorded and has its weights; the pool's pages are bound to
  // it here.
  CpuRunner(const RunnerInfo& info, std::unique_ptr<CpuBackend> backend,
            KvPool pool, const KernelTable& kernels, int num_workers);

  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit& init) override;
  void Launch(const StepBatch& batch) override;
  StatusOr<const StepResult*> Wait() override;
  StepAccount account() const override { return backend_->account(); }
  void TraceSteps(StepTrace* trace) override { backend_->TraceSteps(trace); }
  bool PrepareAhead(int32_t first_unused) override {
    return pool_.PrepareAhead(first_unused);
  }
  std::vector<int32_t> ForcedTokens(int32_t slot, int32_t most) override {
    return sampler_.ForcedTokens(slot, most);
  }
  int64_t page_bytes() const override { return pool_.page_bytes(); }
  void ReadPage(PageId page, std::span<std::byte> bytes) const override;
  void WritePage(PageId page, std::span<const std::byte> bytes) override;
  RunnerRoofline MeasureRoofline() override {
    return backend_->MeasureRoofline();
  }
  std::span<const float> Logits(int32_t sample) const override;

 private:
  const RunnerInfo info_;
  KvPool pool_;
  const std::unique_ptr<CpuBackend> backend_;
  Sampler sampler_;
  RowMasks masks_;
  std::vector<Sampler::Scratch> scratch_;  // one for each worker
  StepResult result_;
  Status status_;
};

}  // namespace millrace::models
