// Everything decided for one set of input sizes: the steps, and where each
// value lies while they run.
//
// Reshapes and the like cost nothing: their results are other names of the same
// storage. Results of the graph are written where the caller wants them.
//
// Run: one thread at a time, which is worker 0 of the pool. A barrier stands
// between two stages, which are steps that need not wait for each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/ir.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/stages.h"
#include "models/graph/plan/step.h"
#include "models/graph/stop_check.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

class Plan {
 public:
  // `graph` is settled and optimised for these sizes: every value has a type.
  // `joins`: what a Concat joins is made side by side where it can be.
  // `packed` lives as long as the plan.
  static StatusOr<std::unique_ptr<Plan>> Create(const Graph& graph,
                                                int num_members,
                                                const Kernels& kernels,
                                                bool joins,
                                                PackedWeights& packed);

  // The memory that Run needs for what lives between steps, whole lines of 64
  // bytes.
  int64_t arena_bytes() const { return arena_bytes_; }
  // What all steps read of constants, and what they move besides.
  double constant_bytes() const { return constant_bytes_; }
  double value_bytes() const { return value_bytes_; }
  // `arena` has arena_bytes and is aligned to 64 bytes.
  // `trace`, if not null, is filled anew.
  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    std::byte* arena, ComputePool& pool,
                                    const StopCheck& stopped, Trace* trace);

  // ---- Run in parts, for a caller that has memory of its own ----
  // Types of the results, in the order of the ports.
  std::vector<ValueType> OutputTypes() const;
  // All are bound before a run and stay so; inputs are only read.
  void BindInput(size_t i, const std::byte* bytes);
  void BindOutput(size_t i, std::byte* bytes);
  void BindArena(std::byte* arena);
  Status RunTogether(ComputePool& pool, const StopCheck& stopped,
                     Trace* trace = nullptr);
  // By this thread alone; the plan is for one member.
  Status RunAlone(const StopCheck& stopped);

  // One line for each step.
  std::string Text() const;

 private:
  friend class PlanBuilder;
  struct Binding {
    Slot slot;
    ValueType type;
  };

  // A value that is part of another one's storage.
  struct Part {
    Slot slot;
    Slot storage;
    int64_t offset;  // in bytes
  };

  Plan() = default;
  void BindParts();
  void BeginTrace(const ComputePool& pool, Trace& trace) const;

  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<StepPlace> places_;         // of each step
  std::vector<int64_t> scratch_offsets_;  // of each step
  std::vector<int64_t> offsets_;  // of each slot in the arena; -1: elsewhere
  std::vector<std::byte*> at_;    // of each slot, during a run
  std::vector<Part> parts_;
  std::vector<Slot> inputs_;
  std::vector<Binding> outputs_;
  std::vector<std::shared_ptr<const Tensor>> constants_;  // kept alive
  std::byte* arena_ = nullptr;
  int64_t arena_bytes_ = 0;
  double constant_bytes_ = 0;
  double value_bytes_ = 0;
};

}  // namespace millrace::models::graph
