// Attention that is spelled out becomes one operator again:
//
//   scores = MatMul(q * c1, k^T * c2) * c3;  p = Softmax(scores + mask)
//   p = Where(IsNaN(p), 0, p);               y = MatMul(p, v)
//
// with any of the factors, the mask and the guard against rows that see nothing
// left out. Exporters differ in how they transpose k: here k^T is transposed
// back, and the layout pass finds that both cancel.
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

class AttentionPass {
 public:
  explicit AttentionPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.Is("MatMul")) Match(node);
    }
    editor_.Finish();
  }

 private:
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  // What is multiplied by one constant number, and the number times `factor`.
  ValueId Unscaled(ValueId id, double& factor) {
    for (const std::string_view op : {"Mul", "Div"}) {
      const Node* node = editor_.SoleMaker(id, op);
      if (node == nullptr) continue;
      for (size_t side = 0; side < (op == "Mul" ? 2u : 1u); ++side) {
        const Tensor* number = editor_.Constant(node->inputs[1 - side]);
        if (number == nullptr || number->dtype() != DType::kF32 ||
            number->num_elements() != 1) {
          continue;
        }
        const double value = *number->data<float>();
        factor *= op == "Mul" ? value : 1 / value;
        return Unscaled(node->inputs[side], factor);
      }
    }
    return id;
  }

  // Where(IsNaN(p), 0, p): p, if it is that.
  ValueId Unguarded(ValueId id, bool& guarded) {
    Node* where = editor_.SoleMaker(id, "Where");
    if (where == nullptr || !editor_.IsFilledWith(where->inputs[1], 0)) {
      return id;
    }
    const Node* is_nan = editor_.SoleMaker(where->inputs[0], "IsNaN");
    if (is_nan == nullptr || is_nan->inputs[0] != where->inputs[2] ||
        editor_.NumReaders(where->inputs[2]) != 2) {
      return id;
    }
    guarded = true;
    return where->inputs[2];
  }

  void Match(Node& node) {
    bool guarded = false;
    const ValueId p = Unguarded(node.inputs[0], guarded);
    Node* softmax = editor_.Maker(p);
    if (softmax == nullptr || !softmax->Is("Softmax") ||
        editor_.NumReaders(p) != (guarded ? 2 : 1)) {
      return;
    }
    const int rank = ShapeOf(p).rank();
    const int64_t axis = softmax->attrs.Int("axis", -1);
    if (rank != 4 || (axis != -1 && axis != rank - 1)) return;

    ValueId mask = kNoValue;
    double scale = 1;
    ValueId scores = softmax->inputs[0];
    Node* product = Product(scores, scale);
    if (product == nullptr) {
      const Node* sum = editor_.SoleMaker(scores, "Add");
      if (sum == nullptr) return;
      for (size_t side = 0; side < 2 && product == nullptr; ++side) {
        scale = 1;
        product = Product(sum->inputs[side], scale);
        mask = sum->inputs[1 - side];
        scores = sum->inputs[side];
      }
    }
    if (product == nullptr || ShapeOf(scores) != ShapeOf(p)) return;
    const ValueId q = Unscaled(product->inputs[0], scale);
    const ValueId k_t = Unscaled(product->inputs[1], scale);
    const ValueId v = node.inputs[1];
    if (!Fits(q, k_t, v, mask)) return;
    Shape k_shape = ShapeOf(k_t);
    std::swap(k_shape[2], k_shape[3]);
    const ValueId k = editor_.InsertBefore(
        node, *FindOp("Transpose"), {k_t},
        {{"perm", std::vector<int64_t>{0, 1, 3, 2}}}, {DType::kF32, k_shape});
    std::vector<ValueId> inputs = {q, k, v};
    if (mask != kNoValue) inputs.push_back(mask);
    editor_.Rewrite(node, *FindOp("Attention"), std::move(inputs),
                    {{"scale", scale},
                     {"zero_masked", int64_t{guarded}},
                     {"bf16", node.attrs.Int("bf16", 0)}});
  }

  // The product that these scores are, whatever number it is multiplied by.
  Node* Product(ValueId scores, double& scale) {
    double factor = 1;
    Node* product = editor_.SoleMaker(Unscaled(scores, factor), "MatMul");
    if (product != nullptr) scale *= factor;
    return product;
  }

  bool Fits(ValueId q, ValueId k_t, ValueId v, ValueId mask) const {
    for (const ValueId id : {q, k_t, v}) {
      if (ShapeOf(id).rank() != 4 ||
          graph_.value(id).type->dtype != DType::kF32) {
        return false;
      }
    }
    for (int axis = 0; axis < 2; ++axis) {
      if (ShapeOf(q)[axis] != ShapeOf(k_t)[axis] ||
          ShapeOf(q)[axis] != ShapeOf(v)[axis]) {
        return false;
      }
    }
    return mask == kNoValue || (graph_.value(mask).type->dtype == DType::kF32 &&
                                ShapeOf(mask).rank() <= 4);
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void RecogniseAttention(Graph& graph) { AttentionPass(graph).Run(); }

}  // namespace millrace::models::graph
