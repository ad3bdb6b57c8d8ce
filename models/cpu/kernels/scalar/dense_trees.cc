// Decision trees, one walk at a time.

#include "models/cpu/kernels/dense/trees.h"

namespace millrace::models {
namespace {

struct TreeLane {
  static constexpr int kLanes = 1;

  static void Walk(const TreeWalk& args, const int32_t* root,
                   const int32_t* x_at, int64_t groups, int32_t* leaf) {
    for (int64_t i = 0; i < groups; ++i) {
      int32_t at = root[i];
      while (true) {
        const TreeNode node = args.nodes[at];
        const float x = args.x[x_at[i] + (node.word >> 16 & 0x7fff)];
        bool right = x > node.threshold;
        if (args.nan_bits) right = right || (x != x && node.word >> 31 != 0);
        const int32_t next = root[i] +
                             static_cast<int32_t>(node.word & 0xffff) +
                             static_cast<int32_t>(right);
        if (next == at) break;
        at = next;
      }
      leaf[i] = at;
    }
  }
};

}  // namespace

void WalkTreesScalar(const TreeWalk& walk) { Trees<TreeLane>::Walk(walk); }

}  // namespace millrace::models
