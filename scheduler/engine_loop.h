// The loop of the engine thread: between two steps it takes new requests, ends
// those that are cancelled or late, plans a step, launches it, and hands the
// results out.
//
//   EngineLoop loop(runner, draft, store, limits, ...);
//   loop.Run();   // until the queue says quit
//
// On a device whose runner allows it (models/llm/runner_ahead.h) the next step
// is planned and launched before the results of the running one are read.
//
// It alone touches sequences, pages, slots and the runner, hence no locks. It
// parks only when it holds no job and memory is ready for what may come, and
// never waits for a client.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "models/llm/runner.h"
#include "models/llm/runner_ahead.h"
#include "models/llm/step.h"
#include "scheduler/admission.h"
#include "scheduler/draft_lull.h"
#include "scheduler/engine_metrics.h"
#include "scheduler/fair_order.h"
#include "scheduler/hold_back.h"
#include "scheduler/job.h"
#include "scheduler/kv_ledger.h"
#include "scheduler/kv_offload.h"
#include "scheduler/policy.h"
#include "scheduler/request_queue.h"
#include "scheduler/speculation.h"
#include "scheduler/step_cost.h"
#include "scheduler/step_in_flight.h"
#include "scheduler/step_timeline.h"
#include "scheduler/utilization.h"

namespace millrace::scheduler {

class EngineLoop {
 public:
  // All but the options are borrowed for the loop's life. `limits` are what
  // the options and the runner leave together; `draft` and `store` may be null.
  EngineLoop(models::Runner& runner, models::Runner* draft,
             models::PageStore* store, const PolicyLimits& limits,
             const EngineOptions& options, RequestQueue& queue,
             Admission& admission, StatsBoard& board,
             const EngineMetrics& metrics);

  void Run();

 private:
  struct Ending {
    std::unique_ptr<Job> job;
    StreamEnd end;
  };

  // Parts of a step edge, in this order.
  void Receive(std::vector<std::unique_ptr<Job>> jobs);
  void EndUnwanted(bool closed);
  // Launches a step, the next one too if it may, and ends the older one.
  // False: all that waits, waits for pages from the store.
  bool RunStep();
  void DeliverEndings();

  // Parts of a step.
  // With draft tokens only where no step is in flight.
  Plan PlanStep();
  Plan PlanOf(std::span<const SequenceView> views, Clock::Time now) const;
  void ProposeDrafts();
  void Launch(const Plan& plan);
  // Launches a step behind the one in flight, unless that must be read before:
  // the runner says so, it checks draft tokens, or the next one would preempt.
  void LaunchAhead();
  // Ends the older step in flight.
  void EndStep();
  void Fail(const Status& status);  // the step that ended
  void CarryOut(const Plan& plan, StepInFlight& step);
  // The batch as a capture records it, before it runs.
  StepTimeline::Step StepOf(const Plan& plan,
                            const models::StepBatch& batch) const;
  void Preempt(Job& job);
  void Start(Job& job);
  void Apply(const StepInFlight& step, const models::StepResult& result);
  // Samples [first_sample, end_sample) of the step are of these rows.
  void ApplyRows(const StepInFlight& step, const StepInFlight::Rows& rows,
                 const models::StepResult& result, int32_t first_sample,
                 int32_t end_sample, Clock::Time now);
  void ApplySampled(Job& job, TokenEvent event, Clock::Time now);

  // Takes back pages and slot and marks the job as ended; the stream hears of
  // it in DeliverEndings, when the books are in order.
  void End(std::unique_ptr<Job>& job, Status status, FinishReason reason);
  void GiveBack(Sequence& sequence);
  void PostStats();

  std::unique_ptr<Drafter> MakeDrafter(const EngineOptions& options) const;

  models::Runner& runner_;
  const models::RunnerAhead* const ahead_;  // the same; null: one step
  models::Runner* const draft_;             // or null
  const PolicyLimits limits_;
  const std::string model_;
  RequestQueue& queue_;
  Admission& admission_;
  StatsBoard& board_;
  const EngineMetrics& metrics_;
  const Clock& clock_;
  const bool prefix_caching_;

  StepTimeline timeline_;
  KvLedger ledger_;
  std::unique_ptr<KvOffload> offload_;  // or null
  StepCost cost_;
  Utilization utilization_{models::RunnerRoofline{}};
  const double target_itl_seconds_;           // 0: none
  std::unique_ptr<Speculation> speculation_;  // or null
  FairOrder fair_order_;
  FairSteps fair_steps_;
  AskingTenants asking_;
  std::vector<int32_t> free_slots_;
  // Slots of sequences that have ended; the step in flight names them.
  std::vector<int32_t> held_slots_;
  // The older one first, and those that are to be used again.
  std::vector<std::unique_ptr<StepInFlight>> in_flight_, spare_;
  Clock::Time last_end_;  // of a step
  DraftLull draft_lull_;
  // By priority, then start tag, then arrival. An ended job leaves a null until
  // the edge is over, so that indices of a plan stay true.
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Sequence*> sequences_;  // those of jobs_, while one is planned
  std::vector<Ending> endings_;
  int64_t arrivals_ = 0;
  bool has_adapters_ = false;  // there are, or were, any
  int64_t steps_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace millrace::scheduler
