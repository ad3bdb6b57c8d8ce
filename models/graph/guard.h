// Accuracy check: a graph at reduced precision is compared with itself in f32
// before it serves.
//
//   ASSIGN_OR_RETURN(Guarded guarded,
//                    CreateGuarded(std::move(graph), options, samples, 0.1));
//   // guarded.context serves; guarded.report says what was reduced.
//
// Where the results on the samples are further from those in f32 than allowed,
// the layers that cost most alone go back to f32, as few as will do. A graph
// that bf16 makes slower, on this machine and on these samples, stays in f32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/device.h"
#include "models/graph/execution_context.h"
#include "models/graph/quantize/compare.h"

namespace millrace::models::graph {

struct PrecisionReport {
  int64_t layers = 0;                   // that could be reduced
  std::vector<std::string> f32_layers;  // of them, those that stay in f32
  double asked_error = 0;               // as the options asked for it
  double error = 0;                     // as it is now
  // Of bf16: one run of all samples at best, in f32 and as it was asked for or,
  // if that was too far off, as the layers in f32 left it.
  double f32_ms = 0;
  double reduced_ms = 0;
  bool too_slow = false;  // so the whole graph stays in f32
};

// Milliseconds that the context takes for all samples.
using Stopwatch =
    std::function<StatusOr<double>(ExecutionContext&, const TensorSets&)>;
// The least of a few runs, so that what else the machine does counts little:
// some tenths of a second.
StatusOr<double> LeastMs(ExecutionContext& context, const TensorSets& samples);

// A device, which belongs to one graph: asked for each that is compiled. In
// f32: the one that others are held against.
using DeviceOpener =
    std::function<StatusOr<std::shared_ptr<GraphDevice>>(bool in_f32)>;

struct Guarded {
  std::shared_ptr<CompiledGraph> graph;
  std::unique_ptr<ExecutionContext> context;  // of it; has run the samples
  PrecisionReport report;
  InstanceOptions options;  // that the graph was compiled by at last
};

// `options` ask for bf16, or for int8 by a quantisation table. The table has
// each layer's error, which gives the order in which layers go back to f32. For
// bf16 each layer is tried alone to find it: one context for each layer, one
// after the other. `max_error` is as ErrorOf has it. One sample at least. Runs
// on the devices of `opener`; none: on the cores.
StatusOr<Guarded> CreateGuarded(const Graph& graph,
                                const InstanceOptions& options,
                                const TensorSets& samples, double max_error,
                                const Stopwatch& stopwatch = LeastMs,
                                const DeviceOpener& opener = nullptr);

}  // namespace millrace::models::graph
