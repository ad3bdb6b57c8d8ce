// Decision trees, V::kLanes of (row, tree) at a time. A group of lanes walks in
// step until all of them stand on a leaf; several groups are interleaved, since
// each step waits for two reads one after the other.
#pragma once

#include "models/cpu/tree_kernels.h"

namespace millrace::models {

// V::Walk(nodes, x, groups): see the specialisations. The lanes are rows of one
// tree where there are enough rows, else trees of one row.
template <class V>
struct Trees {
  static constexpr int kLanes = V::kLanes;
  static constexpr int kGroups = 4;

  static void Walk(const TreeWalk& args) {
    if (args.num_rows >= kLanes) {
      for (int64_t tree = 0; tree < args.num_trees; ++tree) {
        WalkRows(args, tree);
      }
      return;
    }
    for (int64_t row = 0; row < args.num_rows; ++row) WalkTrees(args, row);
  }

 private:
  static int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

  static void WalkRows(const TreeWalk& args, int64_t tree) {
    constexpr int64_t kAll = kLanes * kGroups;
    int32_t root[kAll];
    int32_t x_at[kAll];
    int32_t leaf[kAll];
    for (int64_t i = 0; i < kAll; ++i) root[i] = args.roots[tree];
    for (int64_t begin = 0; begin < args.num_rows; begin += kAll) {
      const int64_t count = Min(kAll, args.num_rows - begin);
      // Lanes behind the last row walk with it once more.
      for (int64_t i = 0; i < kAll; ++i) {
        x_at[i] = static_cast<int32_t>((begin + Min(i, count - 1)) * args.ld_x);
      }
      V::Walk(args, root, x_at, (count + kLanes - 1) / kLanes, leaf);
      int32_t* to = args.leaves + tree * args.num_rows + begin;
      for (int64_t i = 0; i < count; ++i) to[i] = leaf[i];
    }
  }

  static void WalkTrees(const TreeWalk& args, int64_t row) {
    constexpr int64_t kAll = kLanes * kGroups;
    int32_t root[kAll];
    int32_t x_at[kAll];
    int32_t leaf[kAll];
    for (int64_t i = 0; i < kAll; ++i) {
      x_at[i] = static_cast<int32_t>(row * args.ld_x);
    }
    for (int64_t begin = 0; begin < args.num_trees; begin += kAll) {
      const int64_t count = Min(kAll, args.num_trees - begin);
      for (int64_t i = 0; i < kAll; ++i) {
        root[i] = args.roots[begin + Min(i, count - 1)];
      }
      V::Walk(args, root, x_at, (count + kLanes - 1) / kLanes, leaf);
      for (int64_t i = 0; i < count; ++i) {
        args.leaves[(begin + i) * args.num_rows + row] = leaf[i];
      }
    }
  }
};

}  // namespace millrace::models
