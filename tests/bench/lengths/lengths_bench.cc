// What a length that was not seen before costs a graph.
//
//   lengths_bench MODEL [THREADS [COUNT [MOST]]]
//
// COUNT random lengths of 1 to MOST (200, 512) go through the model, one row
// each, after one request that packs the weights; then the same lengths again.
// Every dimension that varies takes the length, but for that of the batch. Also
// printed: the time that a plan alone takes to make, of the same lengths.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"

namespace {

using namespace millrace;
using namespace millrace::models::graph;
using Clock = std::chrono::steady_clock;

template <typename T>
T OrExit(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin)
      .count();
}

std::vector<models::Tensor> InputsOf(const CompiledGraph& graph,
                                     int64_t length) {
  std::map<std::string, int64_t> sizes;
  for (const Port& port : graph.inputs()) {
    for (size_t i = 1; i < port.dims.size(); ++i) {
      const int32_t symbol = port.dims[i].symbol;
      if (symbol < 0) continue;
      const Symbol& range = graph.symbols()[static_cast<size_t>(symbol)];
      sizes[range.name] = std::clamp(length, range.min, range.max);
    }
  }
  return OrExit(SampleInputs(graph.inputs(), graph.symbols(),
                             {.sizes = std::move(sizes)}));
}

// Milliseconds for all lengths, a request each.
double RunAll(ExecutionContext& context, const CompiledGraph& graph,
              const std::vector<int64_t>& lengths) {
  double ms = 0;
  for (const int64_t length : lengths) {
    const auto inputs = InputsOf(graph, length);
    const Clock::time_point begin = Clock::now();
    OrExit(context.Run(inputs));
    ms += MsSince(begin);
  }
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "lengths_bench MODEL [THREADS [COUNT [MOST]]]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const int count = argc > 3 ? std::atoi(argv[3]) : 200;
  const int64_t most = argc > 4 ? std::atoi(argv[4]) : 512;
  config::CpuSet cpus;
  for (int i = 0; i < threads; ++i) cpus.push_back(i);

  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> any(1, most);
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(any(random));
  const auto different =
      std::set<int64_t>(lengths.begin(), lengths.end()).size();

  const auto compile = [&] {
    return OrExit(CompiledGraph::Create(OrExit(ImportGraph(argv[1], nullptr)),
                                        {.weight_cpus = cpus}));
  };
  const auto graph = compile();
  const auto context = ExecutionContext::Create(graph, {.cpus = cpus});
  OrExit(context->Run(InputsOf(*graph, most)));
  const double unseen = RunAll(*context, *graph, lengths);
  const double seen = RunAll(*context, *graph, lengths);

  // Plans alone, in a graph of their own.
  const auto other = compile();
  models::ComputePool pool(cpus, "bench");
  OrExit(other->PlanFor(InputsOf(*other, most), false, pool));
  std::vector<double> plan_ms;
  for (const int64_t length : lengths) {
    const auto inputs = InputsOf(*other, length);
    const Clock::time_point begin = Clock::now();
    OrExit(other->PlanFor(inputs, false, pool));
    plan_ms.push_back(MsSince(begin));
  }
  std::nth_element(plan_ms.begin(), plan_ms.begin() + count / 2, plan_ms.end());
  std::printf(
      "%s: %d lengths, %zu different, %d threads\n"
      "  unseen %.3f ms, seen %.3f ms each: ratio %.3f\n"
      "  a plan alone: median %.3f ms\n"
      "  packed weights %.1f MB\n",
      argv[1], count, different, threads, unseen / count, seen / count,
      unseen / seen, plan_ms[static_cast<size_t>(count / 2)],
      static_cast<double>(graph->packed_bytes()) / 1e6);
  return 0;
}
