// Everything decided for one set of input sizes: the steps, and where each
// value lies while they run.
//
// Reshapes and the like cost nothing: their results are other names of the same
// storage. Results of the graph are written where the caller says.
//
// A plan holds nothing of a run: the state of a run is in its Bindings, so
// several threads may run one plan at the same time, each with Bindings, an
// arena and a pool of its own. The calling thread is worker 0 of the pool. A
// barrier stands between two stages, which are steps that need not wait for
// each other.
//
// Immutable after Create.
#pragma once

#include <cstdint>
#include <functional>
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

// Where each value of a plan lies during a run. Kept between runs, so that
// they do not allocate.
struct Bindings {
  std::vector<std::byte*> at;     // of each slot
  std::vector<int64_t> elements;  // likewise, as of Slots; may be empty
  std::byte* arena = nullptr;
};

class Plan {
 public:
  // `graph` is typed and optimised for these sizes: every value has a type.
  // `joins`: what a Concat joins is made side by side where it can be.
  // What `packed` packs to lives as long as the plan. A plan for one member
  // runs on the calling thread alone, whatever the pool.
  static StatusOr<std::unique_ptr<Plan>> Create(const Graph& graph,
                                                int num_members,
                                                const Kernels& kernels,
                                                bool joins,
                                                WeightPacker& packed);

  // The memory that Run needs for what lives between steps, whole lines of 64
  // bytes.
  int64_t arena_bytes() const { return arena_bytes_; }
  // What all steps read of constants, and what they move besides.
  double constant_bytes() const { return constant_bytes_; }
  double value_bytes() const { return value_bytes_; }
  // `arena` has arena_bytes and is aligned to 64 bytes. `at` may have served
  // another plan before. `trace`, if not null, is filled anew.
  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    std::byte* arena, Bindings& at,
                                    ComputePool& pool, const StopCheck& stopped,
                                    Trace* trace) const;

  // ---- Run in parts, for a caller that has memory of its own ----
  // Types of the results, in the order of the ports.
  std::vector<ValueType> OutputTypes() const;
  // Makes `at` this plan's: constants and the arena are bound then. Inputs and
  // outputs are bound before each run; inputs are only read.
  void Begin(std::byte* arena, Bindings& at) const;
  void BindInput(size_t i, const std::byte* bytes, Bindings& at) const;
  void BindOutput(size_t i, std::byte* bytes, Bindings& at) const;
  Status RunTogether(Bindings& at, ComputePool& pool, const StopCheck& stopped,
                     Trace* trace = nullptr) const;
  // By this thread alone; the plan is for one member.
  Status RunAlone(Bindings& at, const StopCheck& stopped) const;

  // One line for each step.
  std::string Text() const;
  // The memory that the plan itself takes, some estimated: steps, and constants
  // that were folded for these sizes. Those that `is_shared` are not counted.
  int64_t held_bytes(const std::function<bool(const Tensor*)>& is_shared) const;

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

  explicit Plan(int num_members) : num_members_(num_members) {}
  void BindParts(Bindings& at) const;
  void BeginTrace(const ComputePool& pool, Trace& trace) const;

  const int num_members_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<StepPlace> places_;  // of each step
  bool one_member_ = false;  // the first member runs all steps: no pool needed
  std::vector<int64_t> scratch_offsets_;  // of each step
  std::vector<int64_t> offsets_;  // of each slot in the arena; -1: elsewhere
  std::vector<std::byte*> constant_at_;  // of each slot; null: no constant
  std::vector<Part> parts_;
  std::vector<Slot> inputs_;
  std::vector<Binding> outputs_;
  std::vector<std::shared_ptr<const Tensor>> constants_;  // kept alive
  int64_t arena_bytes_ = 0;
  double constant_bytes_ = 0;
  double value_bytes_ = 0;
};

}  // namespace millrace::models::graph
