#include "models/graph/backend_choice.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace millrace::models::graph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastGain = 1.05;
constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 31;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One way to run the graph, and its times.
struct Way {
  std::unique_ptr<ExecutionContext> context;
  std::vector<Trace> traces;                 // of the last round, one a sample
  std::vector<double> run_ms;                // of each round
  std::vector<std::vector<double>> step_ns;  // of each step of all samples

  Status Round(const TensorSets& samples) {
    traces.resize(samples.size());
    double ms = 0;
    size_t at = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      Trace& trace = traces[i];
      RETURN_IF_ERROR(context->Run(samples[i], {.trace = &trace}).status());
      ms += static_cast<double>(trace.run_ns) * 1e-6;
      for (size_t step = 0; step < trace.steps.size(); ++step, ++at) {
        int64_t longest = 0;
        for (const auto& member : trace.spans) {
          longest =
              std::max(longest, member[step].end_ns - member[step].begin_ns);
        }
        if (at == step_ns.size()) step_ns.emplace_back();
        step_ns[at].push_back(static_cast<double>(longest));
      }
    }
    run_ms.push_back(ms);
    return OkStatus();
  }
};

StatusOr<Way> Make(const Graph& graph, InstanceOptions options, OneDnnUse use,
                   bool joins) {
  options.onednn = std::move(use);
  options.joins = joins;
  Way way;
  ASSIGN_OR_RETURN(way.context, CreateInstance(graph.Copy(), options));
  return way;
}

// By turns, so that what else the machine does meets both. The first round,
// which makes plans, does not count.
Status TakeTurns(Way& a, Way& b, const TensorSets& samples,
                 std::chrono::milliseconds most) {
  for (Way* way : {&a, &b}) {
    RETURN_IF_ERROR(way->Round(samples));
    way->run_ms.clear();
    way->step_ns.clear();
  }
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kMostRounds; ++i) {
    if (i >= kLeastRounds && Clock::now() - start > most) break;
    RETURN_IF_ERROR(a.Round(samples));
    RETURN_IF_ERROR(b.Round(samples));
  }
  return OkStatus();
}

struct Times {
  double ours = 0;
  double theirs = 0;
};

// Of the layers that oneDNN computed in `theirs`, by their shape. Both ways
// have the same steps in the same order.
std::map<std::string, Times> TimesOfShapes(const Way& ours, const Way& theirs) {
  std::map<std::string, Times> times;
  if (ours.step_ns.size() != theirs.step_ns.size()) return times;
  size_t at = 0;
  for (const Trace& trace : theirs.traces) {
    for (const StepInfo& step : trace.steps) {
      if (!step.onednn_shape.empty()) {
        Times& of = times[step.onednn_shape];
        of.ours += Median(ours.step_ns[at]);
        of.theirs += Median(theirs.step_ns[at]);
      }
      ++at;
    }
  }
  return times;
}

}  // namespace

StatusOr<BackendChoice> ChooseBackend(const Graph& graph,
                                      const InstanceOptions& options,
                                      const TensorSets& samples,
                                      double max_error) {
  BackendChoice choice;
  {
    ASSIGN_OR_RETURN(Way theirs, Make(graph, options, {.all = true}, false));
    ASSIGN_OR_RETURN(Way ours, Make(graph, options, {}, false));
    RETURN_IF_ERROR(TakeTurns(ours, theirs, samples, kMostMeasuring / 2));
    for (const auto& [shape, times] : TimesOfShapes(ours, theirs)) {
      ++choice.possible;
      if (times.theirs * kLeastGain <= times.ours) {
        choice.use.shapes.insert(shape);
      }
    }
    choice.millrace_ms = Median(ours.run_ms);
    choice.chosen_ms = choice.millrace_ms;
  }
  if (!choice.use.any()) return choice;
  ASSIGN_OR_RETURN(Way ours, Make(graph, options, {}, options.joins));
  ASSIGN_OR_RETURN(Way mixed, Make(graph, options, choice.use, false));
  RETURN_IF_ERROR(TakeTurns(ours, mixed, samples, kMostMeasuring / 2));
  choice.millrace_ms = Median(ours.run_ms);
  choice.chosen_ms = Median(mixed.run_ms);
  ASSIGN_OR_RETURN(const TensorSets want, RunAll(*ours.context, samples));
  ASSIGN_OR_RETURN(const TensorSets got, RunAll(*mixed.context, samples));
  choice.error = ErrorOf(got, want);
  // `not <=`: an error that is no number is too large.
  if (choice.chosen_ms >= choice.millrace_ms || !(choice.error <= max_error)) {
    choice.use = {};
    choice.chosen_ms = choice.millrace_ms;
  }
  return choice;
}

}  // namespace millrace::models::graph
