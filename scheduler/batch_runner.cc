#include "scheduler/batch_runner.h"

#include <numeric>
#include <utility>

#include "config/base/out_of_memory.h"
#include "scheduler/batch_refusals.h"
#include "scheduler/batch_tensors.h"

namespace millrace::scheduler {

using models::Tensor;
using models::graph::ExecutionContext;
using Inputs = std::vector<Tensor>;

namespace {

int64_t NumElements(const Inputs& inputs) {
  int64_t sum = 0;
  for (const Tensor& input : inputs) sum += input.num_elements();
  return sum;
}

}  // namespace

StatusOr<BatchRunner::Outputs> BatchRunner::Run(
    ExecutionContext& context, Jobs jobs, const std::vector<int32_t>& rows,
    BatchTimes& times) {
  return CatchOutOfMemory(
      [&] { return RunTogether(context, jobs, rows, times); });
}

StatusOr<BatchRunner::Outputs> BatchRunner::RunTogether(
    ExecutionContext& context, Jobs jobs, const std::vector<int32_t>& rows,
    BatchTimes& times) {
  models::graph::Trace trace;
  const bool told = timeline_.on();
  const models::graph::RunOptions options = {
      .stopped = [&] { return Stopped(jobs); },
      .trace = told ? &trace : nullptr};
  const auto tell = [&](Clock::Time began, Clock::Time run_began,
                        const Inputs& computed) {
    if (!told) return;
    int64_t values = 0;
    if (ragged_.any()) {
      for (const auto& job : jobs) values += NumElements(job->task.inputs);
    }
    timeline_.Add({.context = &context,
                   .begin = began,
                   .run_begin = run_began,
                   .end = clock_.Now(),
                   .rows = std::accumulate(rows.begin(), rows.end(), 0),
                   .requests = static_cast<int32_t>(jobs.size()),
                   .values = values,
                   .padding = values > 0 ? NumElements(computed) - values : 0},
                  trace);
  };
  const Clock::Time began = clock_.Now();
  if (jobs.size() == 1) {
    auto outputs = context.Run(jobs[0]->task.inputs, options);
    times.compute_infer = clock_.Now() - began;
    RETURN_IF_ERROR(outputs.status());
    tell(began, began, jobs[0]->task.inputs);
    Outputs parts;
    parts.push_back(std::move(outputs).value());
    return parts;
  }
  std::vector<const Inputs*> inputs;
  for (const auto& job : jobs) inputs.push_back(&job->task.inputs);
  const Inputs joined =
      jagged_.any() ? jagged_.Join(inputs) : ragged_.Join(inputs);
  const Clock::Time input_ready = clock_.Now();
  times.compute_input = input_ready - began;
  auto outputs = context.Run(joined, options);
  const Clock::Time output_ready = clock_.Now();
  times.compute_infer = output_ready - input_ready;
  RETURN_IF_ERROR(outputs.status());
  auto parts = jagged_.any() ? PartRows(std::move(outputs).value(), rows)
                             : ragged_.Part(std::move(outputs).value(), inputs);
  times.compute_output = clock_.Now() - output_ready;
  tell(began, input_ready, joined);
  return parts;
}

// Asked between the steps of a run: stops when no job is wanted any more.
Status BatchRunner::Stopped(Jobs jobs) const {
  Status unwanted;
  for (const auto& job : jobs) {
    unwanted = WhyUnwanted(*job, clock_.Now(), model_);
    if (unwanted.ok()) return unwanted;
  }
  return unwanted;
}

}  // namespace millrace::scheduler
