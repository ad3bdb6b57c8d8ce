// Decision trees of ai.onnx.ml, three operators of several versions, as one.
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "models/graph/ml/scores.h"
#include "models/graph/ml/tree_ensemble.h"
#include "models/graph/onnx/tabular.h"
#include "models/graph/onnx_dtype.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

// The attribute, or a tensor of FP64 under its name and "_as_tensor".
StatusOr<std::vector<double>> Doubles(NodeWriter& node,
                                      const std::string& name) {
  if (node.attrs.Has(name)) return node.attrs.Floats(name);
  return TensorNumbers(node, name + "_as_tensor");
}

Status SameLength(const std::string& what, size_t size, size_t wanted) {
  if (size == wanted) return OkStatus();
  return InvalidArgument("attribute '" + what + "' has " +
                         std::to_string(size) + " values instead of " +
                         std::to_string(wanted));
}

// "nodes_…" of the two older operators; `prefix` is "class" or "target".
StatusOr<TreeParts> ReadParts(NodeWriter& node, const std::string& prefix) {
  TreeParts parts;
  const Attrs& attrs = node.attrs;
  const auto& trees = attrs.Ints("nodes_treeids");
  const auto& ids = attrs.Ints("nodes_nodeids");
  const auto& features = attrs.Ints("nodes_featureids");
  const auto& modes = attrs.Texts("nodes_modes");
  const auto& yes = attrs.Ints("nodes_truenodeids");
  const auto& no = attrs.Ints("nodes_falsenodeids");
  const auto& nan = attrs.Ints("nodes_missing_value_tracks_true");
  ASSIGN_OR_RETURN(const auto values, Doubles(node, "nodes_values"));
  const size_t count = trees.size();
  RETURN_IF_ERROR(SameLength("nodes_nodeids", ids.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_featureids", features.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_modes", modes.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_truenodeids", yes.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_falsenodeids", no.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_values", values.size(), count));
  if (!nan.empty()) {
    RETURN_IF_ERROR(
        SameLength("nodes_missing_value_tracks_true", nan.size(), count));
  }
  for (size_t i = 0; i < count; ++i) {
    TreeParts::Node& made = parts.nodes.emplace_back();
    ASSIGN_OR_RETURN(made.mode, TreeModeNamed(modes[i]));
    made.tree = trees[i];
    made.id = ids[i];
    made.feature = features[i];
    made.value = values[i];
    made.yes = yes[i];
    made.no = no[i];
    made.nan_is_true = !nan.empty() && nan[i] != 0;
  }
  const auto& weight_trees = attrs.Ints(prefix + "_treeids");
  const auto& weight_nodes = attrs.Ints(prefix + "_nodeids");
  const auto& targets = attrs.Ints(prefix + "_ids");
  ASSIGN_OR_RETURN(const auto weights, Doubles(node, prefix + "_weights"));
  const size_t num_weights = targets.size();
  RETURN_IF_ERROR(
      SameLength(prefix + "_treeids", weight_trees.size(), num_weights));
  RETURN_IF_ERROR(
      SameLength(prefix + "_nodeids", weight_nodes.size(), num_weights));
  RETURN_IF_ERROR(SameLength(prefix + "_weights", weights.size(), num_weights));
  for (size_t i = 0; i < num_weights; ++i) {
    parts.weights.push_back(
        {weight_trees[i], weight_nodes[i], targets[i], weights[i]});
  }
  ASSIGN_OR_RETURN(parts.base, Doubles(node, "base_values"));
  return parts;
}

StatusOr<ValueId> EmitTrees(NodeWriter& node, const TreeParts& parts) {
  RETURN_IF_ERROR(node.charge(BytesOfTrees(parts)));
  ASSIGN_OR_RETURN(auto trees, FlattenTrees(parts));
  return node.Emit("ml.Trees", {node.in(0), DataValue(node, std::move(trees))});
}

// The sums as the operator answers them. ONNX Runtime transforms one target by
// PROBIT alone, and models are exported to agree with it.
StatusOr<ValueId> EmitPost(NodeWriter& node, ValueId sums, int64_t targets,
                           const std::string& post) {
  RETURN_IF_ERROR(PostTransformNamed(post).status());
  if (post == "NONE" || (targets == 1 && post != "PROBIT")) return sums;
  return node.Emit("ml.PostTransform", {sums},
                   {{"post_transform", AttrValue(post)}});
}

Values Regressor(NodeWriter& node) {
  ASSIGN_OR_RETURN(TreeParts parts, ReadParts(node, "target"));
  parts.num_targets = node.attrs.Int("n_targets", 1);
  ASSIGN_OR_RETURN(parts.aggregate, TreeAggregateNamed(node.attrs.Text(
                                        "aggregate_function", "SUM")));
  ASSIGN_OR_RETURN(const ValueId sums, EmitTrees(node, parts));
  const std::string post(node.attrs.Text("post_transform", "NONE"));
  ASSIGN_OR_RETURN(const ValueId made,
                   EmitPost(node, sums, parts.num_targets, post));
  return std::vector<ValueId>{AsFloat(node, made)};
}

Values Classifier(NodeWriter& node) {
  ASSIGN_OR_RETURN(TreeParts parts, ReadParts(node, "class"));
  ASSIGN_OR_RETURN(auto head, ReadLabels(node, "classlabels_"));
  const size_t classes = head->num_labels();
  parts.num_targets = static_cast<int64_t>(classes);
  std::set<int64_t> targets;
  bool positive = true;
  for (const TreeParts::Weight& weight : parts.weights) {
    targets.insert(weight.target);
    positive = positive && weight.value >= 0;
  }
  const bool one_score = classes == 2 && targets.size() == 1;
  if (classes == 1) head->binary = ClassifierHead::Binary::kSingle;
  if (one_score) {
    // Whichever class they are said to be of, the second one's.
    for (TreeParts::Weight& weight : parts.weights) weight.target = 0;
    parts.num_targets = 1;
    head->binary = positive ? ClassifierHead::Binary::kHalf
                            : ClassifierHead::Binary::kZero;
    // Both classes may have one; the second's counts.
    if (parts.base.size() > 1) parts.base = {parts.base.back()};
  }
  ASSIGN_OR_RETURN(const ValueId sums, EmitTrees(node, parts));
  return EmitClassify(node, sums, std::move(head));
}

// ---- version 5: one operator, leaves apart from nodes ----
constexpr const char* kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
constexpr const char* kPosts[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                  "PROBIT"};

template <size_t n>
StatusOr<std::string> Numbered(const Attrs& attrs, const std::string& name,
                               const char* const (&names)[n],
                               int64_t otherwise) {
  const int64_t number = attrs.Int(name, otherwise);
  if (number < 0 || number >= static_cast<int64_t>(n)) {
    return InvalidArgument("attribute '" + name + "' is " +
                           std::to_string(number));
  }
  return std::string(names[number]);
}

// A set of values is a chain of comparisons: nodes of their own for all values
// but the first.
class SetReader {
 public:
  SetReader(std::vector<double> values, int64_t next_id)
      : values_(std::move(values)), next_id_(next_id) {}

  Status Expand(const TreeParts::Node& node, TreeParts& parts) {
    TreeParts::Node link = node;
    link.mode = TreeMode::kEqual;
    if (at_ >= values_.size())
      return InvalidArgument("there is no set of values for a node");
    for (bool first = true; at_ < values_.size(); first = false) {
      const double value = values_[at_++];
      const bool ends = value != value || at_ == values_.size() ||
                        values_[at_] != values_[at_];
      if (value != value && !first) break;
      link.value = value;
      link.no = ends ? node.no : next_id_;
      parts.nodes.push_back(link);
      if (value != value) break;  // an empty set: nothing equals NaN
      if (ends) {
        if (at_ < values_.size()) ++at_;
        break;
      }
      link.id = next_id_++;
    }
    return OkStatus();
  }

 private:
  const std::vector<double> values_;
  size_t at_ = 0;
  int64_t next_id_;
};

Values Ensemble(NodeWriter& node) {
  const Attrs& attrs = node.attrs;
  const auto& features = attrs.Ints("nodes_featureids");
  const auto& yes = attrs.Ints("nodes_truenodeids");
  const auto& no = attrs.Ints("nodes_falsenodeids");
  const auto& yes_is_leaf = attrs.Ints("nodes_trueleafs");
  const auto& no_is_leaf = attrs.Ints("nodes_falseleafs");
  const auto& nan = attrs.Ints("nodes_missing_value_tracks_true");
  const auto& targets = attrs.Ints("leaf_targetids");
  ASSIGN_OR_RETURN(const auto modes, TensorNumbers(node, "nodes_modes"));
  ASSIGN_OR_RETURN(const auto values, TensorNumbers(node, "nodes_splits"));
  ASSIGN_OR_RETURN(const auto weights, TensorNumbers(node, "leaf_weights"));
  ASSIGN_OR_RETURN(const auto sets, TensorNumbers(node, "membership_values"));
  const size_t count = features.size();
  RETURN_IF_ERROR(SameLength("nodes_truenodeids", yes.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_falsenodeids", no.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_trueleafs", yes_is_leaf.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_falseleafs", no_is_leaf.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_modes", modes.size(), count));
  RETURN_IF_ERROR(SameLength("nodes_splits", values.size(), count));
  RETURN_IF_ERROR(SameLength("leaf_weights", weights.size(), targets.size()));
  if (!nan.empty()) {
    RETURN_IF_ERROR(
        SameLength("nodes_missing_value_tracks_true", nan.size(), count));
  }
  const auto num_nodes = static_cast<int64_t>(count);
  const auto num_leaves = static_cast<int64_t>(targets.size());
  TreeParts parts;
  SetReader set_reader(sets, num_nodes + num_leaves);
  const auto child = [&](int64_t id, int64_t is_leaf) -> StatusOr<int64_t> {
    const int64_t most = is_leaf != 0 ? num_leaves : num_nodes;
    if (id < 0 || id >= most) {
      return InvalidArgument("a node's child is number " + std::to_string(id) +
                             " of " + std::to_string(most));
    }
    return is_leaf != 0 ? num_nodes + id : id;
  };
  for (size_t i = 0; i < count; ++i) {
    TreeParts::Node made;
    made.id = static_cast<int64_t>(i);
    made.feature = features[i];
    made.value = values[i];
    made.nan_is_true = !nan.empty() && nan[i] != 0;
    ASSIGN_OR_RETURN(made.yes, child(yes[i], yes_is_leaf[i]));
    ASSIGN_OR_RETURN(made.no, child(no[i], no_is_leaf[i]));
    constexpr double kMember = 6;
    if (modes[i] == kMember) {
      RETURN_IF_ERROR(set_reader.Expand(made, parts));
      continue;
    }
    if (!(modes[i] >= 0 && modes[i] < kMember)) {
      return InvalidArgument("there is no mode " + std::to_string(modes[i]));
    }
    made.mode = static_cast<TreeMode>(modes[i]);
    parts.nodes.push_back(made);
  }
  for (int64_t i = 0; i < num_leaves; ++i) {
    const auto at = static_cast<size_t>(i);
    parts.nodes.push_back({.id = num_nodes + i});
    parts.weights.push_back({0, num_nodes + i, targets[at], weights[at]});
  }
  parts.roots = attrs.Ints("tree_roots");
  if (parts.roots.empty()) return InvalidArgument("there are no tree_roots");
  parts.num_targets = attrs.Int("n_targets", 1);
  ASSIGN_OR_RETURN(const std::string aggregate,
                   Numbered(attrs, "aggregate_function", kAggregates, 1));
  ASSIGN_OR_RETURN(parts.aggregate, TreeAggregateNamed(aggregate));
  ASSIGN_OR_RETURN(const std::string post,
                   Numbered(attrs, "post_transform", kPosts, 0));
  ASSIGN_OR_RETURN(const ValueId sums, EmitTrees(node, parts));
  ASSIGN_OR_RETURN(const ValueId made,
                   EmitPost(node, sums, parts.num_targets, post));
  return std::vector<ValueId>{node.Emit("CastLike", {made, node.in(0)})};
}

constexpr RewriteRow kRows[] = {
    {"TreeEnsemble", Ensemble},
    {"TreeEnsembleClassifier", Classifier},
    {"TreeEnsembleRegressor", Regressor},
};

}  // namespace

Rewrite FindTabularTrees(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
