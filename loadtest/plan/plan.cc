#include "loadtest/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "loadtest/dataset.h"
#include "loadtest/plan/fit.h"
#include "loadtest/plan/refine.h"
#include "loadtest/plan/server_facts.h"
#include "loadtest/report.h"
#include "loadtest/session.h"
#include "loadtest/sweep.h"
#include "loadtest/tensors.h"

namespace millrace::loadtest {
namespace {

constexpr int64_t kMostReplicas = 10'000;
// Of the prompts that are measured beside those asked for: lengths of one kind
// do not tell what a token costs from what a request does.
constexpr double kShortPrompts = 0.25;

double Nanoseconds(const Histogram& values, double percentile) {
  if (percentile < 0) return values.Mean();
  return static_cast<double>(values.Percentile(percentile));
}

bool MeetsAll(const Options& load, const FleetResult& fleet) {
  const double total = static_cast<double>(fleet.num_done + fleet.num_refused);
  if (fleet.num_done == 0 ||
      static_cast<double>(fleet.num_refused) > load.max_error_rate * total) {
    return false;
  }
  for (const Objective& objective : load.slo) {
    const Histogram& values = objective.metric == Metric::kTtft  ? fleet.ttft_ns
                              : objective.metric == Metric::kItl ? fleet.itl_ns
                              : objective.metric == Metric::kTpot
                                  ? fleet.tpot_ns
                                  : fleet.latency_ns;
    // A stream of one token has no gaps.
    if (values.count() > 0 &&
        Nanoseconds(values, objective.percentile) >
            static_cast<double>(objective.limit.count())) {
      return false;
    }
  }
  return true;
}

PlanStep RunStep(const PlanOptions& options,
                 const std::vector<SimRequest>& requests, int64_t replicas) {
  FleetSpec fleet = options.fleet;
  fleet.replicas = replicas;
  PlanStep step;
  step.replicas = replicas;
  step.fleet = Simulate(fleet, requests, options.load.slo);
  step.slo_met = MeetsAll(options.load, step.fleet);
  const double seconds = static_cast<double>(step.fleet.end) * 1e-9;
  step.mean_replicas = seconds > 0 ? step.fleet.replica_seconds / seconds
                                   : static_cast<double>(replicas);
  return step;
}

StatusOr<FitPoint> MeasurePoint(const Options& load, Session& session,
                                int64_t concurrency) {
  ASSIGN_OR_RETURN(
      const Report report,
      MeasureLoad(load, session, false, static_cast<double>(concurrency)));
  if (report.interrupted) return Cancelled("interrupted");
  if (report.num_ok == 0) {
    return FailedPrecondition("no request was answered at concurrency " +
                              std::to_string(concurrency));
  }
  return FitPointOf(JsonText(report));
}

// Lone requests with short prompts, where the lengths are ours to choose.
Status AddShortPrompts(const Options& load, std::vector<FitPoint>& points) {
  const double tokens = std::round(kShortPrompts * load.input_tokens.mean);
  if (!load.dataset.empty() || load.shared_prefix_tokens > 0 || tokens < 1) {
    return OkStatus();
  }
  Options shorter = load;
  shorter.input_tokens = {.mean = tokens};
  ASSIGN_OR_RETURN(const auto session, Session::Open(&shorter));
  ASSIGN_OR_RETURN(const FitPoint point, MeasurePoint(shorter, *session, 1));
  points.push_back(point);
  return OkStatus();
}

// By the sequences that decode, means of the points that agree in them; empty
// where no point has draft tokens.
std::vector<std::pair<int64_t, double>> TokensPerStep(
    const std::vector<FitPoint>& points) {
  std::map<int64_t, std::vector<double>> by_sequences;
  bool drafts = false;
  for (const FitPoint& point : points) {
    const auto sequences =
        std::max<int64_t>(1, std::llround(DecodingSequences(point)));
    by_sequences[sequences].push_back(point.tokens_per_step);
    drafts = drafts || point.tokens_per_step > 1;
  }
  std::vector<std::pair<int64_t, double>> result;
  if (!drafts) return result;
  for (const auto& [sequences, tokens] : by_sequences) {
    result.emplace_back(sequences,
                        std::accumulate(tokens.begin(), tokens.end(), 0.0) /
                            static_cast<double>(tokens.size()));
  }
  return result;
}

StatusOr<ServerModel> FitLlm(const FitOptions& options) {
  std::vector<FitPoint> points;
  std::string model_name;
  for (const std::string& file : options.reports) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    auto point = FitPointOf(text);
    if (!point.ok()) return std::move(point).status().Prefixed(file);
    points.push_back(*point);
  }
  if (options.reports.empty()) {
    ASSIGN_OR_RETURN(const auto session, Session::Open(&options.load));
    model_name = session->model();
    for (const int64_t concurrency : options.loads) {
      ASSIGN_OR_RETURN(const FitPoint point,
                       MeasurePoint(options.load, *session, concurrency));
      points.push_back(point);
    }
    RETURN_IF_ERROR(AddShortPrompts(options.load, points));
  }
  // What the server has learnt of its steps during the measurements is one
  // start, what the reports' means say another.
  ServerModel limits = options.limits;
  ServerFacts facts;
  if (options.reports.empty()) {
    facts = ReadServerFacts(options.load, model_name);
    ApplyFacts(facts, options.given, limits);
  }
  ASSIGN_OR_RETURN(ServerModel fitted, FitServerModel(points, limits));
  fitted.attended_key_ns = 0;
  const bool told = facts.known() && !facts.prices.empty();
  ServerModel model = RefineServerModel(points, told ? limits : fitted);
  if (told) {
    const ServerModel other = RefineServerModel(points, fitted);
    if (ClosedLoopError(points, other) < ClosedLoopError(points, model)) {
      model = other;
    }
    std::printf("Limits and step prices are the server's own\n");
  }
  model.tokens_per_step = TokensPerStep(points);
  std::printf("%12s %12s %12s %12s %14s %14s %14s\n", "under way",
              "input tokens", "requests/s", "TTFT p50 ms", "of the model",
              "ms per token", "of the model");
  for (const FitPoint& point : points) {
    const ClosedLoopTimes times = SimulateClosedLoop(model, point);
    std::printf("%12.1f %12.1f %12.2f %12.1f %14.1f %14.2f %14.2f\n",
                point.concurrency, point.input_tokens, point.request_rate,
                point.ttft_ms, times.ttft_ms, point.tpot_ms, times.tpot_ms);
  }
  return model;
}

StatusOr<ServerModel> FitGraph(const FitOptions& options) {
  ServerModel model = options.limits;
  ApplyFacts(ReadServerFacts(options.load, options.load.model), options.given,
             model);
  std::vector<int64_t> sizes = options.rows;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  Options load = options.load;
  // A first size that is no batch's cannot be another one: with --rows 1 alone
  // shapes and files are sent as they are given.
  load.exact_rows = sizes != std::vector<int64_t>{1};
  // What is refused is refused before anything is measured.
  for (const int64_t rows : sizes) {
    load.batch_size = rows;
    const auto requests = MakeTensorRequests(load);
    if (!requests.ok()) return requests.status();
  }
  std::printf("%12s %14s\n", "rows", "median ms");
  for (const int64_t rows : sizes) {
    load.batch_size = rows;
    ASSIGN_OR_RETURN(const auto session, Session::Open(&load));
    ASSIGN_OR_RETURN(const Report report,
                     MeasureLoad(load, *session, false, 1));
    if (report.interrupted) return Cancelled("interrupted");
    const Summary* latency = report.Find("request_latency_ms");
    if (latency == nullptr) {
      return FailedPrecondition("no request of " + std::to_string(rows) +
                                " rows was answered; lower --rows");
    }
    std::printf("%12lld %14.3f\n", static_cast<long long>(rows), latency->p50);
    // The wait of a lone request in the queue is not part of the batch.
    const double ns = latency->p50 * 1e6;
    const auto delay = static_cast<double>(model.max_queue_delay_ns);
    model.batch_ns.emplace_back(
        rows, rows < model.max_batch_size ? std::max(0.0, ns - delay) : ns);
  }
  return model;
}

}  // namespace

