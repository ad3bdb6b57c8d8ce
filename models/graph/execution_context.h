// What runs a compiled graph: a team of cores, memory for the values between
// steps, and where each value lies during a run. Each instance of a model has a
// context of its own; weights and plans belong to the CompiledGraph, which
// contexts share and keep alive.
//
//   auto context = ExecutionContext::Create(compiled, {.cpus = {0, 1}});
//   ASSIGN_OR_RETURN(auto outputs, context->Run(inputs));
//
// Run and MeasureRoofline: one thread at a time, always the same (it becomes
// worker 0 of the team). RunIfTiny: any thread, but only one at a time, and
// none beside Run. Two contexts run at the same time. Facts of the graph may be
// asked for from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/topology.h"
#include "models/graph/batch_axis.h"
#include "models/graph/compiled_graph.h"
#include "models/graph/ir.h"
#include "models/graph/roofline.h"
#include "models/graph/stop_check.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

struct ContextOptions {
  config::CpuSet cpus = {};  // empty: one worker, not pinned
  // What lives between steps, and the results, of one run may take so many
  // bytes; 0: no limit. Run answers RESOURCE_EXHAUSTED beyond.
  int64_t max_bytes = 0;
};

struct RunOptions {
  StopCheck stopped = nullptr;
  // When each step ran: without steps when the graph was interpreted; rows are
  // never apart then.
  Trace* trace = nullptr;
};

class ExecutionContext {
 public:
  static std::unique_ptr<ExecutionContext> Create(
      std::shared_ptr<CompiledGraph> graph, const ContextOptions& options);
  virtual ~ExecutionContext() = default;

  // Inputs and outputs in the order of the ports. INVALID_ARGUMENT names the
  // input whose type or size does not fit, and what would.
  virtual StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                            const RunOptions& options = {}) = 0;
  // As Run, on the calling thread alone, where the graph touches a few KiB and
  // its plan for these sizes is there; else false, and Run has to do it. The
  // inputs fit the ports.
  virtual bool RunIfTiny(const std::vector<Tensor>&,
                         StatusOr<std::vector<Tensor>>*) {
    return false;
  }

  // What this team could do at best, measured now (some 50 ms).
  virtual StatusOr<TeamRoofline> MeasureRoofline() = 0;

  // The graph that it runs, for further contexts of it.
  virtual const std::shared_ptr<CompiledGraph>& compiled_graph() const = 0;

  // ---- facts of the graph ----
  virtual const std::vector<Port>& inputs() const = 0;
  virtual const std::vector<Port>& outputs() const = 0;
  virtual const std::vector<Symbol>& symbols() const = 0;
  virtual const BatchAxis& batch_axis() const = 0;

  // What the last Run used, one line a step; empty when it was interpreted.
  virtual std::string PlanText() const = 0;
  // Where its operators ran; zeros where no device was asked for.
  virtual DeviceCounts device_counts() const { return {}; }
  // What lies between the steps of that run at most; 0 when it was interpreted.
  virtual int64_t ArenaBytes() const = 0;
};

// For a caller that wants one context alone: compiles the graph for it. The
// memory of packed weights is made ready on the context's CPUs.
struct InstanceOptions : CompileOptions, ContextOptions {};
StatusOr<std::unique_ptr<ExecutionContext>> CreateInstance(
    Graph graph, const InstanceOptions& options);

}  // namespace millrace::models::graph
