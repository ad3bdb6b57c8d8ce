// Rates are over the time from the first request's due time to the last one's
// end, as aiperf and genai-perf count them.
#include "loadtest/report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr double kNsPerMs = 1e6;
// Beyond these the client, not the server, may set the figures.
constexpr double kMaxBusy = 0.85;
constexpr double kMaxLagMs = 5;

Summary Summarize(const char* key, const char* title, const char* unit,
                  const Histogram& values, double scale) {
  Summary summary = {key, title, unit};
  summary.count = values.count();
  const int64_t count = values.count();
  summary.mean = values.Mean() / scale;
  summary.std = values.StdDev() / scale;
  summary.min = static_cast<double>(values.min()) / scale;
  summary.max = static_cast<double>(values.max()) / scale;
  const auto at = [&](double percent) {
    return static_cast<double>(values.Percentile(percent)) / scale;
  };
  summary.p50 = at(50);
  summary.p75 = at(75);
  summary.p90 = at(90);
  summary.p95 = at(95);
  summary.p99 = at(99);
  summary.p999 = at(99.9);
  for (const double percent :
       {0.0,  5.0,  10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0,  85.0,
        90.0, 92.5, 95.0, 97.0, 98.0, 99.0, 99.5, 99.7, 99.9, 99.95, 99.99}) {
    // Beyond one value in count there is only the maximum.
    const double rest = (1 - percent / 100) * static_cast<double>(count);
    if (rest < 0.999) break;
    summary.curve.emplace_back(percent, at(percent));
  }
  return summary;
}

double Rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

const Histogram& HistogramOf(const RunStats& stats, Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return stats.ttft_ns;
    case Metric::kItl:
      return stats.itl_ns;
    case Metric::kTpot:
      return stats.tpot_ns;
    case Metric::kLatency:
      break;
  }
  return stats.latency_ns;
}

void AddObjectives(const Options& options, const RunStats& stats,
                   Report& report) {
  report.slo_text = options.slo_text;
  report.max_error_rate = options.max_error_rate;
  for (const Objective& objective : options.slo) {
    const Histogram& values = HistogramOf(stats, objective.metric);
    const double nanoseconds =
        objective.percentile < 0
            ? values.Mean()
            : static_cast<double>(values.Percentile(objective.percentile));
    const bool met =
        values.count() > 0 &&
        nanoseconds <= static_cast<double>(objective.limit.count());
    report.objectives.push_back({objective, nanoseconds / kNsPerMs, met});
    report.slo_met &= met;
  }
  report.slo_met &=
      options.slo.empty() || report.error_rate <= options.max_error_rate;
}

void AddConfidence(const std::vector<RunStats>& runs, Report& report) {
  if (runs.size() < 2) return;
  const auto add = [&](const char* key, auto value) {
    std::vector<double> values;
    for (const RunStats& run : runs) values.push_back(value(run));
    report.confidence[key] = ConfidenceOf(values);
  };
  add("request_throughput", [](const RunStats& run) {
    return Rate(static_cast<double>(run.num_ok), run.Seconds());
  });
  add("output_token_throughput", [](const RunStats& run) {
    return Rate(run.output_tokens.sum(), run.Seconds());
  });
  add("goodput", [](const RunStats& run) {
    return Rate(static_cast<double>(run.num_good), run.Seconds());
  });
  const auto add_times = [&](const std::string& key, Histogram RunStats::*of) {
    if (report.Find(key) == nullptr) return;
    add((key + ".mean").c_str(),
        [&](const RunStats& run) { return (run.*of).Mean() / kNsPerMs; });
    for (const int percent : {50, 99}) {
      add((key + ".p" + std::to_string(percent)).c_str(),
          [&](const RunStats& run) {
            return static_cast<double>((run.*of).Percentile(percent)) /
                   kNsPerMs;
          });
    }
  };
  add_times("time_to_first_token_ms", &RunStats::ttft_ns);
  add_times("inter_token_latency_ms", &RunStats::itl_ns);
  add_times("request_latency_ms", &RunStats::latency_ns);
}

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

Status CannotWrite(const std::string& path) {
  return FailedPrecondition("'" + path +
                            "' cannot be written; does its folder exist?");
}

void AddWarnings(const Options& options, const Session& session,
                 const Measurement& measurement, Report& report) {
  std::vector<std::string>& out = report.warnings;
  const double lag_ms =
      static_cast<double>(measurement.total.lag_ns.Percentile(99)) / kNsPerMs;
  const double latency_ms =
      static_cast<double>(measurement.total.latency_ns.Percentile(50)) /
      kNsPerMs;
  // Where all failed at once, the client had nothing to wait for.
  if (measurement.client_busy > kMaxBusy && report.num_ok > 0) {
    out.push_back(Format(
        "the client is the bottleneck: a thread was busy for %.0f %% of the "
        "time; raise --client-threads or run it on another machine",
        100 * measurement.client_busy));
  }
  if (report.open_loop && lag_ms > std::max(1.0, 0.1 * latency_ms) &&
      (lag_ms > kMaxLagMs || lag_ms > latency_ms)) {
    out.push_back(Format(
        "the client is behind its schedule: 1 %% of the requests were sent "
        "%.1f ms late or more (latencies count that); raise --max-connections "
        "or --client-threads, or give the client a core of its own",
        lag_ms));
  }
  if (session.lengths_estimated()) {
    out.push_back(
        "the server's /tokenize counted no tokens (there is none, or it "
        "refused): lengths of synthetic prompts are a guess of one token a "
        "word");
  }
  if (options.dataset.empty() && TakesText(options.endpoint) &&
      report.num_requests > session.num_prompts()) {
    out.push_back(Format(
        "%lld prompts were sent %.1f times each: a prefix cache may answer; "
        "raise --num-prompts",
        static_cast<long long>(session.num_prompts()),
        static_cast<double>(report.num_requests) /
            static_cast<double>(session.num_prompts())));
  }
  if (measurement.interrupted) {
    out.push_back("the run was interrupted: the figures are of its first part");
  }
}

}  // namespace

