// Which layers of a graph oneDNN computes, measured on this machine before the
// graph serves.
//
//   ASSIGN_OR_RETURN(BackendChoice choice,
//                    ChooseBackend(graph, options, samples, 1e-4));
//   options.onednn = choice.use;
//
// The graph is compiled once with our kernels and once with oneDNN's wherever
// it has some, and both run the samples by turns. Layers of one shape go to
// oneDNN where that made them 5 % faster; layers whose rows would depend on
// their neighbours are not asked for. At last the graph as chosen runs beside
// our kernels alone: it stays chosen where it is faster as a whole and its
// results are as near as asked.
//
// What it costs at load: four compilations, one after the other, and runs for
// kMostMeasuring altogether, or three of each where one takes longer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "models/graph/execution_context.h"
#include "models/graph/plan/onednn_layers.h"
#include "models/graph/quantize/compare.h"

namespace millrace::models::graph {

inline constexpr std::chrono::milliseconds kMostMeasuring(2000);

struct BackendChoice {
  OneDnnUse use;
  int64_t possible = 0;  // shapes of layers that oneDNN could compute
  // One run of all samples, medians: our kernels alone, and as chosen.
  double millrace_ms = 0;
  double chosen_ms = 0;
  double error = 0;  // of the results as chosen, as ErrorOf has it
};

// `options` say everything but `onednn`. FAILED_PRECONDITION: no oneDNN here.
StatusOr<BackendChoice> ChooseBackend(const Graph& graph,
                                      const InstanceOptions& options,
                                      const TensorSets& samples,
                                      double max_error);

}  // namespace millrace::models::graph
