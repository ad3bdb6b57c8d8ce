// A graph made ready to run: optimised, with its weights packed and its plans
// kept. What runs it is an ExecutionContext; several of them share one
// CompiledGraph and so one copy of the weights and of the plans.
//
//   ASSIGN_OR_RETURN(auto graph, CompiledGraph::Create(std::move(ir), {}));
//   auto a = ExecutionContext::Create(graph, {.cpus = {0, 1}});
//   auto b = ExecutionContext::Create(graph, {.cpus = {2, 3}});
//
// Everything that depends on the sizes of the inputs (shapes, memory, kernels)
// is decided once for each set of sizes and each size of team, and kept: the
// first request of new sizes pays for it. Weights are packed by the first plan
// that reads them. Graphs whose shapes depend on their data are interpreted.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/topology.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/batch_axis.h"
#include "models/graph/device.h"
#include "models/graph/ir.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/onednn_layers.h"
#include "models/graph/plan_cache.h"
#include "models/graph/quantize/table.h"
#include "models/memory/warm_buffer.h"

namespace millrace::models::graph {

enum class Precision {
  kF32,
  // Attention and layers with constant weights round the factors of their
  // products to bf16 where the CPU has products of it (AVX-512 BF16, AMX), and
  // add in f32. Elsewhere, and in graphs that are interpreted: f32.
  kBf16,
};

// Whether the kernels of this `isa` have products of bf16.
bool HasBf16(const std::string& isa);

struct CompileOptions {
  // CPUs of the first context: memory for packed weights is made ready in the
  // background on them. Empty: it comes when it is first written.
  config::CpuSet weight_cpus = {};
  // Kernels of another instruction set than the best one; empty: the best.
  std::string isa = "";
  // Plans of all input sizes together may hold so many bytes; beyond, those
  // that were not used for the longest time are dropped and made again when
  // their sizes come back.
  int64_t max_plan_bytes = int64_t{1} << 30;
  // Batches whose rows are independent and move more than the weights may be
  // computed a row at a time: the same bits, less memory, warmer caches.
  bool rows_apart = true;
  // Graphs that touch a few KiB run on the calling thread alone: the same bits,
  // and no waiting for a team. Servers want it; off, so that the work of small
  // graphs, too, is split as that of large ones.
  bool tiny_alone = false;
  Precision precision = Precision::kF32;
  // Tensors that only layers in bf16 read are kept in bf16 between them; else
  // rounded and kept in f32: the same bits.
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
  // Layers that oneDNN computes on its own kernels, where it can and rows do
  // not depend on their neighbours. Their bits are others than those of our
  // kernels. FAILED_PRECONDITION where it is not installed.
  OneDnnUse onednn = {};
  // Where the graph runs, at the precision that it was opened with instead of
  // the one above; a device of this graph alone. Null: on the cores of its
  // contexts.
  std::shared_ptr<GraphDevice> device = nullptr;
  // Interprets always: the reference that plans are tested against.
  bool interpret = false;
};

class CompiledGraph {
 public:
  // Errors name the node.
  static StatusOr<std::shared_ptr<CompiledGraph>> Create(
      Graph graph, const CompileOptions& options);

  const std::vector<Port>& inputs() const { return graph_.inputs; }
  const std::vector<Port>& outputs() const { return graph_.outputs; }
  const std::vector<Symbol>& symbols() const { return graph_.symbols; }
  // Whether requests may be joined to one batch. Proven at the first call,
  // which takes some milliseconds.
  const BatchAxis& batch_axis() const;

  // Of all constants, as the graph has them.
  int64_t constant_bytes() const;
  // Of the weights that were packed so far.
  int64_t packed_bytes() const { return plans_.packed_bytes(); }

  // Of the plans that are kept now, and how many they are.
  int64_t plan_bytes() const { return plans_.plan_bytes(); }
  int64_t num_plans() const { return plans_.num_plans(); }

  // ---- for ExecutionContext ----
  const Graph& graph() const { return graph_; }
  const Kernels& kernels() const { return kernels_; }
  GraphDevice* device() const { return device_.get(); }  // null: the cores
  // For inputs that fit the ports; the other operands and the result are as of
  // PlanCache::For. The caller keeps this object alive as long as the plan.
  StatusOr<std::shared_ptr<const Prepared>> PlanFor(
      const std::vector<Tensor>& inputs, bool whole, ComputePool& pool);
  // As of PlanCache::KeptTiny.
  std::shared_ptr<const Prepared> TinyPlanFor(const std::vector<Tensor>& inputs,
                                              ComputePool& pool);

 private:
  CompiledGraph(Graph graph, const CompileOptions& options,
                const Kernels& kernels, std::unique_ptr<OneDnnLayers> onednn,
                WarmBuffer weights);

  const Graph graph_;
  const std::shared_ptr<GraphDevice> device_;   // outlives the plans
  const std::unique_ptr<OneDnnLayers> onednn_;  // of the kernels; may be null
  const Kernels kernels_;
  const bool interprets_;
  PlanCache plans_;
  mutable std::once_flag batch_axis_found_;
  mutable BatchAxis batch_axis_;  // behind the flag
};

}  // namespace millrace::models::graph
