// A graph made ready to run on one team of cores: the door of the graph runtime
// for the scheduler and the tools.
//
//   ASSIGN_OR_RETURN(auto executor, Executor::Create(std::move(graph), {}));
//   ASSIGN_OR_RETURN(auto outputs, executor->Run(inputs));
//
// Everything that depends on the sizes of the inputs (shapes, memory, kernels)
// is decided once for each set of sizes and kept: the first request of new
// sizes pays for it. Graphs whose shapes depend on their data are interpreted.
//
// Run: one thread at a time, always the same (it becomes worker 0 of the team).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/topology.h"
#include "models/graph/ir.h"
#include "models/graph/peaks.h"
#include "models/graph/quantize/table.h"
#include "models/graph/stop_check.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

enum class Precision {
  kF32,
  // Attention and layers with constant weights round the factors of their
  // products to bf16 where the CPU has products of it (AVX-512 BF16, AMX), and
  // add in f32. Elsewhere, and in graphs that are interpreted: f32.
  kBf16,
};

// Whether kBf16 is more than a wish, with these options' `isa`.
bool HasBf16(const std::string& isa);

struct ExecutorOptions {
  config::CpuSet cpus = {};  // empty: one worker, not pinned
  // Kernels of another instruction set than the best one; empty: the best.
  std::string isa = "";
  // Sets of input sizes kept ready; the least recently used one goes.
  int32_t max_plans = 32;
  // What lives between steps, and the results, of one run may take so many
  // bytes; 0: no limit. Run answers RESOURCE_EXHAUSTED beyond.
  int64_t max_bytes = 0;
  // Batches whose rows are independent and move more than the weights may be
  // computed a row at a time: the same bits, less memory, warmer caches.
  bool rows_apart = true;
  Precision precision = Precision::kF32;
  // What only layers in bf16 read is kept in bf16 between them; else rounded
  // and kept in f32: the same bits.
  bool keep_bf16 = true;
  // What a Concat would copy is made side by side where the steps that make it
  // can do so: the same bits.
  bool joins = true;
  // Layers that stay in f32, by the names that a QuantizationTable has for
  // them.
  std::vector<std::string> f32_layers = {};
  // Layers to be quantised; null: none but those that the graph quantises
  // itself.
  std::shared_ptr<const QuantizationTable> quantization = nullptr;
  // Interprets always: the reference that plans are tested against.
  bool interpret = false;
};

struct RunOptions {
  StopCheck stopped = nullptr;
  // When each step ran: without steps when the graph was interpreted; rows are
  // never apart then.
  Trace* trace = nullptr;
};

class Executor {
 public:
  // Errors name the node.
  static StatusOr<std::unique_ptr<Executor>> Create(
      Graph graph, const ExecutorOptions& options);
  virtual ~Executor() = default;

  // Inputs and outputs in the order of the ports. INVALID_ARGUMENT names the
  // input whose type or size does not fit, and what would.
  virtual StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                            const RunOptions& options = {}) = 0;

  // What this team could do at best, measured now (some 50 ms). Same thread as
  // Run.
  virtual StatusOr<TeamPeaks> MeasurePeaks() = 0;

  virtual const std::vector<Port>& inputs() const = 0;
  virtual const std::vector<Port>& outputs() const = 0;
  virtual const std::vector<Symbol>& symbols() const = 0;

  // What the last Run used, one line a step; empty when it was interpreted.
  virtual std::string PlanText() const = 0;
  // What lies between the steps of that run at most; 0 when it was interpreted.
  virtual int64_t ArenaBytes() const = 0;
};

// What an input of this port must be, for messages: "FP32 [batch, 3, 224]".
std::string PortText(const Port& port, const std::vector<Symbol>& symbols);
// INVALID_ARGUMENT when types or sizes do not fit the ports or, taken together,
// a symbol would have two sizes or one outside of its range.
Status CheckInputs(const std::vector<Port>& ports,
                   const std::vector<Symbol>& symbols,
                   const std::vector<Tensor>& inputs);

}  // namespace millrace::models::graph
