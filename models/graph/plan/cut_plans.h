// A batch whose first layers go row by row, and whose last ones at once (see
// cut.h). What lies between them is a part of the arena.
//
// Immutable after Create; as with Plan, the state of a run is in its bindings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/plan/cut.h"
#include "models/graph/plan/row_plans.h"

namespace millrace::models::graph {

class CutPlans {
 public:
  // `head` is of rows; `whole` is optimised for `batch` of them and cut there.
  static StatusOr<std::unique_ptr<CutPlans>> Create(
      std::shared_ptr<const RowPlans> head, const Graph& whole, const Cut& cut,
      int64_t batch, int num_members, const Kernels& kernels, bool joins,
      WeightPacker& packed);

  int64_t arena_bytes() const;
  // As of RowPlans.
  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    std::byte* arena,
                                    std::vector<Bindings>& bindings,
                                    ComputePool& pool,
                                    const StopCheck& stopped) const;
  int64_t held_bytes(
      const std::function<bool(const Tensor*)>& is_shared) const {
    return head_->held_bytes(is_shared) + tail_->held_bytes(is_shared);
  }
  const std::shared_ptr<const RowPlans>& head() const { return head_; }
  const Plan& tail() const { return *tail_; }
  std::string Text() const {
    return head_->Text() + "The batch:\n" + tail_->Text();
  }

 private:
  CutPlans() = default;

  std::shared_ptr<const RowPlans> head_;  // shared by batches
  std::unique_ptr<const Plan> tail_;
  int64_t batch_ = 0;
  int64_t between_bytes_ = 0;  // whole lines of 64
};

}  // namespace millrace::models::graph