const Summary* Report::Find(std::string_view key) const {
  for (const Summary& summary : summaries) {
    if (summary.key == key) return &summary;
  }
  return nullptr;
}

Interval ConfidenceOf(const std::vector<double>& values) {
  // 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
  static constexpr double kT[] = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  Interval interval;
  if (values.empty()) return interval;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) interval.mean += value / count;
  interval.low = interval.high = interval.mean;
  if (values.size() < 2) return interval;
  double squares = 0;
  for (const double value : values) {
    squares += (value - interval.mean) * (value - interval.mean);
  }
  const size_t freedom = values.size() - 1;
  const double t = freedom <= std::size(kT) ? kT[freedom - 1] : 1.96;
  const double half =
      t * std::sqrt(squares / static_cast<double>(freedom) / count);
  interval.low -= half;
  interval.high += half;
  return interval;
}

Report MakeReport(const Options& options, const Session& session,
                  const Load& load, Measurement measurement) {
  const RunStats& total = measurement.total;
  Report report;
  report.url = options.url_text;
  report.model = session.model();
  report.endpoint = EndpointName(options.endpoint);
  report.streaming = options.streaming;
  report.open_loop = options.open_loop;
  static constexpr const char* kArrivals[] = {"constant", "poisson", "burst",
                                              "trace"};
  static_assert(
      std::size(kArrivals) == static_cast<size_t>(ArrivalKind::kTrace) + 1,
      "a name for each kind");
  report.arrival = kArrivals[static_cast<int>(options.arrivals.kind)];
  report.load = load;
  report.repetitions = static_cast<int64_t>(measurement.runs.size());
  report.seconds = measurement.seconds;
  report.num_requests = total.num_requests();
  report.num_ok = total.num_ok;
  report.num_failed = total.num_failed;
  report.error_rate = total.ErrorRate();
  report.errors = total.errors;
  report.client_busy = measurement.client_busy;
  report.client_threads = options.threads;
  report.interrupted = measurement.interrupted;
  const auto add = [&](const char* key, const char* title, const char* unit,
                       const Histogram& values, double scale) {
    if (values.count() == 0) return;
    report.summaries.push_back(Summarize(key, title, unit, values, scale));
  };
  add("time_to_first_token_ms", "Time to first token", "ms", total.ttft_ns,
      kNsPerMs);
  add("inter_token_latency_ms", "Inter token latency", "ms", total.itl_ns,
      kNsPerMs);
  add("time_per_output_token_ms", "Time per output token", "ms", total.tpot_ns,
      kNsPerMs);
  add("request_latency_ms", "Request latency", "ms", total.latency_ns,
      kNsPerMs);
  add("input_tokens", "Input tokens", "tokens", total.input_tokens, 1);
  add("output_tokens", "Output tokens", "tokens", total.output_tokens, 1);
  add("schedule_lag_ms", "Schedule lag of the client", "ms", total.lag_ns,
      kNsPerMs);
  add("server_prefill_ms", "Prefill, says the server", "ms",
      total.server_prefill_ns, kNsPerMs);
  add("server_decode_ms", "Decode, says the server", "ms",
      total.server_decode_ns, kNsPerMs);
  add("before_prefill_ms", "First token less prefill", "ms",
      total.before_prefill_ns, kNsPerMs);
  add("retry_after_ms", "Retry-After of 429", "ms", total.retry_after_ms, 1);
  const double seconds = measurement.seconds;
  report.request_throughput = Rate(static_cast<double>(total.num_ok), seconds);
  report.output_token_throughput = Rate(total.output_tokens.sum(), seconds);
  report.input_token_throughput = Rate(total.input_tokens.sum(), seconds);
  report.goodput = Rate(static_cast<double>(total.num_good), seconds);
  AddObjectives(options, total, report);
  AddConfidence(measurement.runs, report);
  AddWarnings(options, session, measurement, report);
  report.server_stages_ms = measurement.server_stages_ms;
  report.points = std::move(measurement.total.points);
  return report;
}

Status CheckWritable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return CannotWrite(path);
  const bool exists = std::filesystem::exists(path, error);
  const std::string folder =
      std::filesystem::absolute(path, error).parent_path().string();
  const bool writable = exists ? access(path.c_str(), W_OK) == 0
                               : access(folder.c_str(), W_OK | X_OK) == 0;
  return writable ? OkStatus() : CannotWrite(path);
}

Status WriteFile(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.flush();
  if (out) return OkStatus();
  return CannotWrite(path);
}

}  // namespace millrace::loadtest
