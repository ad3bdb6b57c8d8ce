// Linear models and support vector machines of ai.onnx.ml.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "models/graph/ml/support_vectors.h"
#include "models/graph/onnx/tabular.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

// x times the coefficients [targets, features], plus the intercepts.
StatusOr<ValueId> Product(NodeWriter& node, int64_t targets) {
  const auto& coefficients = node.attrs.Floats("coefficients");
  const auto& intercepts = node.attrs.Floats("intercepts");
  const auto count = static_cast<int64_t>(coefficients.size());
  if (targets < 1 || count == 0 || count % targets != 0) {
    return InvalidArgument("there are " + std::to_string(count) +
                           " coefficients for " + std::to_string(targets) +
                           " targets");
  }
  if (!intercepts.empty() &&
      static_cast<int64_t>(intercepts.size()) != targets) {
    return InvalidArgument("there are " + std::to_string(intercepts.size()) +
                           " intercepts for " + std::to_string(targets) +
                           " targets");
  }
  const int64_t features = count / targets;
  Tensor weight = Tensor::Make(DType::kF32, {features, targets});
  for (int64_t t = 0; t < targets; ++t) {
    for (int64_t f = 0; f < features; ++f) {
      weight.data<float>()[f * targets + t] = static_cast<float>(
          coefficients[static_cast<size_t>(t * features + f)]);
    }
  }
  const ValueId x = AsFloat(node, node.in(0));
  const ValueId y = node.Emit("MatMul", {x, node.Constant(std::move(weight))});
  if (intercepts.empty()) return y;
  const std::vector<float> bias(intercepts.begin(), intercepts.end());
  return node.Emit("Add", {y, node.Constant(Tensor::From<float>(
                                  DType::kF32, {targets}, std::span(bias)))});
}

Values LinearRegressor(NodeWriter& node) {
  const int64_t targets = node.attrs.Int("targets", 1);
  ASSIGN_OR_RETURN(const ValueId y, Product(node, targets));
  const std::string post(node.attrs.Text("post_transform", "NONE"));
  RETURN_IF_ERROR(PostTransformNamed(post).status());
  if (post == "NONE") return std::vector<ValueId>{y};
  return std::vector<ValueId>{node.Emit("ml.PostTransform", {y},
                                        {{"post_transform", AttrValue(post)}})};
}

Values LinearClassifier(NodeWriter& node) {
  ASSIGN_OR_RETURN(auto head, ReadLabels(node, "classlabels_"));
  const size_t intercepts = node.attrs.Floats("intercepts").size();
  const size_t targets = intercepts > 0 ? intercepts : head->num_labels();
  if (targets == 1) {
    head->binary = head->num_labels() == 2 ? ClassifierHead::Binary::kLinear
                                           : ClassifierHead::Binary::kSingle;
  } else if (targets != head->num_labels()) {
    return InvalidArgument("there are " + std::to_string(targets) +
                           " rows of coefficients for " +
                           std::to_string(head->num_labels()) + " labels");
  }
  ASSIGN_OR_RETURN(const ValueId y,
                   Product(node, static_cast<int64_t>(targets)));
  return EmitClassify(node, y, std::move(head));
}

Status ReadKernel(NodeWriter& node, SupportVectors& svm) {
  ASSIGN_OR_RETURN(svm.kernel,
                   SvmKernelNamed(node.attrs.Text("kernel_type", "LINEAR")));
  const auto& params = node.attrs.Floats("kernel_params");
  if (params.size() > 0) svm.gamma = params[0];
  if (params.size() > 1) svm.coef0 = params[1];
  if (params.size() > 2) svm.degree = params[2];
  const auto& vectors = node.attrs.Floats("support_vectors");
  svm.vectors.assign(vectors.begin(), vectors.end());
  svm.coefficients = node.attrs.Floats("coefficients");
  svm.rho = node.attrs.Floats("rho");
  if (svm.rho.empty()) return InvalidArgument("there is no rho");
  return node.charge(
      static_cast<int64_t>(vectors.size() * sizeof(float) +
                           svm.coefficients.size() * sizeof(double)));
}

