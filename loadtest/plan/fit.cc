#include "loadtest/plan/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;
using Prices = std::array<double, 3>;  // base, prefill token, decode sequence

constexpr double kNsPerMs = 1e6;
// Fewer tokens a chunk are no draft tokens: text that is held back to its next
// letter joins chunks, too.
constexpr double kLeastDrafts = 1.1;

struct Equation {
  Prices factors;
  double value = 0;  // ms
};

// Of a request's time, what its tokens after the first take.
double DecodingShare(const FitPoint& point) {
  const double decoding_ms =
      std::max(0.0, point.output_tokens - 1) * point.tpot_ms;
  return point.latency_ms > 0 ? std::min(1.0, decoding_ms / point.latency_ms)
                              : 1;
}

// Means over the gaps of a request: of a step, the prompt tokens of others and
// the sequences that decode.
Prices TpotFactors(const FitPoint& point) {
  const double others =
      std::max(0.0, point.concurrency - (point.closed_loop ? 1 : 0));
  const double of_others =
      point.concurrency > 0 ? others / point.concurrency : 0;
  const double step_ms = point.tokens_per_step * point.tpot_ms;
  const double per_step = point.request_rate * step_ms / 1000;
  return {1, point.input_tokens * per_step * of_others,
          point.tokens_per_step * (1 + others * DecodingShare(point))};
}

// Gaussian elimination of the normal equations of the chosen columns; nothing
// where they do not determine the prices.
std::optional<Prices> Solve(const std::vector<Equation>& equations,
                            unsigned columns) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < 3; ++i) {
    if ((columns >> i & 1) != 0) chosen.push_back(i);
  }
  const size_t n = chosen.size();
  std::array<std::array<double, 4>, 3> m = {};
  for (const Equation& equation : equations) {
    const double weight = 1 / (equation.value * equation.value);
    for (size_t r = 0; r < n; ++r) {
      const double left = equation.factors[chosen[r]] * weight;
      for (size_t c = 0; c < n; ++c) {
        m[r][c] += left * equation.factors[chosen[c]];
      }
      m[r][3] += left * equation.value;
    }
  }
  std::array<double, 3> scale = {};
  for (size_t i = 0; i < n; ++i) scale[i] = m[i][i];
  for (size_t i = 0; i < n; ++i) {
    if (m[i][i] <= 1e-9 * scale[i] || scale[i] <= 0) return std::nullopt;
    for (size_t r = i + 1; r < n; ++r) {
      const double factor = m[r][i] / m[i][i];
      for (size_t c = i; c < 4; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  std::array<double, 3> found = {};
  for (size_t i = n; i-- > 0;) {
    double value = m[i][3];
    for (size_t c = i + 1; c < n; ++c) value -= m[i][c] * found[c];
    found[i] = value / m[i][i];
    if (found[i] < 0) return std::nullopt;
  }
  Prices prices = {};
  for (size_t i = 0; i < n; ++i) prices[chosen[i]] = found[i];
  return prices;
}

double Dot(const Prices& a, const Prices& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

double SquaredError(const std::vector<Equation>& equations,
                    const Prices& prices) {
  double sum = 0;
  for (const Equation& equation : equations) {
    const double error = Dot(equation.factors, prices) / equation.value - 1;
    sum += error * error;
  }
  return sum;
}

// A number by path; nothing where there is none.
std::optional<double> Number(const Json& json, const char* key,
                             const char* inner = nullptr) {
  const auto at = json.find(key);
  if (at == json.end()) return std::nullopt;
  if (inner != nullptr) {
    if (!at->is_object()) return std::nullopt;
    return Number(*at, inner);
  }
  if (!at->is_number()) return std::nullopt;
  return at->get<double>();
}

}  // namespace

StatusOr<FitPoint> FitPointOf(std::string_view report_json) {
  const Json json = Json::parse(report_json, nullptr, false);
  if (!json.is_object() ||
      json.value("format", Json()) != "millrace-loadtest/1") {
    return InvalidArgument(
        "this is no report of millrace-loadtest --json (a sweep's file is "
        "none: give one report a load)");
  }
  const auto ttft = Number(json, "time_to_first_token_ms", "p50");
  const auto tpot = Number(json, "time_per_output_token_ms", "mean");
  const auto latency = Number(json, "request_latency_ms", "mean");
  const auto rate = Number(json, "request_throughput");
  if (!ttft || !tpot || !latency || !rate || *tpot <= 0 || *ttft <= 0) {
    return InvalidArgument(
        "the report has no times of tokens; measure with --streaming and "
        "several output tokens");
  }
  FitPoint point;
  point.ttft_ms = *ttft;
  point.tpot_ms = *tpot;
  point.latency_ms = *latency;
  point.request_rate = *rate;
  point.input_tokens = Number(json, "input_tokens", "mean").value_or(1);
  point.input_std = Number(json, "input_tokens", "std").value_or(0);
  point.output_tokens = Number(json, "output_tokens", "mean").value_or(1);
  point.output_std = Number(json, "output_tokens", "std").value_or(0);
  point.outside_ms = Number(json, "before_prefill_ms", "p50").value_or(-1);
  const double streams = Number(json, "output_tokens", "count").value_or(0);
  const double gaps =
      Number(json, "inter_token_latency_ms", "count").value_or(0);
  if (gaps > 0) {
    const double tokens = (point.output_tokens - 1) * streams / gaps;
    if (tokens > kLeastDrafts) point.tokens_per_step = tokens;
  }
  const auto concurrency = Number(json, "concurrency");
  point.closed_loop = concurrency.has_value();
  point.concurrency = concurrency.value_or(*rate * *latency / 1000);
  return point;
}

double DecodingSequences(const FitPoint& point) {
  return point.concurrency * DecodingShare(point);
}

double PredictedTpotMs(const ServerModel& model, const FitPoint& point) {
  return Dot(TpotFactors(point), {model.step_base_ns, model.prefill_token_ns,
                                  model.decode_sequence_ns}) /
         kNsPerMs / point.tokens_per_step;
}

StatusOr<ServerModel> FitServerModel(const std::vector<FitPoint>& points,
                                     const ServerModel& limits) {
  std::vector<Equation> equations;
  for (const FitPoint& point : points) {
    equations.push_back(
        {TpotFactors(point), point.tokens_per_step * point.tpot_ms});
    if (!point.closed_loop || point.concurrency > 1) continue;
    const double steps =
        std::ceil(point.input_tokens /
                  static_cast<double>(limits.max_num_batched_tokens));
    equations.push_back(
        {{std::max(1.0, steps), point.input_tokens, 0}, point.ttft_ms});
  }
  // All subsets of the prices, small ones first: a price that the points do
  // not need is 0.
  std::optional<Prices> best;
  double least = 0;
  for (const unsigned columns : {1U, 3U, 5U, 7U, 2U, 4U, 6U}) {
    const auto prices = Solve(equations, columns);
    if (!prices) continue;
    const double error = SquaredError(equations, *prices);
    if (best && error >= least - 1e-9) continue;
    best = prices;
    least = error;
  }
  if (!best) {
    return FailedPrecondition(
        "no step prices fit; measure at concurrency 1 and at a few higher "
        "ones");
  }
  ServerModel model = limits;
  model.step_base_ns = (*best)[0] * kNsPerMs;
  model.prefill_token_ns = (*best)[1] * kNsPerMs;
  model.decode_sequence_ns = (*best)[2] * kNsPerMs;
  return model;
}

}  // namespace millrace::loadtest
