// An Einsum of two operands is one stack of products, [batch…, rows, inner] by
// [batch…, inner, columns]: its axes are moved and joined, which costs nothing
// where the product reads them in place.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/ops/einsum_equation.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

bool Has(std::string_view labels, char label) {
  return labels.find(label) != labels.npos;
}

class EinsumPass {
 public:
  explicit EinsumPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.Is("Einsum") && node.inputs.size() == 2) SpellOut(node);
    }
    editor_.Finish();
  }

 private:
  // Labels in the order in which a product takes them.
  struct Labels {
    std::string batch, rows, inner, columns;
  };

  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  void SpellOut(Node& node) {
    std::vector<Arg> args;
    for (const ValueId id : node.inputs) {
      const ValueType& type = *graph_.value(id).type;
      if (type.dtype != DType::kF32 || type.shape.num_elements() == 0) return;
      args.push_back({true, type.dtype, type.shape, nullptr});
    }
    auto equation = ParseEquation({node, args});
    if (!equation.ok() || equation->output.empty()) return;
    sizes_ = equation->sizes;
    if (!Fits(*equation, 0, args[0].shape) ||
        !Fits(*equation, 1, args[1].shape)) {
      return;
    }
    const std::string& output = equation->output;
    size_t left = 0;
    Labels labels = LabelsOf(equation->inputs[0], equation->inputs[1], output);
    // The last axis of the result is one of the columns, if it can be.
    if (Has(labels.rows, output.back()) || labels.columns.empty()) {
      left = 1;
      labels = LabelsOf(equation->inputs[1], equation->inputs[0], output);
    }
    const bool elementwise = labels.inner.empty() && labels.columns.empty();
    if (elementwise || labels.batch.size() + 2 > Shape::kMaxRank) return;
    const std::string& a = equation->inputs[left];
    const std::string& b = equation->inputs[1 - left];
    const ValueId x = node.inputs[left];
    const ValueId w = node.inputs[1 - left];
    const ValueId product = labels.batch.empty() &&
                                    editor_.Constant(w) != nullptr &&
                                    (b == labels.inner + labels.columns ||
                                     b == labels.columns + labels.inner)
                                ? Layer(node, labels, x, a, w, b)
                                : Product(node, labels, x, a, w, b);
    const std::string made = labels.batch + labels.rows + labels.columns;
    if (made == output) {
      editor_.Rewrite(node, *FindOp("Reshape"), {product, Sizes(SizesOf(made))},
                      {});
      return;
    }
    const ValueId apart = editor_.InsertBefore(
        node, *FindOp("Reshape"), {product, Sizes(SizesOf(made))}, {},
        {DType::kF32, Shape(SizesOf(made))});
    editor_.Rewrite(node, *FindOp("Transpose"), {apart},
                    {{"perm", OrderOf(made, output)}});
  }

  // Each label once, of its whole size, and in the other operand or the result.
  bool Fits(const Equation& equation, size_t operand,
            const Shape& shape) const {
    const std::string& labels = equation.inputs[operand];
    for (size_t i = 0; i < labels.size(); ++i) {
      const char label = labels[i];
      if (std::count(labels.begin(), labels.end(), label) != 1 ||
          shape[static_cast<int>(i)] != sizes_.at(label) ||
          (!Has(equation.inputs[1 - operand], label) &&
           !Has(equation.output, label))) {
        return false;
      }
    }
    return true;
  }

  static Labels LabelsOf(const std::string& a, const std::string& b,
                         const std::string& output) {
    Labels labels;
    for (const char label : output) {
      const bool shared = Has(a, label) && Has(b, label);
      (shared          ? labels.batch
       : Has(a, label) ? labels.rows
                       : labels.columns) += label;
    }
    for (const char label : b) {
      if (!Has(output, label)) labels.inner += label;
    }
    return labels;
  }

  // A constant matrix as it lies.
  ValueId Layer(const Node& node, const Labels& labels, ValueId x,
                const std::string& x_labels, ValueId weight,
                const std::string& weight_labels) {
    const bool weight_kn = weight_labels == labels.inner + labels.columns;
    const ValueId rows =
        Arranged(node, x, x_labels, "", labels.rows, labels.inner);
    LinearParams params;
    params.weight_kn = weight_kn;
    return editor_.InsertBefore(
        node, fused::kLinear, {rows, weight}, FusedAttrs(params),
        {DType::kF32, {Count(labels.rows), Count(labels.columns)}});
  }

  ValueId Product(const Node& node, const Labels& labels, ValueId x,
                  const std::string& x_labels, ValueId w,
                  const std::string& w_labels) {
    const ValueId a =
        Arranged(node, x, x_labels, labels.batch, labels.rows, labels.inner);
    const ValueId b =
        Arranged(node, w, w_labels, labels.batch, labels.inner, labels.columns);
    std::vector<int64_t> sizes = SizesOf(labels.batch);
    sizes.push_back(Count(labels.rows));
    sizes.push_back(Count(labels.columns));
    return editor_.InsertBefore(node, *FindOp("MatMul"), {a, b}, {},
                                {DType::kF32, Shape(sizes)});
  }

  // [batch…, first joined, second joined].
  ValueId Arranged(const Node& node, ValueId id, const std::string& labels,
                   const std::string& batch, const std::string& first,
                   const std::string& second) {
    const std::string wanted = batch + first + second;
    if (wanted != labels) {
      id = editor_.InsertBefore(node, *FindOp("Transpose"), {id},
                                {{"perm", OrderOf(labels, wanted)}},
                                {DType::kF32, Shape(SizesOf(wanted))});
    }
    std::vector<int64_t> sizes = SizesOf(batch);
    sizes.push_back(Count(first));
    sizes.push_back(Count(second));
    if (Shape(sizes) == ShapeOf(id)) return id;
    return editor_.InsertBefore(node, *FindOp("Reshape"), {id, Sizes(sizes)},
                                {}, {DType::kF32, Shape(sizes)});
  }

  static std::vector<int64_t> OrderOf(const std::string& from,
                                      const std::string& to) {
    std::vector<int64_t> perm;
    for (const char label : to) {
      perm.push_back(static_cast<int64_t>(from.find(label)));
    }
    return perm;
  }
  std::vector<int64_t> SizesOf(const std::string& labels) const {
    std::vector<int64_t> sizes;
    for (const char label : labels) sizes.push_back(sizes_.at(label));
    return sizes;
  }
  int64_t Count(const std::string& labels) const {
    int64_t count = 1;
    for (const char label : labels) count *= sizes_.at(label);
    return count;
  }
  ValueId Sizes(const std::vector<int64_t>& sizes) {
    return editor_.AddConstant("sizes", Tensor::Int64s(sizes));
  }

  Graph& graph_;
  Editor editor_;
  std::map<char, int64_t> sizes_;  // of the equation at hand
};

}  // namespace

void SpellOutEinsums(Graph& graph) { EinsumPass(graph).Run(); }

}  // namespace millrace::models::graph
