// The Runner of a model on a GPU. Launch starts the step and returns; Wait ends
// it and draws. Rows that are greedy, or drawn by temperature, top-k, min-p and
// top-p alone, take the id that the GPU found or drew. Where a step has others,
// its logits are copied to the host, and the sampler that CPU models use draws
// from them, and the step behind waits for that; else two may be in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/runner.h"
#include "models/llm/runner_ahead.h"
#include "models/llm/runner_on_device.h"
#include "models/llm/sampler.h"

namespace millrace::models {

class CudaRunner final : public Runner,
                         public RunnerAhead,
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
  bool MayLaunchAhead() const override;
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
  // A step that was launched and has not ended.
  struct Launched {
    const StepBatch* batch = nullptr;
    std::vector<bool> takes_id;  // sample takes the id of the GPU
    bool needs_host = false;     // what it draws, or shows
    Status status;               // of its launch
  };

  Status StartStep(Launched& step);
  // Fills draws_ and takes_id; whether a sample needs its logits on the host.
  bool AskForDraws(Launched& step);
  // Draws for the samples of one sequence, [begin, end).
  void DrawSequence(const Launched& step, int32_t begin, int32_t end);
  void Count(const StepBatch& batch);

  const RunnerInfo info_;
  const std::unique_ptr<CudaBackend> backend_;
  Sampler sampler_;
  Sampler::Scratch scratch_;
  std::vector<cuda::DrawRow> draws_;   // of the GPU; empty: it draws none
  std::vector<uint32_t> masks_;        // of the sequence that is drawn for
  std::array<Launched, 2> in_flight_;  // the older one first
  size_t num_in_flight_ = 0;
  StepTrace* trace_ = nullptr;  // of the next step; null: not traced
  StepAccount account_;
  StepResult result_;
};

}  // namespace millrace::models
