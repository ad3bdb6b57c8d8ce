// A batch computed row by row: each member of the team takes its share of the
// rows through a plan for one row without meeting the others; rows that are
// left over the team computes together.
//
//   5 rows, 2 members:   member 0: rows 0, 1    member 1: rows 2, 3
//                        both:     row 4
//
// Immutable after Create; as with Plan, the state of a run is in its bindings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/plan/plan.h"

namespace millrace::models::graph {

class RowPlans {
 public:
  // `one` is optimised for one row; has_rows: of each input.
  static StatusOr<std::unique_ptr<RowPlans>> Create(
      const Graph& one, std::vector<bool> has_rows, int num_members,
      const Kernels& kernels, bool joins, WeightPacker& packed);

  // For all members together.
  int64_t arena_bytes() const;
  // Inputs of `batch` rows. The arena as of Plan; the bindings become one for
  // each member and may have served other plans.
  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    int64_t batch, std::byte* arena,
                                    std::vector<Bindings>& bindings,
                                    ComputePool& pool,
                                    const StopCheck& stopped) const;
  // Writes the results to memory for all rows, one place for each output.
  Status RunInto(const std::vector<Tensor>& inputs, int64_t batch,
                 const std::vector<std::byte*>& outputs, std::byte* arena,
                 std::vector<Bindings>& bindings, ComputePool& pool,
                 const StopCheck& stopped) const;
  // As of Plan, of both plans.
  int64_t held_bytes(
      const std::function<bool(const Tensor*)>& is_shared) const {
    return alone_->held_bytes(is_shared) + together_->held_bytes(is_shared);
  }
  const Plan& one() const { return *together_; }
  // Of one row.
  std::string Text() const { return "Each row:\n" + together_->Text(); }
  // Whether one row moves more between layers than it reads of weights: only
  // then it pays to read these again for each row.
  bool MovesMoreThanWeights() const {
    return together_->value_bytes() > together_->constant_bytes();
  }

 private:
  RowPlans() = default;

  std::vector<bool> has_rows_;
  int num_members_ = 1;
  std::unique_ptr<const Plan> alone_;     // by one member
  std::unique_ptr<const Plan> together_;  // by all of them
};

}  // namespace millrace::models::graph