// num_features from the vectors, or from rows of coefficients.
Status CountFeatures(SupportVectors& svm, int64_t num_coefficients,
                     int64_t linear_rows) {
  const auto coefficients = static_cast<int64_t>(svm.coefficients.size());
  if (svm.num_vectors > 0) {
    const auto values = static_cast<int64_t>(svm.vectors.size());
    if (values == 0 || values % svm.num_vectors != 0 ||
        coefficients != num_coefficients) {
      return InvalidArgument(
          "there are " + std::to_string(values) + " values of " +
          std::to_string(svm.num_vectors) + " support vectors and " +
          std::to_string(coefficients) + " coefficients instead of " +
          std::to_string(num_coefficients));
    }
    svm.num_features = values / svm.num_vectors;
    return OkStatus();
  }
  if (coefficients == 0 || coefficients % linear_rows != 0) {
    return InvalidArgument("there are " + std::to_string(coefficients) +
                           " coefficients for " + std::to_string(linear_rows) +
                           " classes");
  }
  svm.num_features = coefficients / linear_rows;
  svm.kernel = SupportVectors::Kernel::kLinear;
  return OkStatus();
}

Values SvmRegressor(NodeWriter& node) {
  auto svm = std::make_shared<SupportVectors>();
  RETURN_IF_ERROR(ReadKernel(node, *svm));
  svm->num_vectors = node.attrs.Int("n_supports", 0);
  svm->one_class = node.attrs.Int("one_class", 0) != 0;
  if (svm->num_vectors < 0) return InvalidArgument("n_supports is negative");
  RETURN_IF_ERROR(CountFeatures(*svm, svm->num_vectors, 1));
  const std::string post(node.attrs.Text("post_transform", "NONE"));
  RETURN_IF_ERROR(PostTransformNamed(post).status());
  return std::vector<ValueId>{
      node.Emit("ml.SvmRegressor",
                {node.in(0), DataValue<SupportVectors>(node, std::move(svm))})};
}

Values SvmClassifier(NodeWriter& node) {
  auto svm = std::make_shared<SupportVectors>();
  RETURN_IF_ERROR(ReadKernel(node, *svm));
  ASSIGN_OR_RETURN(auto head, ReadLabels(node, "classlabels_"));
  ASSIGN_OR_RETURN(head->post, PostTransformNamed(
                                   node.attrs.Text("post_transform", "NONE")));
  svm->vectors_of = node.attrs.Ints("vectors_per_class");
  constexpr int64_t kMost = 1 << 28;
  for (const int64_t count : svm->vectors_of) {
    if (count < 0 || count > kMost) {
      return InvalidArgument("a class has " + std::to_string(count) +
                             " support vectors");
    }
    svm->num_vectors += count;
  }
  const bool all_positive =
      std::all_of(svm->coefficients.begin(), svm->coefficients.end(),
                  [](double value) { return value >= 0; });
  using Binary = ClassifierHead::Binary;
  svm->prob_a = node.attrs.Floats("prob_a");
  svm->prob_b = node.attrs.Floats("prob_b");
  svm->head = std::move(*head);
  const int64_t classes = svm->num_classes();
  if (classes < 1) return InvalidArgument("there are no classes");
  if (svm->num_vectors > 0) {
    if (classes < 2) return InvalidArgument("one class has no pairs");
    if (classes == 2) {
      svm->head.binary = all_positive ? Binary::kHalf : Binary::kZero;
    }
    const auto pairs = static_cast<size_t>(classes * (classes - 1) / 2);
    if (svm->rho.size() != pairs) {
      return InvalidArgument("there are " + std::to_string(svm->rho.size()) +
                             " values of rho for " + std::to_string(pairs) +
                             " pairs of classes");
    }
    if (!svm->prob_a.empty() &&
        (svm->prob_a.size() != pairs || svm->prob_b.size() != pairs)) {
      return InvalidArgument("prob_a and prob_b are not one for each pair");
    }
  }
  RETURN_IF_ERROR(
      CountFeatures(*svm, svm->num_vectors * (classes - 1), classes));
  return node.EmitAll(
      "ml.SvmClassifier",
      {node.in(0), DataValue<SupportVectors>(node, std::move(svm))},
      {true, true});
}

constexpr RewriteRow kRows[] = {
    {"LinearClassifier", LinearClassifier},
    {"LinearRegressor", LinearRegressor},
    {"SVMClassifier", SvmClassifier},
    {"SVMRegressor", SvmRegressor},
};

}  // namespace

Rewrite FindTabularScores(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
