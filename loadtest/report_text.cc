// The report as a table, as JSON and as CSV.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "loadtest/report.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string LoadText(const Report& report) {
  if (!report.open_loop) {
    return Format("closed loop of %lld",
                  static_cast<long long>(report.load.concurrency));
  }
  if (report.arrival == "trace") {
    return Format("trace at %g times its speed", report.load.rate);
  }
  return Format("%g requests/s, %s", report.load.rate, report.arrival.c_str());
}

std::string PlusMinus(const Report& report, const std::string& key) {
  const auto interval = report.confidence.find(key);
  if (interval == report.confidence.end()) return "";
  return Format("   (95 %% confidence: %.3f to %.3f)", interval->second.low,
                interval->second.high);
}

Json SummaryJson(const Summary& summary) {
  return {
      {"mean", summary.mean},  {"p50", summary.p50},    {"p75", summary.p75},
      {"p90", summary.p90},    {"p95", summary.p95},    {"p99", summary.p99},
      {"p99.9", summary.p999}, {"min", summary.min},    {"max", summary.max},
      {"std", summary.std},    {"count", summary.count}};
}

Json ErrorsJson(const Report& report) {
  Json kinds = Json::object();
  Json examples = Json::object();
  for (const auto& [key, error] : report.errors) {
    kinds[key] = error.count;
    examples[key] = error.example;
  }
  return {{"total", report.num_failed},
          {"rate", report.error_rate},
          {"by_kind", std::move(kinds)},
          {"examples", std::move(examples)}};
}

// Quoted as RFC 4180 says.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string TableText(const Report& report) {
  std::string out =
      Format("%s  %s%s  %s\n%s, %.2f s%s\n\n", report.url.c_str(),
             report.endpoint.c_str(), report.streaming ? ", streaming" : "",
             report.model.c_str(), LoadText(report).c_str(), report.seconds,
             report.repetitions > 1
                 ? Format(" in %lld repetitions",
                          static_cast<long long>(report.repetitions))
                       .c_str()
                 : "");
  out += Format("%-32s %10s %10s %10s %10s %10s %10s\n", "", "mean", "p50",
                "p90", "p99", "min", "max");
  for (const Summary& row : report.summaries) {
    const std::string title = row.title + " (" + row.unit + ")";
    out += Format("%-32s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n",
                  title.c_str(), row.mean, row.p50, row.p90, row.p99, row.min,
                  row.max);
  }
  out += Format("\n%-32s %10.2f%s\n", "Requests/s", report.request_throughput,
                PlusMinus(report, "request_throughput").c_str());
  if (report.output_token_throughput > 0) {
    out += Format("%-32s %10.2f%s\n", "Output tokens/s",
                  report.output_token_throughput,
                  PlusMinus(report, "output_token_throughput").c_str());
  }
  if (!report.objectives.empty()) {
    out += Format("%-32s %10.2f%s\n", "Goodput (requests/s)", report.goodput,
                  PlusMinus(report, "goodput").c_str());
  }
  out += Format("%-32s %10lld\n", "Requests answered",
                static_cast<long long>(report.num_ok));
  if (report.num_failed > 0) {
    out += Format("%-32s %10lld   (%.2f %%, in no latency above)\n",
                  "Requests failed", static_cast<long long>(report.num_failed),
                  100 * report.error_rate);
    for (const auto& [key, error] : report.errors) {
      out += Format("  %-30s %10lld   %.150s\n", key.c_str(),
                    static_cast<long long>(error.count), error.example.c_str());
    }
  }
  if (!report.server_stages_ms.empty()) {
    out += Format("%-32s", "Mean stages, says the server (ms)");
    for (const auto& [name, ms] : report.server_stages_ms) {
      out += Format("  %s %.3f", name.c_str(), ms);
    }
    out += "\n";
  }
  for (const ObjectiveResult& result : report.objectives) {
    out += Format("%s %s of %.2f ms: %.2f ms, %s\n",
                  std::string(MetricName(result.objective.metric)).c_str(),
                  result.objective.statistic.c_str(),
                  static_cast<double>(result.objective.limit.count()) * 1e-6,
                  result.value_ms, result.met ? "met" : "MISSED");
  }
  if (!report.objectives.empty() && report.error_rate > report.max_error_rate) {
    out += Format("error rate of %.2f %%: %.2f %%, MISSED\n",
                  100 * report.max_error_rate, 100 * report.error_rate);
  }
  for (const std::string& warning : report.warnings) {
    out += "WARNING: " + warning + "\n";
  }
  return out;
}