StatusOr<PlanResult> Plan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<SimRequest> requests,
                   MakeSimRequests(options));
  PlanResult result;
  result.num_requests = requests.size();
  if (!options.find_replicas) {
    for (const int64_t replicas : options.replicas) {
      result.steps.push_back(RunStep(options, requests, replicas));
    }
    return result;
  }
  // Doubles until the objectives are met, then bisects.
  std::map<int64_t, PlanStep> tried;
  const auto met = [&](int64_t replicas) {
    const auto at =
        tried.emplace(replicas, RunStep(options, requests, replicas)).first;
    return at->second.slo_met;
  };
  int64_t missed = 0;
  int64_t enough = 1;
  while (!met(enough)) {
    missed = enough;
    if (enough == kMostReplicas) break;
    enough = std::min(enough * 2, kMostReplicas);
  }
  if (missed < enough) {
    while (enough - missed > 1) {
      const int64_t middle = missed + (enough - missed) / 2;
      (met(middle) ? enough : missed) = middle;
    }
    result.needed = enough;
  }
  for (auto& [replicas, step] : tried) {
    result.steps.push_back(std::move(step));
  }
  return result;
}

Status Fit(const FitOptions& options) {
  const auto model = options.limits.graph ? FitGraph(options) : FitLlm(options);
  if (!model.ok()) return model.status();
  const std::string json = ServerModelJson(*model);
  RETURN_IF_ERROR(WriteFile(options.output, json));
  std::printf("%sWritten: %s\n", json.c_str(), options.output.c_str());
  return OkStatus();
}

}  // namespace millrace::loadtest
