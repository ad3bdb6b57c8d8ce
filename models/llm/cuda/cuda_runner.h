// The Runner of a model on a GPU. Launch starts the step and returns; Wait ends
// it and draws. Rows that are greedy, or drawn by temperature, top-k, min-p and
// top-p alone, take the id that the GPU found or drew. Where a step has others,
// its logits are copied to the host, and the sampler that CPU models use draws
// from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/runner.h"
#include "models/llm/runner_on_device.h"
#include "models/llm/sampler.h"

namespace millrace::models {

class CudaRunner final : public Runner,
                         public LogitsView,
                         public RunnerOnDevice {
 public:
  // The backend is bound. `kernels` are for drawing.
  CudaRunner(const RunnerInfo& info, std::unique_ptr<CudaBackend> backend,
             const KernelTable& kernels);

  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit& init) override;
  void Launch(const StepBatch& batch) override;
  StatusOr<const StepResult*> Wait() override;
  StepAccount account() const override { return account_; }
  void TraceSteps(StepTrace* trace) override {
    trace_ = trace;
    backend_->TraceSteps(trace);
  }
  RunnerRoofline MeasureRoofline() override;
  std::string device() const override { return backend_->device(); }
  std::vector<int32_t> ForcedTokens(int32_t slot, int32_t most) override {
    return sampler_.ForcedTokens(slot, most);
  }
  // Of rows that were scored; others may have no logits on the host.
  std::span<const float> Logits(int32_t sample) const override;

 private:
  Status StartStep();
  // Fills draws_ and takes_id_; whether a sample needs its logits on the host.
  bool AskForDraws();
  // Draws for the samples of one sequence, [begin, end).
  void DrawSequence(int32_t begin, int32_t end);
  void Count();

  const RunnerInfo info_;
  const std::unique_ptr<CudaBackend> backend_;
  Sampler sampler_;
  Sampler::Scratch scratch_;
  std::vector<cuda::DrawRow> draws_;  // of the GPU; empty: it draws none
  std::vector<bool> takes_id_;        // sample takes the id of the GPU
  std::vector<uint32_t> masks_;       // of the sequence that is drawn for
  const StepBatch* batch_ = nullptr;
  StepTrace* trace_ = nullptr;  // of the next step; null: not traced
  StepAccount account_;
  StepResult result_;
  Status status_;
};

}  // namespace millrace::models