Json ReportJson(const Report& report) {
  Json out = {{"format", "millrace-loadtest/1"},
              {"url", report.url},
              {"model", report.model},
              {"endpoint_type", report.endpoint},
              {"streaming", report.streaming}};
  if (report.open_loop) {
    out["arrival"] = report.arrival;
    out[report.arrival == "trace" ? "trace_speed" : "request_rate"] =
        report.load.rate;
  } else {
    out["concurrency"] = report.load.concurrency;
  }
  out["repetitions"] = report.repetitions;
  out["duration_s"] = report.seconds;
  out["request_count"] = report.num_ok;
  out["request_throughput"] = report.request_throughput;
  out["output_token_throughput"] = report.output_token_throughput;
  out["input_token_throughput"] = report.input_token_throughput;
  out["goodput"] = report.goodput;
  for (const Summary& summary : report.summaries) {
    out[summary.key] = SummaryJson(summary);
  }
  if (!report.server_stages_ms.empty()) {
    out["server_stages_ms"] = report.server_stages_ms;
  }
  out["errors"] = ErrorsJson(report);
  if (!report.objectives.empty()) {
    Json objectives = Json::array();
    for (const ObjectiveResult& result : report.objectives) {
      objectives.push_back(
          {{"metric", MetricName(result.objective.metric)},
           {"statistic", result.objective.statistic},
           {"limit_ms",
            static_cast<double>(result.objective.limit.count()) * 1e-6},
           {"value_ms", result.value_ms},
           {"met", result.met}});
    }
    out["slo"] = {{"met", report.slo_met},
                  {"max_error_rate", report.max_error_rate},
                  {"objectives", std::move(objectives)}};
  }
  if (!report.confidence.empty()) {
    Json confidence = Json::object();
    for (const auto& [key, interval] : report.confidence) {
      confidence[key] = {{"mean", interval.mean},
                         {"low", interval.low},
                         {"high", interval.high}};
    }
    out["confidence_95"] = std::move(confidence);
  }
  out["client"] = {{"threads", report.client_threads},
                   {"cpu_utilization", report.client_busy}};
  out["warnings"] = report.warnings;
  return out;
}

std::string JsonText(const Report& report) {
  return ReportJson(report).dump(2, ' ', false,
                                 nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string ReportCsv(const Report& report) {
  std::string out =
      "metric,unit,count,mean,p50,p90,p95,p99,p99.9,min,max,std\n";
  for (const Summary& row : report.summaries) {
    out += Format("%s,%s,%lld,%g,%g,%g,%g,%g,%g,%g,%g,%g\n", row.key.c_str(),
                  row.unit.c_str(), static_cast<long long>(row.count), row.mean,
                  row.p50, row.p90, row.p95, row.p99, row.p999, row.min,
                  row.max, row.std);
  }
  const auto single = [&](const std::string& key, const char* unit,
                          double value) {
    out += Format("%s,%s,,%g,,,,,,,,\n", Quoted(key).c_str(), unit, value);
  };
  single("request_throughput", "requests/s", report.request_throughput);
  single("output_token_throughput", "tokens/s", report.output_token_throughput);
  single("goodput", "requests/s", report.goodput);
  single("request_count", "requests", static_cast<double>(report.num_ok));
  single("errors", "requests", static_cast<double>(report.num_failed));
  for (const auto& [key, error] : report.errors) {
    single("errors." + key, "requests", static_cast<double>(error.count));
  }
  return out;
}

}  // namespace millrace::loadtest
