#include "models/graph/ml/tree_ensemble.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

namespace millrace::models::graph {
namespace {

constexpr int64_t kMostFeatures = 1 << 24;
constexpr int64_t kMostTargets = 1 << 20;
constexpr size_t kMostNodes = size_t{1} << 28;

// Where each node and each tree lies.
class Index {
 public:
  StatusOr<int32_t> Add(int64_t tree, int64_t id) {
    const int32_t place = next_++;
    if (!of_tree_[tree].emplace(id, place).second) {
      return InvalidArgument("tree " + std::to_string(tree) +
                             " has two nodes " + std::to_string(id));
    }
    return place;
  }
  StatusOr<int32_t> Find(int64_t tree, int64_t id) const {
    const auto nodes = of_tree_.find(tree);
    if (nodes != of_tree_.end()) {
      const auto found = nodes->second.find(id);
      if (found != nodes->second.end()) return found->second;
    }
    return InvalidArgument("tree " + std::to_string(tree) + " has no node " +
                           std::to_string(id));
  }

 private:
  std::unordered_map<int64_t, std::unordered_map<int64_t, int32_t>> of_tree_;
  int32_t next_ = 0;
};

// A walk from a root must end. Nodes may have several parents.
Status CheckNoCircle(const std::vector<TreeEnsembleNode>& nodes,
                     const std::vector<int32_t>& roots) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(nodes.size(), kNew);
  std::vector<int32_t> open;
  for (const int32_t root : roots) {
    open.push_back(root);
    while (!open.empty()) {
      const auto at = static_cast<size_t>(open.back());
      if (state[at] != kNew) {
        state[at] = kDone;
        open.pop_back();
        continue;
      }
      state[at] = kOpen;
      if (nodes[at].mode == TreeMode::kLeaf) continue;
      for (const int32_t next : {nodes[at].yes, nodes[at].no}) {
        const uint8_t seen = state[static_cast<size_t>(next)];
        if (seen == kOpen) {
          return InvalidArgument("the nodes of a tree form a circle");
        }
        if (seen == kNew) open.push_back(next);
      }
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<TreeMode> TreeModeNamed(std::string_view name) {
  constexpr std::pair<std::string_view, TreeMode> kNames[] = {
      {"BRANCH_LEQ", TreeMode::kLessOrEqual},
      {"BRANCH_LT", TreeMode::kLess},
      {"BRANCH_GTE", TreeMode::kGreaterOrEqual},
      {"BRANCH_GT", TreeMode::kGreater},
      {"BRANCH_EQ", TreeMode::kEqual},
      {"BRANCH_NEQ", TreeMode::kNotEqual},
      {"LEAF", TreeMode::kLeaf}};
  for (const auto& [known, mode] : kNames) {
    if (known == name) return mode;
  }
  return InvalidArgument("there is no mode '" + std::string(name) + "'");
}

StatusOr<TreeAggregate> TreeAggregateNamed(std::string_view name) {
  constexpr std::pair<std::string_view, TreeAggregate> kNames[] = {
      {"SUM", TreeAggregate::kSum},
      {"AVERAGE", TreeAggregate::kAverage},
      {"MIN", TreeAggregate::kMin},
      {"MAX", TreeAggregate::kMax}};
  for (const auto& [known, aggregate] : kNames) {
    if (known == name) return aggregate;
  }
  return InvalidArgument("there is no aggregate function '" +
                         std::string(name) + "'");
}

int64_t BytesOfTrees(const TreeParts& parts) {
  // Of a node: its entry of the index, itself, and its packed form in vectors
  // that double, for which a leaf may be copied.
  constexpr size_t kIndexEntry = 64;
  constexpr size_t kPacked =
      2 * 2 * (sizeof(TreeNode) + 2 * sizeof(int32_t) + sizeof(double));
  constexpr size_t kNode = kIndexEntry + sizeof(TreeEnsembleNode) + kPacked;
  constexpr size_t kWeight =
      sizeof(std::pair<int32_t, LeafWeight>) + 2 * sizeof(LeafWeight);
  return static_cast<int64_t>(parts.nodes.size() * kNode +
                              parts.weights.size() * kWeight +
                              parts.base.size() * sizeof(double));
}

StatusOr<std::shared_ptr<const TreeEnsemble>> FlattenTrees(
    const TreeParts& parts) {
  if (parts.nodes.empty()) return InvalidArgument("there are no trees");
  if (parts.nodes.size() > kMostNodes || parts.weights.size() > kMostNodes) {
    return ResourceExhausted("there are more than 2^28 nodes or weights");
  }
  if (parts.num_targets < 1 || parts.num_targets > kMostTargets) {
    return InvalidArgument("there are " + std::to_string(parts.num_targets) +
                           " targets; 1 to 2^20 are possible");
  }
  if (!parts.base.empty() &&
      static_cast<int64_t>(parts.base.size()) != parts.num_targets) {
    return InvalidArgument("there are " + std::to_string(parts.base.size()) +
                           " base values for " +
                           std::to_string(parts.num_targets) + " targets");
  }
  auto trees = std::make_shared<TreeEnsemble>();
  trees->base = parts.base;
  trees->num_targets = parts.num_targets;
  trees->aggregate = parts.aggregate;
  Index index;
  std::unordered_map<int64_t, bool> known;
  for (const TreeParts::Node& node : parts.nodes) {
    ASSIGN_OR_RETURN(const int32_t at, index.Add(node.tree, node.id));
    const bool first = known.emplace(node.tree, true).second;
    if (first && parts.roots.empty()) trees->roots.push_back(at);
  }
  trees->nodes.reserve(parts.nodes.size());
  for (const TreeParts::Node& node : parts.nodes) {
    TreeEnsembleNode& made = trees->nodes.emplace_back();
    made.mode = node.mode;
    if (node.mode == TreeMode::kLeaf) continue;
    if (node.feature < 0 || node.feature >= kMostFeatures) {
      return InvalidArgument("a node asks for the feature " +
                             std::to_string(node.feature) +
                             "; 0 to 2^24 - 1 are possible");
    }
    made.nan_is_true = node.nan_is_true;
    made.feature = static_cast<int32_t>(node.feature);
    made.value = node.value;
    trees->num_features = std::max(trees->num_features, node.feature + 1);
    ASSIGN_OR_RETURN(made.yes, index.Find(node.tree, node.yes));
    ASSIGN_OR_RETURN(made.no, index.Find(node.tree, node.no));
  }
  for (const int64_t root : parts.roots) {
    ASSIGN_OR_RETURN(trees->roots.emplace_back(), index.Find(0, root));
  }
  RETURN_IF_ERROR(CheckNoCircle(trees->nodes, trees->roots));
  // Weights of one leaf next to each other, in the order of the file.
  std::vector<std::pair<int32_t, LeafWeight>> placed;
  placed.reserve(parts.weights.size());
  for (const TreeParts::Weight& weight : parts.weights) {
    ASSIGN_OR_RETURN(const int32_t at, index.Find(weight.tree, weight.node));
    if (weight.target < 0 || weight.target >= parts.num_targets) {
      return InvalidArgument("a leaf adds to the target " +
                             std::to_string(weight.target) + " of " +
                             std::to_string(parts.num_targets));
    }
    placed.push_back({at, {static_cast<int32_t>(weight.target), weight.value}});
  }
  std::stable_sort(
      placed.begin(), placed.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < placed.size();) {
    const size_t begin = i;
    const int32_t at = placed[i].first;
    for (; i < placed.size() && placed[i].first == at; ++i) {
      trees->weights.push_back(placed[i].second);
    }
    TreeEnsembleNode& leaf = trees->nodes[static_cast<size_t>(at)];
    // Weights of nodes that branch are never met.
    if (leaf.mode != TreeMode::kLeaf) continue;
    leaf.yes = static_cast<int32_t>(begin);
    leaf.no = static_cast<int32_t>(i);
  }
  trees->packed = PackTrees(*trees);
  return std::shared_ptr<const TreeEnsemble>(std::move(trees));
}

template <typename T>
int32_t TreeEnsemble::LeafOf(int32_t root, const T* x) const {
  int32_t at = root;
  while (true) {
    const TreeEnsembleNode& node = nodes[static_cast<size_t>(at)];
    if (node.mode == TreeMode::kLeaf) return at;
    const auto value = static_cast<double>(x[node.feature]);
    bool yes = node.nan_is_true && std::isnan(value);
    switch (node.mode) {
      case TreeMode::kLessOrEqual:
        yes = yes || value <= node.value;
        break;
      case TreeMode::kLess:
        yes = yes || value < node.value;
        break;
      case TreeMode::kGreaterOrEqual:
        yes = yes || value >= node.value;
        break;
      case TreeMode::kGreater:
        yes = yes || value > node.value;
        break;
      case TreeMode::kEqual:
        yes = yes || value == node.value;
        break;
      case TreeMode::kNotEqual:
        yes = yes || value != node.value;
        break;
      case TreeMode::kLeaf:
        break;
    }
    at = yes ? node.yes : node.no;
  }
}

template <typename T>
void TreeEnsemble::Predict(const T* x, double* sums) const {
  const bool selects =
      aggregate == TreeAggregate::kMin || aggregate == TreeAggregate::kMax;
  // A target that no leaf has met yet.
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(sums, num_targets, selects ? kNone : 0.0);
  for (const int32_t root : roots) {
    const TreeEnsembleNode& leaf = nodes[static_cast<size_t>(LeafOf(root, x))];
    for (int32_t i = leaf.yes; i < leaf.no; ++i) {
      const LeafWeight& weight = weights[static_cast<size_t>(i)];
      double& sum = sums[weight.target];
      if (!selects) {
        sum += weight.value;
      } else if (std::isnan(sum) ||
                 (aggregate == TreeAggregate::kMin ? weight.value < sum
                                                   : weight.value > sum)) {
        sum = weight.value;
      }
    }
  }
  if (selects) {
    std::replace_if(
        sums, sums + num_targets, [](double v) { return std::isnan(v); }, 0.0);
  }
  Finish(sums);
}

void TreeEnsemble::Finish(double* sums) const {
  for (int64_t k = 0; k < num_targets; ++k) {
    if (aggregate == TreeAggregate::kAverage) {
      sums[k] /= static_cast<double>(roots.size());
    }
    if (!base.empty()) sums[k] += base[static_cast<size_t>(k)];
  }
}

template void TreeEnsemble::Predict(const float*, double*) const;
template void TreeEnsemble::Predict(const double*, double*) const;
template void TreeEnsemble::Predict(const int32_t*, double*) const;
template void TreeEnsemble::Predict(const int64_t*, double*) const;

}  // namespace millrace::models::graph
