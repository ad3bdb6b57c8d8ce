// Products of stacks of matrices by numpy's rules, [batch..., m, k] x
// [batch..., k, n], for the groups of operators that have them.
#pragma once

#include "models/graph/ops/gemm/gemm.h"

namespace millrace::models::graph {

struct MatMulPlan {
  GemmSize size;
  Shape batch;    // of the result
  Shape a_batch;  // strides in matrices; 0 where repeated
  Shape b_batch;
  Shape out;

  // Which matrices of a and b make matrix i of the result.
  std::pair<int64_t, int64_t> Operands(int64_t i) const;
};

StatusOr<MatMulPlan> PlanMatMul(Shape a, Shape b);

}  // namespace millrace::models::graph
