// A batch computed row by row: each member of the team has a plan for one row
// of its own and takes its share of the rows through it without meeting the
// others; rows that are left over the team computes together.
//
//   5 rows, 2 members:   member 0: rows 0, 1    member 1: rows 2, 3
//                        both:     row 4
//
// Run: one thread at a time, which is worker 0 of the pool.
#pragma once

#include <cstdint>
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
      const Kernels& kernels, bool joins, PackedWeights& packed);

  // For all members together.
  int64_t arena_bytes() const;
  // Inputs of `batch` rows. The arena as of Plan.
  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    int64_t batch, std::byte* arena,
                                    ComputePool& pool,
                                    const StopCheck& stopped);
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
  std::vector<std::unique_ptr<Plan>> alone_;  // of each member
  std::unique_ptr<Plan> together_;
};

}  // namespace millrace::models::graph
