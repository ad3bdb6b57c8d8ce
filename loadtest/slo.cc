// The grammar is metric:statistic:limit, separated by commas. The words are
// those that genai-perf and aiperf users know, in short and in long form.
#include "loadtest/slo.h"

#include <cmath>
#include <cstdlib>
#include <optional>

namespace millrace::loadtest {
namespace {

std::vector<std::string_view> Split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> Number(std::string_view text) {
  const std::string copy(text);
  if (copy.empty() || copy.find_first_not_of("0123456789.") != copy.npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return std::nullopt;
  return value;
}

std::optional<Metric> MetricOf(std::string_view word) {
  if (word == "ttft" || word == "time_to_first_token") return Metric::kTtft;
  if (word == "itl" || word == "inter_token_latency") return Metric::kItl;
  if (word == "tpot" || word == "time_per_output_token") return Metric::kTpot;
  if (word == "latency" || word == "request_latency") return Metric::kLatency;
  return std::nullopt;
}

std::optional<double> PercentileOf(std::string_view word) {
  if (word == "mean" || word == "avg") return -1;
  if (word == "max") return 100;
  if (word.size() < 2 || word[0] != 'p') return std::nullopt;
  const std::optional<double> value = Number(word.substr(1));
  if (!value || *value <= 0 || *value > 100) return std::nullopt;
  return value;
}

}  // namespace

std::string_view MetricName(Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return "ttft";
    case Metric::kItl:
      return "itl";
    case Metric::kTpot:
      return "tpot";
    case Metric::kLatency:
      return "latency";
  }
  return "";
}

StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  static constexpr struct {
    std::string_view name;
    double nanoseconds;
  } kUnits[] = {{"ns", 1},  {"us", 1e3}, {"ms", 1e6},
                {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  const size_t digits =
      std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> value = Number(text.substr(0, digits));
  for (const auto& unit : kUnits) {
    if (!value || text.substr(digits) != unit.name) continue;
    const double nanoseconds = *value * unit.nanoseconds;
    if (nanoseconds > 365.0 * 24 * 3600e9) break;
    return std::chrono::nanoseconds(std::llround(nanoseconds));
  }
  return InvalidArgument("'" + std::string(text) +
                         "' is no duration; write a number with its unit, as "
                         "in 500us, 20ms, 1.5s, 3m or 1h");
}

StatusOr<Slo> ParseSlo(std::string_view text) {
  Slo slo;
  for (const std::string_view part : Split(text, ',')) {
    const std::vector<std::string_view> words = Split(part, ':');
    const std::string quoted = "'" + std::string(part) + "'";
    if (words.size() != 3) {
      return InvalidArgument(quoted +
                             " is no objective; write metric:statistic:limit, "
                             "as in ttft:p99:500ms");
    }
    const std::optional<Metric> metric = MetricOf(words[0]);
    if (!metric) {
      return InvalidArgument("the objective " + quoted + " names '" +
                             std::string(words[0]) +
                             "'; metrics are ttft, itl, tpot and latency");
    }
    const std::optional<double> percentile = PercentileOf(words[1]);
    if (!percentile) {
      return InvalidArgument("the objective " + quoted + " names '" +
                             std::string(words[1]) +
                             "'; statistics are mean, max, and p50, p99, p99.9 "
                             "and the like");
    }
    ASSIGN_OR_RETURN(const auto limit, ParseDuration(words[2]));
    slo.push_back({*metric, std::string(words[1]), *percentile, limit});
  }
  return slo;
}

bool MeetsSlo(const Slo& slo, std::chrono::nanoseconds ttft,
              std::chrono::nanoseconds tpot, std::chrono::nanoseconds latency) {
  for (const Objective& objective : slo) {
    switch (objective.metric) {
      case Metric::kTtft:
        if (ttft > objective.limit) return false;
        break;
      case Metric::kItl:
      case Metric::kTpot:
        if (tpot > objective.limit) return false;
        break;
      case Metric::kLatency:
        if (latency > objective.limit) return false;
        break;
    }
  }
  return true;
}

}  // namespace millrace::loadtest
