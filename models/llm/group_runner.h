// A model whose parts run at the ranks of a group. The scheduler owns the
// runner of rank 0, which sends each step to the others; they follow it until
// it is destroyed.
//
//   rank 0:   auto runner = std::make_unique<GroupRunner>(own, group);
//   others:   RETURN_IF_ERROR(FollowSteps(*own, *group));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/group/group.h"
#include "models/llm/runner.h"
#include "models/llm/runner_on_device.h"

namespace millrace::models {

class GroupRunner final : public Runner,
                          public LogitsView,
                          public RunnerOnDevice {
 public:
  // `own` runs rank 0's part. `on_broken` is called once, on the engine's
  // thread, when the group has lost a rank: no later step can run.
  GroupRunner(std::unique_ptr<Runner> own, std::shared_ptr<Group> group,
              std::function<void(const Status&)> on_broken);
  ~GroupRunner() override;  // the others end

  const RunnerInfo& info() const override { return own_->info(); }
  void InitSlot(const SlotInit& init) override { own_->InitSlot(init); }
  void Launch(const StepBatch& batch) override;
  StatusOr<const StepResult*> Wait() override;
  StepAccount account() const override { return own_->account(); }
  void TraceSteps(StepTrace* trace) override { own_->TraceSteps(trace); }
  bool PrepareAhead(int32_t first_unused) override {
    return own_->PrepareAhead(first_unused);
  }
  std::vector<int32_t> ForcedTokens(int32_t slot, int32_t most) override {
    return own_->ForcedTokens(slot, most);
  }
  std::string device() const override;  // of rank 0's part
  RunnerRoofline MeasureRoofline() override { return own_->MeasureRoofline(); }
  std::span<const float> Logits(int32_t sample) const override;

 private:
  Status Tell(int32_t what);

  const std::unique_ptr<Runner> own_;
  const std::shared_ptr<Group> group_;
  std::function<void(const Status&)> on_broken_;
  std::vector<int32_t> message_;
  Status status_;  // of the step launched last, or of a broken group
};

// Runs the steps of rank 0 until it ends; OK then. UNAVAILABLE: the group is
// broken, maybe because a step failed here. The calling thread is worker 0 of
// the runner's team.
Status FollowSteps(Runner& own, Group& group);

}  // namespace millrace::models
