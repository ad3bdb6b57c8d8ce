// The figures of a measurement in the forms that people and programs read.
//
//   Report report = MakeReport(options, session, load, measurement);
//   std::fputs(TableText(report).c_str(), stdout);
//   WriteFile(path, ReportJson(report));
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/session.h"

namespace millrace::loadtest {

struct Plot;

// A distribution, in the unit that its name carries.
struct Summary {
  std::string key;    // "request_latency_ms"
  std::string title;  // "Request latency"
  std::string unit;   // "ms"
  int64_t count = 0;
  double mean = 0, std = 0, min = 0, max = 0;
  double p50 = 0, p75 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0;
  std::vector<std::pair<double, double>> curve = {};  // percentile, value
};

// A mean over repetitions with its 95 % confidence interval.
struct Interval {
  double mean = 0, low = 0, high = 0;
};

struct ObjectiveResult {
  Objective objective;
  double value_ms = 0;
  bool met = false;
};

struct Report {
  std::string url, model, endpoint, arrival;
  bool streaming = false;
  bool open_loop = false;
  Load load;
  int64_t repetitions = 1;
  double seconds = 0;
  int64_t num_requests = 0, num_ok = 0, num_failed = 0;
  std::vector<Summary> summaries;  // only those with values
  double request_throughput = 0;
  double output_token_throughput = 0;
  double input_token_throughput = 0;
  double goodput = 0;  // requests/s that were good
  std::string slo_text;
  std::vector<ObjectiveResult> objectives;
  double max_error_rate = 0;
  bool slo_met = true;
  double error_rate = 0;
  std::map<std::string, ErrorCount> errors;
  std::map<std::string, Interval> confidence;  // by key; needs repetitions
  double client_busy = 0;
  int64_t client_threads = 1;
  bool interrupted = false;
  std::vector<std::string> warnings;
  std::map<std::string, double> server_stages_ms;  // see Measurement
  std::vector<RequestPoint> points;

  const Summary* Find(std::string_view key) const;
};

Report MakeReport(const Options& options, const Session& session,
                  const Load& load, Measurement measurement);

std::string TableText(const Report& report);
nlohmann::ordered_json ReportJson(const Report& report);
std::string JsonText(const Report& report);  // indented
std::string ReportCsv(const Report& report);
std::string ReportHtml(const Report& report);

// A page of a title in HTML, a text and plots.
std::string PlotPage(const std::string& title, const std::string& text,
                     const std::vector<Plot>& plots);

// The 95 % interval of a mean by Student's t; low and high are the mean where
// there are fewer than two values.
Interval ConfidenceOf(const std::vector<double>& values);

// Whether WriteFile could write it; writes nothing.
Status CheckWritable(const std::string& path);
// FAILED_PRECONDITION when the file cannot be written.
Status WriteFile(const std::string& path, std::string_view text);

}  // namespace millrace::loadtest
