#include "models/graph/ml/packed_trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "models/graph/ml/tree_ensemble.h"

namespace millrace::models::graph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// "x > threshold ? right : left", what NaN does included.
struct Branch {
  float threshold = 0;
  bool nan_right = false;
  int32_t left = 0;
  int32_t right = 0;
};

std::optional<Branch> BranchOf(const TreeEnsembleNode& node) {
  const auto value = static_cast<float>(node.value);
  if (static_cast<double>(value) != node.value) return std::nullopt;
  Branch branch;
  branch.threshold = value;
  switch (node.mode) {
    case TreeMode::kLess:
    case TreeMode::kGreaterOrEqual:
      // x >= v is x > the number before v.
      if (!std::isfinite(value)) return std::nullopt;
      branch.threshold = std::nextafter(value, -kInfinity);
      break;
    case TreeMode::kLessOrEqual:
    case TreeMode::kGreater:
      break;
    default:
      return std::nullopt;
  }
  const bool yes_is_left =
      node.mode == TreeMode::kLess || node.mode == TreeMode::kLessOrEqual;
  branch.left = yes_is_left ? node.yes : node.no;
  branch.right = yes_is_left ? node.no : node.yes;
  branch.nan_right = node.nan_is_true != yes_is_left;
  return branch;
}

class Packer {
 public:
  explicit Packer(const TreeEnsemble& trees)
      : trees_(trees), seen_(trees.nodes.size(), false) {}

  bool Run(PackedTrees& packed) {
    for (const int32_t root : trees_.roots) {
      if (!AddTree(root, packed)) return false;
    }
    AddSingles(packed);
    return true;
  }

 private:
  // Level by level, so that the nodes that most rows meet share cache lines.
  bool AddTree(int32_t root, PackedTrees& packed) {
    constexpr size_t kMostNodes = 1 << 16;
    constexpr int32_t kMostFeatures = 1 << 15;
    const size_t first = packed.nodes.size();
    std::vector<int32_t> order = {root};  // of the packed nodes
    std::vector<int32_t> level = {0};     // of each
    packed.roots.push_back(static_cast<int32_t>(first));
    for (size_t i = 0; i < order.size(); ++i) {
      const auto at = static_cast<size_t>(order[i]);
      const TreeEnsembleNode& node = trees_.nodes[at];
      const bool leaf = node.mode == TreeMode::kLeaf;
      // Leaves may have several parents: each gets a copy.
      if (!leaf && seen_[at]) return false;
      seen_[at] = true;
      packed.weight_begin.push_back(leaf ? node.yes : 0);
      packed.weight_end.push_back(leaf ? node.no : 0);
      if (leaf) {
        packed.depth = std::max(packed.depth, level[i]);
        packed.nodes.push_back({kInfinity, static_cast<uint32_t>(i)});
        continue;
      }
      const std::optional<Branch> branch = BranchOf(node);
      if (!branch || node.feature >= kMostFeatures ||
          order.size() + 2 > kMostNodes) {
        return false;
      }
      packed.nan_bits = packed.nan_bits || branch->nan_right;
      packed.nodes.push_back(
          {branch->threshold, static_cast<uint32_t>(branch->nan_right) << 31 |
                                  static_cast<uint32_t>(node.feature) << 16 |
                                  static_cast<uint32_t>(order.size())});
      order.push_back(branch->left);
      order.push_back(branch->right);
      level.insert(level.end(), 2, level[i] + 1);
    }
    return true;
  }

  void AddSingles(PackedTrees& packed) const {
    std::vector<double> values(packed.nodes.size(), 0.0);
    std::vector<int32_t> targets;
    for (size_t tree = 0; tree < packed.roots.size(); ++tree) {
      const auto begin = static_cast<size_t>(packed.roots[tree]);
      const size_t end = tree + 1 < packed.roots.size()
                             ? static_cast<size_t>(packed.roots[tree + 1])
                             : packed.nodes.size();
      int32_t target = -1;
      for (size_t i = begin; i < end; ++i) {
        const int32_t count = packed.weight_end[i] - packed.weight_begin[i];
        if (count == 0) continue;
        const LeafWeight& weight =
            trees_.weights[static_cast<size_t>(packed.weight_begin[i])];
        if (count > 1 || (target >= 0 && target != weight.target)) return;
        target = weight.target;
        values[i] = weight.value;
      }
      targets.push_back(std::max(target, 0));
    }
    packed.leaf_value = std::move(values);
    packed.tree_target = std::move(targets);
  }

  const TreeEnsemble& trees_;
  std::vector<bool> seen_;
};

bool HasNan(const float* x, int64_t ld_x, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0;  // of zeros and NaN
    for (int64_t i = 0; i < columns; ++i) {
      const float value = x[row * ld_x + i];
      sum += value == value ? 0.0f : 1.0f;
    }
    if (sum > 0) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<const PackedTrees> PackTrees(const TreeEnsemble& trees) {
  const bool adds = trees.aggregate == TreeAggregate::kSum ||
                    trees.aggregate == TreeAggregate::kAverage;
  if (!adds) return nullptr;
  auto packed = std::make_unique<PackedTrees>();
  if (!Packer(trees).Run(*packed)) return nullptr;
  return packed;
}

void SumTrees(const TreeEnsemble& trees, WalkTrees walk_trees, const float* x,
              int64_t ld_x, int64_t num_rows, int32_t* leaves, double* sums) {
  const PackedTrees& packed = *trees.packed;
  const int64_t targets = trees.num_targets;
  std::fill_n(sums, num_rows * targets, 0.0);
  TreeWalk walk{.nodes = packed.nodes.data(),
                .x = x,
                .ld_x = ld_x,
                .num_rows = num_rows,
                .depth = packed.depth,
                .leaves = leaves};
  walk.nan_bits =
      packed.nan_bits && HasNan(x, ld_x, num_rows, trees.num_features);
  const auto num_trees = static_cast<int64_t>(packed.roots.size());
  for (int64_t begin = 0; begin < num_trees; begin += kTreeBlock) {
    walk.roots = packed.roots.data() + begin;
    walk.num_trees = std::min(kTreeBlock, num_trees - begin);
    walk_trees(walk);
    if (num_rows == 1 && targets == 1 && !packed.leaf_value.empty()) {
      double sum = sums[0];  // in a register
      for (int64_t t = 0; t < walk.num_trees; ++t) {
        sum += packed.leaf_value[static_cast<size_t>(leaves[t])];
      }
      sums[0] = sum;
      continue;
    }
    for (int64_t t = 0; t < walk.num_trees; ++t) {
      const int32_t* leaf = leaves + t * num_rows;
      if (!packed.leaf_value.empty()) {
        double* to = sums + packed.tree_target[static_cast<size_t>(begin + t)];
        const double* values = packed.leaf_value.data();
        for (int64_t row = 0; row < num_rows; ++row) {
          to[row * targets] += values[leaf[row]];
        }
        continue;
      }
      for (int64_t row = 0; row < num_rows; ++row) {
        const auto at = static_cast<size_t>(leaf[row]);
        double* to = sums + row * targets;
        for (int32_t i = packed.weight_begin[at]; i < packed.weight_end[at];
             ++i) {
          const LeafWeight& weight = trees.weights[static_cast<size_t>(i)];
          to[weight.target] += weight.value;
        }
      }
    }
  }
}

}  // namespace millrace::models::graph
