// What plan prints and writes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "loadtest/plan/plan.h"
#include "loadtest/report.h"
#include "loadtest/svg.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNsPerMs = 1e6;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

double Ms(const Histogram& values, double percent) {
  return static_cast<double>(values.Percentile(percent)) / kNsPerMs;
}

double Rate(const FleetResult& fleet, int64_t count) {
  return fleet.end > 0 ? static_cast<double>(count) /
                             (static_cast<double>(fleet.end) * 1e-9)
                       : 0;
}

Json TimesJson(const Histogram& values) {
  return {{"mean", values.Mean() / kNsPerMs},
          {"p50", Ms(values, 50)},
          {"p90", Ms(values, 90)},
          {"p99", Ms(values, 99)},
          {"max", static_cast<double>(values.max()) / kNsPerMs}};
}

const char* RoutingName(Routing routing) {
  switch (routing) {
    case Routing::kRoundRobin:
      return "round-robin";
    case Routing::kLeastLoaded:
      return "least-loaded";
    case Routing::kPrefix:
      break;
  }
  return "prefix";
}

Json StepJson(const PlanOptions& options, const PlanStep& step) {
  const FleetResult& fleet = step.fleet;
  Json out = {{"replicas", step.replicas},
              {"mean_replicas", step.mean_replicas},
              {"most_replicas", fleet.most_replicas},
              {"duration_s", static_cast<double>(fleet.end) * 1e-9},
              {"request_count", fleet.num_done},
              {"refused", fleet.num_refused},
              {"restarted", fleet.num_restarted},
              {"request_throughput", Rate(fleet, fleet.num_done)},
              {"goodput", Rate(fleet, fleet.num_good)},
              {"slo_met", step.slo_met}};
  if (!options.fleet.model.graph) {
    out["output_token_throughput"] = Rate(fleet, fleet.output_tokens);
    out["time_to_first_token_ms"] = TimesJson(fleet.ttft_ns);
    out["inter_token_latency_ms"] = TimesJson(fleet.itl_ns);
    out["time_per_output_token_ms"] = TimesJson(fleet.tpot_ns);
  }
  out["request_latency_ms"] = TimesJson(fleet.latency_ns);
  out["replica_hours"] = fleet.replica_seconds / 3600;
  if (options.price_per_hour > 0) {
    out[options.fleet.model.graph ? "cost_per_million_requests"
                                  : "cost_per_million_output_tokens"] =
        CostPerMillion(options, step);
  }
  out["events"] = fleet.num_events;
  return out;
}

template <typename Value>
Series OverReplicas(const PlanResult& result, const char* name, int color,
                    Value value) {
  Series series = {.name = name, .color = color};
  for (const PlanStep& step : result.steps) {
    series.points.emplace_back(static_cast<double>(step.replicas),
                               value(step.fleet));
  }
  return series;
}

Plot TimesPlot(const PlanResult& result, const char* title,
               Histogram FleetResult::*of) {
  return {.title = title,
          .x_label = "replicas",
          .y_label = "ms",
          .series = {OverReplicas(
                         result, "p50", 0,
                         [&](const FleetResult& f) { return Ms(f.*of, 50); }),
                     OverReplicas(
                         result, "p99", 1,
                         [&](const FleetResult& f) { return Ms(f.*of, 99); })},
          .log_y = true};
}

Plot Timeline(const PlanStep& step) {
  Plot plot = {.title = Format("%lld replicas at the start",
                               static_cast<long long>(step.replicas)),
               .x_label = "seconds",
               .y_label = "count",
               .series = {{.name = "requests under way", .color = 0},
                          {.name = "replicas that serve", .color = 1}}};
  for (const FleetPoint& point : step.fleet.timeline) {
    const double at = static_cast<double>(point.at) * 1e-9;
    plot.series[0].points.emplace_back(at,
                                       static_cast<double>(point.outstanding));
    plot.series[1].points.emplace_back(at, static_cast<double>(point.replicas));
  }
  return plot;
}

constexpr int kBarColumns = 50;

std::string Bar(double value, double most) {
  const double share = most > 0 ? value / most : 0;
  return std::string(static_cast<size_t>(std::lround(kBarColumns * share)),
                     '#');
}

// Bars of the p99 over the replicas.
std::string TimesBars(const PlanOptions& options, const PlanResult& result) {
  const bool graph = options.fleet.model.graph;
  const auto p99 = [&](const PlanStep& step) {
    return Ms(graph ? step.fleet.latency_ns : step.fleet.ttft_ns, 99);
  };
  double most = 0;
  for (const PlanStep& step : result.steps) most = std::max(most, p99(step));
  std::string out = Format("\n%s p99 over replicas\n",
                           graph ? "Request latency" : "Time to first token");
  for (const PlanStep& step : result.steps) {
    out +=
        Format("%9lld %10.1f ms |%s\n", static_cast<long long>(step.replicas),
               p99(step), Bar(p99(step), most).c_str());
  }
  return out;
}

