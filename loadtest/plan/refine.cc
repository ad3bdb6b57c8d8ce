#include "loadtest/plan/refine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <random>
#include <utility>

#include "loadtest/plan/lengths.h"
#include "loadtest/plan/replica.h"

namespace millrace::loadtest {
namespace {

// step_base, prefill_token, decode_sequence, and prompt_step or
// request_overhead.
constexpr int kPrices = 4;
constexpr int kEvaluations = 300;
constexpr double kNsPerMs = 1e6;
// Of the first token's time, where the search begins: from next to nothing a
// logarithm would not come back.
constexpr double kLeastRest = 0.05;
// Of each user: all of them begin at once, which is no steady state yet.
constexpr int64_t kWarmRequests = 4;

// Prices as logarithms, so that none becomes negative.
using Point = std::array<double, kPrices>;

ServerModel With(const ServerModel& start, bool told, const Point& at) {
  ServerModel model = start;
  model.step_base_ns = std::exp(at[0]);
  model.prefill_token_ns = std::exp(at[1]);
  model.decode_sequence_ns = std::exp(at[2]);
  if (told) {
    model.prompt_step_ns = std::exp(at[3]);
  } else {
    model.request_overhead_ns = std::llround(std::exp(at[3]));
  }
  return model;
}

// Users and the times of their requests, as the replica reports them.
class Users final : public SimSink {
 public:
  Users(const ServerModel& model, int64_t num_users,
        std::vector<SimRequest>* requests)
      : overhead_(model.request_overhead_ns),
        num_warm_(static_cast<uint32_t>(kWarmRequests * num_users)),
        requests_(*requests) {
    first_.assign(requests_.size(), -1);
  }

  // Requests that are to be sent, and when.
  std::priority_queue<std::pair<Ns, uint32_t>,
                      std::vector<std::pair<Ns, uint32_t>>, std::greater<>>
      due;
  uint32_t next = 0;

  void SendNext(Ns now) {
    if (next < requests_.size()) due.emplace(now, next++);
  }
  void FirstToken(uint32_t request, Ns now) override {
    first_[request] = now + overhead_;
  }
  void Gaps(Ns, int64_t) override {}
  void Done(uint32_t request, Ns now) override {
    now += overhead_;
    if (request >= num_warm_) {
      ++num_done;
      ttfts.push_back(first_[request] - requests_[request].arrival);
      const int64_t more = requests_[request].output_tokens - 1;
      if (more > 0) {
        tpot_ns += static_cast<double>(now - first_[request]) /
                   static_cast<double>(more);
      }
    }
    SendNext(now);
  }
  void Refused(uint32_t) override {}

  int64_t num_done = 0;
  std::vector<Ns> ttfts;
  double tpot_ns = 0;

