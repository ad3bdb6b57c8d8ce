// Each instance runs on a thread of its own, as it will when it serves, and all
// of them at the same time: memory and caches are what they share.
#include "server/lifecycle/instance_choice.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

namespace millrace::server {
namespace {

using models::Tensor;
using models::graph::ExecutionContext;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kMeasured = std::chrono::milliseconds(100);
constexpr double kWorthwhile = 1.05;
constexpr int64_t kMostInstances = 256;

int64_t RowsOf(const std::vector<Tensor>& inputs) {
  if (inputs.empty() || inputs[0].shape().rank() == 0) return 1;
  return inputs[0].shape()[0];
}

// Rows a second of all contexts together; 0 when a run fails.
double Rate(const std::vector<std::unique_ptr<ExecutionContext>>& contexts,
            const std::vector<Tensor>& inputs) {
  std::atomic<size_t> num_warm = 0;
  std::atomic<int64_t> num_runs = 0;
  std::atomic<bool> failed = false;
  std::vector<double> seconds(contexts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < contexts.size(); ++i) {
    threads.emplace_back([&, i] {
      if (!contexts[i]->Run(inputs).ok()) failed.store(true);
      num_warm.fetch_add(1);
      while (num_warm.load() < contexts.size()) std::this_thread::yield();
      const auto began = SteadyClock::now();
      do {
        if (!failed.load() && !contexts[i]->Run(inputs).ok()) {
          failed.store(true);
        }
        num_runs.fetch_add(1);
      } while (!failed.load() && SteadyClock::now() - began < kMeasured);
      seconds[i] =
          std::chrono::duration<double>(SteadyClock::now() - began).count();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed.load()) return 0;
  double longest = 0;
  for (const double each : seconds) longest = std::max(longest, each);
  return static_cast<double>(num_runs.load() * RowsOf(inputs)) / longest;
}

}  // namespace

InstanceChoice ChooseInstances(
    int64_t num_cores, const std::vector<std::vector<Tensor>>& samples,
    const std::function<std::vector<std::unique_ptr<ExecutionContext>>(
        int64_t count)>& make_contexts) {
  InstanceChoice choice;
  if (num_cores <= 1 || samples.empty()) return choice;
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < num_cores && count < kMostInstances;
       count *= 2) {
    counts.push_back(count);
  }
  counts.push_back(std::min(num_cores, kMostInstances));
  double best = 0;
  for (const int64_t count : counts) {
    double logs = 0;
    for (const auto& inputs : samples) {
      // A context belongs to the thread that runs it.
      const double rate = Rate(make_contexts(count), inputs);
      if (rate <= 0) return {};
      logs += std::log(rate);
    }
    const double rows = std::exp(logs / static_cast<double>(samples.size()));
    choice.text += (choice.text.empty() ? "" : ", ") + std::to_string(count) +
                   ": " + std::to_string(std::llround(rows)) + " rows/s";
    if (rows <= best * kWorthwhile) continue;
    best = rows;
    choice.count = count;
  }
  return choice;
}

}  // namespace millrace::server
