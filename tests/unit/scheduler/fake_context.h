// An execution context that tests hold and release: y = x + 1, x and y FP32 [n,
// 2].
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "models/graph/execution_context.h"

namespace millrace::scheduler {

// What the test and the context share, since the batcher owns the context.
class FakeControl {
 public:
  // Runs wait until Release, so that a queue can grow behind one of them.
  void Hold() {
    MutexLock lock(mu_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(mu_);
    held_ = false;
    changed_.NotifyAll();
  }
  void AwaitRuns(int n) {
    MutexLock lock(mu_);
    while (num_begun_ < n) changed_.Wait(mu_);
  }
  // Graphs that any thread may compute, from now on.
  void BeTiny() { tiny_.store(true); }
  bool tiny() const { return tiny_.load(); }
  int num_begun() {
    MutexLock lock(mu_);
    return num_begun_;
  }
  // The largest number of contexts that have run at the same time.
  int most_together() {
    MutexLock lock(mu_);
    return most_together_;
  }
  // First values of the inputs, in order of their runs.
  std::vector<float> seen() {
    MutexLock lock(mu_);
    return seen_;
  }

  void Begin(float first) {
    MutexLock lock(mu_);
    ++num_begun_;
    seen_.push_back(first);
    most_together_ = std::max(most_together_, ++num_running_);
    changed_.NotifyAll();
    while (held_) changed_.Wait(mu_);
    --num_running_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::atomic<bool> tiny_ = false;
  bool held_ GUARDED_BY(mu_) = false;
  int num_begun_ GUARDED_BY(mu_) = 0;
  int num_running_ GUARDED_BY(mu_) = 0;
  int most_together_ GUARDED_BY(mu_) = 0;
  std::vector<float> seen_ GUARDED_BY(mu_);
};

class FakeContext final : public models::graph::ExecutionContext {
 public:
  explicit FakeContext(FakeControl* control) : control_(control) {
    symbols_ = {{.name = "n", .min = 1, .max = 64}};
    inputs_.push_back({.name = "x", .dims = {{.symbol = 0}, {.size = 2}}});
    outputs_.push_back({.name = "y", .dims = {{.symbol = 0}, {.size = 2}}});
  }

  // A row that begins with 13 is a failure, and with -14 one that needs more
  // memory than there is. Asks once whether it shall stop.
  StatusOr<std::vector<models::Tensor>> Run(
      const std::vector<models::Tensor>& inputs,
      const models::graph::RunOptions& options) override {
    if (!thread_) thread_ = std::this_thread::get_id();
    CHECK(thread_ == std::this_thread::get_id(),
          "a context belongs to one thread");
    return Compute(inputs, options);
  }

  bool RunIfTiny(const std::vector<models::Tensor>& inputs,
                 StatusOr<std::vector<models::Tensor>>* outputs) override {
    if (!control_->tiny()) return false;
    *outputs = Compute(inputs, {});
    return true;
  }

  StatusOr<models::graph::TeamRoofline> MeasureRoofline() override {
    return models::graph::TeamRoofline{};
  }

  const std::vector<models::graph::Port>& inputs() const override {
    return inputs_;
  }
  const std::vector<models::graph::Port>& outputs() const override {
    return outputs_;
  }
  const std::vector<models::graph::Symbol>& symbols() const override {
    return symbols_;
  }
  const std::shared_ptr<models::graph::CompiledGraph>& compiled_graph()
      const override {
    return no_graph_;
  }
  const models::graph::BatchAxis& batch_axis() const override {
    return batch_axis_;
  }
  std::string PlanText() const override { return ""; }
  int64_t ArenaBytes() const override { return 0; }

 private:
  StatusOr<std::vector<models::Tensor>> Compute(
      const std::vector<models::Tensor>& inputs,
      const models::graph::RunOptions& options) {
    CHECK(!running_.exchange(true), "a context computes one run at a time");
    auto outputs = Computed(inputs, options);
    running_.store(false);
    return outputs;
  }

  StatusOr<std::vector<models::Tensor>> Computed(
      const std::vector<models::Tensor>& inputs,
      const models::graph::RunOptions& options) {
    control_->Begin(inputs[0].data<float>()[0]);
    if (options.stopped) RETURN_IF_ERROR(options.stopped());
    for (int64_t i = 0; i < inputs[0].num_elements(); i += 2) {
      if (inputs[0].data<float>()[i] == 13) return Internal("13 is bad luck");
      if (inputs[0].data<float>()[i] == -14) {
        running_.store(false);
        throw std::bad_alloc();
      }
    }
    std::vector<models::Tensor> outputs;
    outputs.push_back(inputs[0].Copy());
    for (int64_t i = 0; i < outputs[0].num_elements(); ++i) {
      outputs[0].data<float>()[i] += 1;
    }
    return outputs;
  }

  FakeControl* const control_;
  std::atomic<bool> running_ = false;
  const std::shared_ptr<models::graph::CompiledGraph> no_graph_;
  const models::graph::BatchAxis batch_axis_ = {
      .batchable = true, .symbol = 0, .max_rows = 64};
  std::optional<std::thread::id> thread_;  // of the first run
  std::vector<models::graph::Symbol> symbols_;
  std::vector<models::graph::Port> inputs_;
  std::vector<models::graph::Port> outputs_;
};

}  // namespace millrace::scheduler
