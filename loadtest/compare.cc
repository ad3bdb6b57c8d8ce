#include "loadtest/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;

constexpr double kNoise = 0.05;  // of a figure without repetitions

struct Row {
  const char* title;
  const char* key;
  const char* statistic;  // null: the key is a number
  bool higher_is_better;
};
constexpr Row kRows[] = {
    {"Requests/s", "request_throughput", nullptr, true},
    {"Output tokens/s", "output_token_throughput", nullptr, true},
    {"Goodput (requests/s)", "goodput", nullptr, true},
    {"Time to first token p50 (ms)", "time_to_first_token_ms", "p50", false},
    {"Time to first token p99 (ms)", "time_to_first_token_ms", "p99", false},
    {"Inter token latency p50 (ms)", "inter_token_latency_ms", "p50", false},
    {"Inter token latency p99 (ms)", "inter_token_latency_ms", "p99", false},
    {"Time per output token p50 (ms)", "time_per_output_token_ms", "p50",
     false},
    {"Request latency mean (ms)", "request_latency_ms", "mean", false},
    {"Request latency p50 (ms)", "request_latency_ms", "p50", false},
    {"Request latency p99 (ms)", "request_latency_ms", "p99", false},
    {"Error rate", "errors", "rate", false},
};

std::optional<double> Figure(const Json& report, const Row& row) {
  const auto value = report.find(row.key);
  if (value == report.end()) return std::nullopt;
  if (row.statistic == nullptr) {
    return value->is_number() ? std::optional<double>(*value) : std::nullopt;
  }
  if (!value->is_object()) return std::nullopt;
  const auto inner = value->find(row.statistic);
  if (inner == value->end() || !inner->is_number()) return std::nullopt;
  return inner->get<double>();
}

// Half the width of the 95 % interval, where there are repetitions.
std::optional<double> HalfWidth(const Json& report, const Row& row) {
  const auto all = report.find("confidence_95");
  if (all == report.end() || !all->is_object()) return std::nullopt;
  std::string key = row.key;
  if (row.statistic != nullptr) key += "." + std::string(row.statistic);
  const auto interval = all->find(key);
  if (interval == all->end() || !interval->is_object()) return std::nullopt;
  const auto low = interval->find("low");
  const auto high = interval->find("high");
  if (low == interval->end() || !low->is_number() || high == interval->end() ||
      !high->is_number()) {
    return std::nullopt;
  }
  return (high->get<double>() - low->get<double>()) / 2;
}

const char* Judge(const Json& before, const Json& after, const Row& row,
                  double from, double to) {
  const auto half_before = HalfWidth(before, row);
  const auto half_after = HalfWidth(after, row);
  const double noise = half_before && half_after
                           ? *half_before + *half_after
                           : kNoise * std::max(std::abs(from), std::abs(to));
  if (std::abs(to - from) <= noise) return "same";
  return (to > from) == row.higher_is_better ? "better" : "WORSE";
}

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

StatusOr<Json> Read(std::string_view text, const char* which) {
  Json report = Json::parse(text, nullptr, false);
  if (report.is_object() &&
      report.value("format", Json()) == "millrace-loadtest/1") {
    return report;
  }
  return InvalidArgument(std::string("the ") + which +
                         " file is no report of millrace-loadtest --json");
}

}  // namespace

StatusOr<std::string> CompareReports(std::string_view before_text,
                                     std::string_view after_text) {
  ASSIGN_OR_RETURN(const Json before, Read(before_text, "first"));
  ASSIGN_OR_RETURN(const Json after, Read(after_text, "second"));
  std::string out;
  for (const char* key : {"model", "endpoint_type", "streaming", "concurrency",
                          "request_rate", "arrival"}) {
    const Json from = before.value(key, Json());
    const Json to = after.value(key, Json());
    if (from == to) continue;
    out += std::string("NOTE: ") + key + " differs: " + from.dump() + " and " +
           to.dump() + "\n";
  }
  out += Format("%-32s %12s %12s %9s\n", "", "first", "second", "change");
  for (const Row& row : kRows) {
    const auto from = Figure(before, row);
    const auto to = Figure(after, row);
    if (!from || !to) continue;
    const std::string change =
        *from != 0 ? Format("%+.1f %%", 100 * (*to - *from) / *from) : "";
    out += Format("%-32s %12.3f %12.3f %9s  %s\n", row.title, *from, *to,
                  change.c_str(), Judge(before, after, row, *from, *to));
  }
  return out;
}

}  // namespace millrace::loadtest
