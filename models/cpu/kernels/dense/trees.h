// Decision trees, V::kLanes of (row, tree) at a time. A group of lanes walks in
// step until all of them stand on a leaf; several groups are interleaved, since
// each step waits for two reads one after the other.
#pragma once

#include "models/cpu/tree_kernels.h"

namespace millrace::models {

// V::Walk(nodes, x, groups): see the specialisations. The lanes are rows of one
// tree where there are enough rows. With fewer rows their trees are walked
// value by value, kChains at a time: the features of one row are in L1, where a
// gather takes longer than the reads that it stands for (an AMD EPYC, family
// 26).
template <class V>
struct Trees {
  static constexpr int kLanes = V::kLanes;
  static constexpr int kGroups = 4;
  static constexpr int kChains = 8;

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
    int64_t tree = 0;
    for (; tree + kChains <= args.num_trees; tree += kChains) {
      args.nan_bits ? WalkChains<kChains, true>(args, row, tree)
                    : WalkChains<kChains, false>(args, row, tree);
    }
    for (; tree < args.num_trees; ++tree) WalkChains<1, true>(args, row, tree);
  }

  // Trees [first, first + kCount) of one row. Nodes are counted from the roots.
  template <int kCount, bool kNanBits>
  static void WalkChains(const TreeWalk& args, int64_t row, int64_t first) {
    const float* const x = args.x + row * args.ld_x;
    const TreeNode* tree[kCount];
    uint32_t at[kCount] = {};
    for (int i = 0; i < kCount; ++i) {
      tree[i] = args.nodes + args.roots[first + i];
    }
    const auto step = [&](int i) {
      const TreeNode node = tree[i][at[i]];
      const float value = x[(node.word >> 16) & 0x7fff];
      uint32_t right = value > node.threshold ? 1 : 0;
      if (kNanBits) right |= (value != value ? 1u : 0u) & (node.word >> 31);
      return (node.word & 0xffff) + right;
    };
    // Shallow trees need no look at who still moves.
    constexpr int kShallow = 8;
    if (args.depth <= kShallow) {
      for (int level = 0; level < args.depth; ++level) {
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) at[i] = step(i);
      }
    } else {
      for (bool moves = true; moves;) {
        uint32_t moved = 0;
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          const uint32_t next = step(i);
          moved |= next ^ at[i];
          at[i] = next;
        }
        moves = moved != 0;
      }
    }
    for (int i = 0; i < kCount; ++i) {
      args.leaves[(first + i) * args.num_rows + row] =
          args.roots[first + i] + static_cast<int32_t>(at[i]);
    }
  }
};

}  // namespace millrace::models