 private:
  const Ns overhead_;
  const uint32_t num_warm_;
  std::vector<SimRequest>& requests_;
  std::vector<Ns> first_;
};

}  // namespace

double ClosedLoopError(const std::vector<FitPoint>& points,
                       const ServerModel& model) {
  double sum = 0;
  for (const FitPoint& point : points) {
    if (!point.closed_loop || point.output_tokens <= 1) continue;
    const ClosedLoopTimes times = SimulateClosedLoop(model, point);
    const double ttft = times.ttft_ms / point.ttft_ms - 1;
    const double tpot = times.tpot_ms / point.tpot_ms - 1;
    // The more users, the more chance is in their times.
    sum += (ttft * ttft + tpot * tpot) / std::max(1.0, point.concurrency);
  }
  return sum;
}

ClosedLoopTimes SimulateClosedLoop(const ServerModel& of_all,
                                   const FitPoint& point) {
  ServerModel model = of_all;
  model.tokens_per_step = {{1, point.tokens_per_step}};
  const auto users = std::max<int64_t>(
      1, static_cast<int64_t>(std::llround(point.concurrency)));
  // Were all as long as each other, users would stay in step with each other.
  std::mt19937_64 random(0);
  Lengths inputs({point.input_tokens, point.input_std}, &random);
  Lengths outputs({point.output_tokens, point.output_std}, &random);
  std::vector<SimRequest> requests(
      static_cast<size_t>(std::max<int64_t>(500, 40 * users)));
  for (SimRequest& request : requests) {
    request.input_tokens = inputs.Next();
    request.output_tokens = outputs.Next();
  }
  Users sink(model, users, &requests);
  const auto replica = MakeReplica(model, requests, 0, sink);
  for (int64_t i = 0; i < users; ++i) sink.SendNext(0);
  while (true) {
    const Ns sent = sink.due.empty() ? kNever : sink.due.top().first;
    const Ns runs = replica->next();
    if (sent == kNever && runs == kNever) break;
    if (runs <= sent) {
      replica->Run(runs);
      continue;
    }
    const uint32_t index = sink.due.top().second;
    sink.due.pop();
    requests[index].arrival = sent;
    replica->Add(index, sent);
  }
  ClosedLoopTimes times;
  if (sink.num_done == 0) return times;
  const auto count = static_cast<double>(sink.num_done);
  const auto middle =
      sink.ttfts.begin() + static_cast<ptrdiff_t>(sink.ttfts.size() / 2);
  std::nth_element(sink.ttfts.begin(), middle, sink.ttfts.end());
  times.ttft_ms = static_cast<double>(*middle) / kNsPerMs;
  times.tpot_ms = sink.tpot_ns / count / kNsPerMs;
  return times;
}

ServerModel RefineServerModel(const std::vector<FitPoint>& all,
                              const ServerModel& begin) {
  ServerModel start = begin;
  std::vector<FitPoint> points;
  for (const FitPoint& point : all) {
    if (point.closed_loop && point.output_tokens > 1) points.push_back(point);
  }
  // Four prices want as many equations: each load gives two.
  if (points.size() < 2) return start;
  // What the lightest load shows beyond its steps. The server may tell what
  // part of it is outside of them; the rest is work of its engine, which others
  // wait for.
  const FitPoint& lone = *std::min_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) {
        return a.concurrency < b.concurrency;
      });
  double outside_ms = lone.outside_ms;
  for (const FitPoint& point : points) {
    if (point.concurrency <= lone.concurrency && point.outside_ms >= 0) {
      outside_ms = std::min(outside_ms, point.outside_ms);
    }
  }
  const bool told = outside_ms >= 0;
  const double least = 1000;  // ns; a price of 0 could not grow
  start.request_overhead_ns = 0;
  start.prompt_step_ns = 0;
  const double rest_ns =
      kNsPerMs *
      std::max(kLeastRest * lone.ttft_ms,
               lone.ttft_ms - SimulateClosedLoop(start, lone).ttft_ms);
  if (told) start.request_overhead_ns = std::llround(outside_ms * kNsPerMs);
  const auto log = [&](double ns) { return std::log(std::max(ns, least)); };
  Point first = {log(start.step_base_ns), log(start.prefill_token_ns),
                 log(start.decode_sequence_ns), log(rest_ns)};
  using Vertex = std::pair<double, Point>;
  const auto evaluate = [&](const Point& at) {
    return Vertex(ClosedLoopError(points, With(start, told, at)), at);
  };
  std::vector<Vertex> simplex = {evaluate(first)};
  for (size_t i = 0; i < kPrices; ++i) {
    Point moved = first;
    moved[i] += 0.4;
    simplex.push_back(evaluate(moved));
  }
  for (int i = 0; i < kEvaluations; ++i) {
    std::sort(simplex.begin(), simplex.end());
    Point center = {};
    for (size_t v = 0; v < kPrices; ++v) {
      for (size_t k = 0; k < kPrices; ++k) {
        center[k] += simplex[v].second[k] / kPrices;
      }
    }
    const auto along = [&](double factor) {
      Point at;
      for (size_t k = 0; k < kPrices; ++k) {
        at[k] = center[k] + factor * (simplex.back().second[k] - center[k]);
      }
      return evaluate(at);
    };
    const Vertex reflected = along(-1);
    if (reflected.first < simplex.front().first) {
      const Vertex expanded = along(-2);
      simplex.back() = std::min(expanded, reflected);
    } else if (reflected.first < simplex[kPrices - 1].first) {
      simplex.back() = reflected;
    } else {
      const Vertex contracted = along(0.5);
      if (contracted.first < simplex.back().first) {
        simplex.back() = contracted;
      } else {
        for (size_t v = 1; v <= kPrices; ++v) {
          Point at = simplex[v].second;
          for (size_t k = 0; k < kPrices; ++k) {
            at[k] = (at[k] + simplex.front().second[k]) / 2;
          }
          simplex[v] = evaluate(at);
        }
      }
    }
  }
  const auto best = std::min_element(simplex.begin(), simplex.end());
  return With(start, told, best->second);
}

}  // namespace millrace::loadtest