// Bars of the requests under way over the time, with the replicas that serve.
std::string LoadBars(const PlanStep& step) {
  constexpr size_t kRows = 20;
  const auto& line = step.fleet.timeline;
  if (line.size() < 2) return "";
  int64_t most = 1;
  for (const FleetPoint& point : line) most = std::max(most, point.outstanding);
  std::string out =
      Format("\n%9s %9s %10s  (%lld replicas at the start)\n", "seconds",
             "replicas", "under way", static_cast<long long>(step.replicas));
  const size_t every = std::max<size_t>(1, line.size() / kRows);
  for (size_t i = 0; i < line.size(); i += every) {
    out += Format(
        "%9.1f %9lld %10lld |%s\n", static_cast<double>(line[i].at) * 1e-9,
        static_cast<long long>(line[i].replicas),
        static_cast<long long>(line[i].outstanding),
        Bar(static_cast<double>(line[i].outstanding), static_cast<double>(most))
            .c_str());
  }
  return out;
}

}  // namespace

std::string PlanPlots(const PlanOptions& options, const PlanResult& result) {
  std::string out;
  if (result.steps.size() > 1) out += TimesBars(options, result);
  for (const PlanStep& step : result.steps) {
    const bool shown = options.find_replicas ? step.replicas == result.needed
                                             : result.steps.size() == 1;
    if (shown) out += LoadBars(step);
  }
  return out;
}

double CostPerMillion(const PlanOptions& options, const PlanStep& step) {
  const FleetResult& fleet = step.fleet;
  const double cost = fleet.replica_seconds / 3600 * options.price_per_hour;
  const int64_t units =
      options.fleet.model.graph ? fleet.num_done : fleet.output_tokens;
  return units > 0 ? cost * 1e6 / static_cast<double>(units) : 0;
}

std::string PlanText(const PlanOptions& options, const PlanResult& result) {
  const bool graph = options.fleet.model.graph;
  std::string out = Format(
      "%zu requests, routing %s\n%9s %10s %10s %9s %9s %9s %9s %9s %9s %9s "
      "%7s %9s %s\n",
      result.num_requests, RoutingName(options.fleet.routing), "replicas",
      "requests/s", "tokens/s", "goodput", "TTFT p50", "TTFT p99", "ITL p50",
      "ITL p99", "lat. p50", "lat. p99", "paid", "cost/1e6", "SLO");
  for (const PlanStep& step : result.steps) {
    const FleetResult& f = step.fleet;
    const std::string cost =
        options.price_per_hour > 0
            ? Format("%9.3f", CostPerMillion(options, step))
            : Format("%9s", "-");
    out += Format(
        "%9lld %10.2f %10.1f %9.2f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %7.1f ",
        static_cast<long long>(step.replicas), Rate(f, f.num_done),
        Rate(f, f.output_tokens), Rate(f, f.num_good), Ms(f.ttft_ns, 50),
        Ms(f.ttft_ns, 99), Ms(f.itl_ns, 50), Ms(f.itl_ns, 99),
        Ms(f.latency_ns, 50), Ms(f.latency_ns, 99), step.mean_replicas);
    out += cost;
    out += options.load.slo.empty() ? " -" : step.slo_met ? " met" : " MISSED";
    if (f.num_refused > 0) {
      out += Format(", %lld refused", static_cast<long long>(f.num_refused));
    }
    if (f.num_restarted > 0) {
      out += Format(", %lld started again",
                    static_cast<long long>(f.num_restarted));
    }
    out += "\n";
  }
  if (options.find_replicas) {
    out += result.needed
               ? Format("Replicas needed for the SLO: %lld\n",
                        static_cast<long long>(*result.needed))
               : std::string(
                     "10000 replicas do not meet the SLO; one request "
                     "alone may take longer than it allows\n");
  }
  if (options.price_per_hour > 0) {
    out += Format(
        "Costs are per million %s; replicas are paid for from the "
        "begin of their start\n",
        graph ? "requests" : "output tokens");
  }
  return out;
}

std::string PlanJson(const PlanOptions& options, const PlanResult& result) {
  Json steps = Json::array();
  for (const PlanStep& step : result.steps) {
    steps.push_back(StepJson(options, step));
  }
  const Json out = {
      {"format", "millrace-loadtest-plan/1"},
      {"server_model", Json::parse(ServerModelJson(options.fleet.model))},
      {"routing", RoutingName(options.fleet.routing)},
      {"requests", result.num_requests},
      {"slo", options.load.slo_text},
      {"replicas_needed", result.needed ? Json(*result.needed) : Json()},
      {"steps", std::move(steps)}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string PlanHtml(const PlanOptions& options, const PlanResult& result) {
  std::vector<Plot> plots;
  if (result.steps.size() > 1) {
    if (!options.fleet.model.graph) {
      plots.push_back(
          TimesPlot(result, "Time to first token", &FleetResult::ttft_ns));
      plots.push_back(
          TimesPlot(result, "Inter token latency", &FleetResult::itl_ns));
    }
    plots.push_back(
        TimesPlot(result, "Request latency", &FleetResult::latency_ns));
    plots.push_back({.title = "Requests/s",
                     .x_label = "replicas",
                     .y_label = "requests/s",
                     .series = {OverReplicas(result, "answered", 0,
                                             [](const FleetResult& f) {
                                               return Rate(f, f.num_done);
                                             }),
                                OverReplicas(result, "goodput", 2,
                                             [](const FleetResult& f) {
                                               return Rate(f, f.num_good);
                                             })}});
  }
  for (const PlanStep& step : result.steps) {
    const bool shown = !options.find_replicas || step.replicas == result.needed;
    if (shown) plots.push_back(Timeline(step));
  }
  return PlotPage("<h1>Simulated fleet</h1>", PlanText(options, result), plots);
}

}  // namespace millrace::loadtest
