// Decision trees as the operators of ai.onnx.ml describe them, in one list of
// nodes.
//
//   ASSIGN_OR_RETURN(auto trees, FlattenTrees(parts));   // at import, checked
//   trees->Predict(x, scores);                           // one row
//
// A value that is NaN takes the true branch of nodes that say so, else the
// false one (that of "not equal": the true one, as the comparison is true).
// Immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ml/packed_trees.h"

namespace millrace::models::graph {

enum class TreeMode : uint8_t {
  kLessOrEqual,
  kLess,
  kGreaterOrEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kLeaf,
};

struct TreeEnsembleNode {
  TreeMode mode = TreeMode::kLeaf;
  bool nan_is_true = false;
  int32_t feature = 0;
  // The next node; of a leaf: its range of weights.
  int32_t yes = 0;
  int32_t no = 0;
  double value = 0;  // exact, of FP32 or FP64
};

struct LeafWeight {
  int32_t target = 0;
  double value = 0;
};

enum class TreeAggregate : uint8_t { kSum, kAverage, kMin, kMax };

struct TreeEnsemble {
  std::vector<TreeEnsembleNode> nodes;
  std::vector<int32_t> roots;
  std::vector<LeafWeight> weights;
  std::vector<double> base;  // of each target, or empty
  int64_t num_targets = 1;
  int64_t num_features = 0;  // that are read: the greatest, plus one
  TreeAggregate aggregate = TreeAggregate::kSum;
  // For the kernels; null where they have no form of it.
  std::unique_ptr<const PackedTrees> packed;

  // The leaf of one tree. `x` has num_features values.
  template <typename T>
  int32_t LeafOf(int32_t root, const T* x) const;
  // `sums` has num_targets values and is written.
  template <typename T>
  void Predict(const T* x, double* sums) const;
  // What becomes of sums when all trees were added: means, base values.
  void Finish(double* sums) const;
};

// One tree ensemble as its attributes have it, whichever version of the
// operator they are of.
struct TreeParts {
  struct Node {
    int64_t tree = 0;
    int64_t id = 0;  // within its tree
    int64_t feature = 0;
    TreeMode mode = TreeMode::kLeaf;
    double value = 0;
    int64_t yes = 0;  // ids
    int64_t no = 0;
    bool nan_is_true = false;
  };
  struct Weight {
    int64_t tree = 0;
    int64_t node = 0;
    int64_t target = 0;
    double value = 0;
  };
  std::vector<Node> nodes;
  std::vector<Weight> weights;
  std::vector<double> base;
  // Ids of roots, all of tree 0; empty: the first node of each tree.
  std::vector<int64_t> roots;
  int64_t num_targets = 1;
  TreeAggregate aggregate = TreeAggregate::kSum;
};

// What FlattenTrees takes of memory at most, while it makes them.
int64_t BytesOfTrees(const TreeParts& parts);

// INVALID_ARGUMENT: nodes that are missing or lie on a circle, targets or
// features out of range.
StatusOr<std::shared_ptr<const TreeEnsemble>> FlattenTrees(
    const TreeParts& parts);
StatusOr<TreeMode> TreeModeNamed(std::string_view name);
StatusOr<TreeAggregate> TreeAggregateNamed(std::string_view name);

}  // namespace millrace::models::graph
