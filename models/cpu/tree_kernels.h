// Kernels of decision trees, a function for each of scalar, AVX2 and AVX-512.
// Comparisons are exact: all of them give the same leaves.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::models {

// A node of a decision tree. `word`: bits 0 to 15 its left child, counted from
// the root of its tree, whose right neighbour is the right child; bits 16 to 30
// the feature that is compared; bit 31 whether NaN goes right. A value goes
// right when it is greater than the threshold. A leaf is its own left child and
// has the threshold infinity and no bit 31.
struct TreeNode {
  float threshold;
  uint32_t word;
};

// leaves[tree][row] is the node at which the row ends. Rows are ld_x floats
// apart; num_rows * ld_x fits 31 bits. Without nan_bits, bit 31 is not looked
// at: there is no NaN, or none of the nodes has it.
struct TreeWalk {
  const TreeNode* nodes = nullptr;
  const int32_t* roots = nullptr;  // [num_trees]
  int64_t num_trees = 0;
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t num_rows = 0;
  bool nan_bits = false;
  int32_t depth = 0;  // comparisons on the way to the deepest leaf, or more
  int32_t* leaves = nullptr;
};

using WalkTrees = void (*)(const TreeWalk& walk);

void WalkTreesScalar(const TreeWalk& walk);
void WalkTreesAvx2(const TreeWalk& walk);
void WalkTreesAvx512(const TreeWalk& walk);

// That of a dense table ("scalar", "avx2", "avx512").
WalkTrees WalkTreesOf(std::string_view dense_name);

}  // namespace millrace::models
