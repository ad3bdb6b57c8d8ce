// One piece of work of a plan, prepared for fixed shapes: a fused kernel or an
// operator's plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/op.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

// Which storage a value lies in: values that are the same bytes share one.
using Slot = int32_t;
inline constexpr Slot kNoSlot = -1;

// Where the storages are during one run.
struct Slots {
  std::byte* const* at;
  std::byte* scratch;  // of the step that runs
  // Of each slot: elements of an input, which may be fewer than its type says
  // where it is jagged (models/graph/jagged.h); -1 elsewhere. Null: as the
  // types say.
  const int64_t* elements = nullptr;

  template <typename T>
  T* data(Slot slot) const {
    return reinterpret_cast<T*>(at[slot]);
  }
};

// Immutable after construction: one step may run in several contexts at the
// same time. What a run writes besides its results goes to the scratch of its
// slots.
class Step {
 public:
  virtual ~Step() = default;

  // This member's part. No barrier inside: the plan puts one before the first
  // step that reads what this one writes.
  virtual Status Run(const Slots& slots, const Team& team) const = 0;
  // Whether all members are called, or any one of them alone.
  virtual bool splits() const { return true; }
  // Memory for all members together, of no value between steps.
  virtual int64_t scratch_bytes() const { return 0; }
  // Multiply-adds of all members together, of products alone.
  virtual double macs() const { return 0; }
  virtual Factors factors() const { return Factors::kF32; }
  // Memory of its own beyond a few hundred bytes, where that grows with a
  // layer.
  virtual int64_t held_bytes() const { return 0; }
  // Where oneDNN computes the layer: its shape, as OneDnnUse names it.
  virtual std::string onednn_shape() const { return {}; }
  // For people: "Linear 128x384 -> 1536, gelu".
  virtual std::string Text() const = 0;

  // ---- set by the plan ----
  std::vector<Slot> reads;
  std::vector<Slot> writes;
  std::string name;           // of the graph's node
  double bytes = 0;           // of what it reads and writes, each once
  double constant_bytes = 0;  // of them, those of constants
};

}  // namespace millrace::models::graph
