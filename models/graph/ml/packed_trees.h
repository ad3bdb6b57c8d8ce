// Trees as the kernels walk them: nodes of eight bytes, children side by side
// (models/cpu/tree_kernels.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/cpu/tree_kernels.h"

namespace millrace::models::graph {

struct TreeEnsemble;

struct PackedTrees {
  std::vector<TreeNode> nodes;
  std::vector<int32_t> roots;
  // Of each node that is a leaf: its range of the ensemble's weights.
  std::vector<int32_t> weight_begin;
  std::vector<int32_t> weight_end;
  // Where each leaf has one weight and all of a tree have one target: the
  // weight of each leaf and the target of each tree. Empty otherwise.
  std::vector<double> leaf_value;
  std::vector<int32_t> tree_target;
  bool nan_bits = false;  // some node sends NaN to the right
  int32_t depth = 0;      // comparisons on the way to the deepest leaf
};

// Null where the form does not hold the ensemble: comparisons for equality,
// nodes of several parents, thresholds that are no FP32, trees of 2^16 nodes,
// 2^15 features, aggregates other than sums and means.
std::unique_ptr<const PackedTrees> PackTrees(const TreeEnsemble& trees);

// sums[row][target] of rows [0, num_rows) of x, which are ld_x floats apart:
// the trees' weights added in their order, before Finish. `leaves` is scratch
// of kTreeBlock * num_rows values; num_rows <= kTreeRows.
inline constexpr int64_t kTreeBlock = 64;
inline constexpr int64_t kTreeRows = 64;
void SumTrees(const TreeEnsemble& trees, WalkTrees walk_trees, const float* x,
              int64_t ld_x, int64_t num_rows, int32_t* leaves, double* sums);

}  // namespace millrace::models::graph
