#include "loadtest/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMinKnee = 0.05;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

double LoadValue(const SweepResult& result, const Report& report) {
  return result.over_rate ? report.load.rate
                          : static_cast<double>(report.load.concurrency);
}

double ValueOf(const Report& report, std::string_view key,
               double Summary::*statistic) {
  const Summary* summary = report.Find(key);
  return summary != nullptr ? summary->*statistic : 0;
}

const char* Unit(const SweepResult& result) {
  return result.over_rate ? "request_rate" : "concurrency";
}

}  // namespace

std::optional<size_t> FindKnee(const std::vector<double>& loads,
                               const std::vector<double>& throughputs) {
  const size_t count = loads.size();
  if (count < 3) return std::nullopt;
  const double width = loads.back() - loads.front();
  const double least = throughputs.front();
  const double height =
      *std::max_element(throughputs.begin(), throughputs.end()) - least;
  if (width <= 0 || height <= 0) return std::nullopt;
  size_t knee = 0;
  double farthest = kMinKnee;
  for (size_t i = 1; i + 1 < count; ++i) {
    const double above =
        (throughputs[i] - least) / height - (loads[i] - loads.front()) / width;
    if (above <= farthest) continue;
    farthest = above;
    knee = i;
  }
  if (knee == 0) return std::nullopt;
  return knee;
}

StatusOr<Report> MeasureLoad(const Options& options, Session& session,
                             bool over_rate, double value) {
  Load load = LoadOf(options);
  if (over_rate) {
    load.rate = value;
  } else {
    load.concurrency = std::llround(value);
  }
  ASSIGN_OR_RETURN(Measurement measurement, session.Measure(load));
  return MakeReport(options, session, load, std::move(measurement));
}

StatusOr<SweepResult> RunSweep(
    const Options& options, Session& session,
    const std::function<void(const Report&)>& on_step) {
  SweepResult result;
  result.over_rate = options.sweep.over_rate;
  std::vector<double> throughputs;
  for (const double value : options.sweep.values) {
    ASSIGN_OR_RETURN(Report report,
                     MeasureLoad(options, session, result.over_rate, value));
    const bool interrupted = report.interrupted;
    on_step(report);
    throughputs.push_back(report.output_token_throughput > 0
                              ? report.output_token_throughput
                              : report.request_throughput);
    const bool met = report.num_ok > 0 && report.slo_met;
    result.steps.push_back(std::move(report));
    if (met && !options.slo.empty()) result.best = result.steps.size() - 1;
    if (interrupted) break;
  }
  std::vector<double> loads(options.sweep.values.begin(),
                            options.sweep.values.begin() +
                                static_cast<ptrdiff_t>(throughputs.size()));
  result.knee = FindKnee(loads, throughputs);
  return result;
}

std::string SweepHeader(const SweepResult& result) {
  return Format("%-14s %10s %10s %9s %9s %9s %9s %9s %9s %8s %s\n",
                Unit(result), "requests/s", "tokens/s", "goodput", "TTFT p50",
                "TTFT p99", "ITL p99", "lat. p50", "lat. p99", "failed", "SLO");
}

std::string SweepRow(const SweepResult& result, const Report& report) {
  const std::string load = Format("%g", LoadValue(result, report));
  return Format(
      "%-14s %10.2f %10.1f %9.2f %9.1f %9.1f %9.1f %9.1f %9.1f %7.2f%% %s\n",
      load.c_str(), report.request_throughput, report.output_token_throughput,
      report.goodput, ValueOf(report, "time_to_first_token_ms", &Summary::p50),
      ValueOf(report, "time_to_first_token_ms", &Summary::p99),
      ValueOf(report, "inter_token_latency_ms", &Summary::p99),
      ValueOf(report, "request_latency_ms", &Summary::p50),
      ValueOf(report, "request_latency_ms", &Summary::p99),
      100 * report.error_rate,
      report.objectives.empty() ? "-" : (report.slo_met ? "met" : "MISSED"));
}

std::string SweepFooter(const SweepResult& result) {
  std::string out;
  const char* unit = Unit(result);
  if (result.knee) {
    const Report& report = result.steps[*result.knee];
    out += Format(
        "Knee: %s %g, %.2f requests/s; more load adds latency rather "
        "than throughput\n",
        unit, LoadValue(result, report), report.request_throughput);
  } else {
    out += "Knee: none within these loads\n";
  }
  const bool slo =
      !result.steps.empty() && !result.steps.front().objectives.empty();
  if (result.best) {
    const Report& report = result.steps[*result.best];
    out += Format("Highest load that meets the SLO: %s %g, %.2f requests/s\n",
                  unit, LoadValue(result, report), report.request_throughput);
  } else if (slo) {
    out += "No load met the SLO; try lower ones\n";
  }
  for (const Report& report : result.steps) {
    for (const std::string& warning : report.warnings) {
      out += Format("WARNING at %s %g: ", unit, LoadValue(result, report)) +
             warning + "\n";
    }
  }
  return out;
}

std::string SweepJson(const SweepResult& result) {
  Json steps = Json::array();
  for (const Report& report : result.steps) steps.push_back(ReportJson(report));
  const auto load_at = [&](std::optional<size_t> step) {
    return step ? Json(LoadValue(result, result.steps[*step])) : Json();
  };
  const Json out = {{"format", "millrace-loadtest-sweep/1"},
                    {"sweep", Unit(result)},
                    {"knee", load_at(result.knee)},
                    {"highest_meeting_slo", load_at(result.best)},
                    {"steps", std::move(steps)}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string SweepCsv(const SweepResult& result) {
  std::string out = std::string(Unit(result)) +
                    ",request_throughput,output_token_throughput,goodput,"
                    "time_to_first_token_p50_ms,time_to_first_token_p99_ms,"
                    "inter_token_latency_p50_ms,inter_token_latency_p99_ms,"
                    "request_latency_p50_ms,request_latency_p99_ms,"
                    "error_rate,slo_met\n";
  for (const Report& report : result.steps) {
    out += Format("%g,%g,%g,%g", LoadValue(result, report),
                  report.request_throughput, report.output_token_throughput,
                  report.goodput);
    for (const char* key : {"time_to_first_token_ms", "inter_token_latency_ms",
                            "request_latency_ms"}) {
      out += Format(",%g,%g", ValueOf(report, key, &Summary::p50),
                    ValueOf(report, key, &Summary::p99));
    }
    out += Format(",%g,%d\n", report.error_rate, report.slo_met ? 1 : 0);
  }
  return out;
}

}  // namespace millrace::loadtest
