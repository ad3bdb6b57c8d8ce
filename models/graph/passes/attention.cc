// Attention that is spelled out becomes one operator again:
//
//   scores = MatMul(q * c1, k^T * c2) * c3;  p = Softmax(scores + mask)
//   p = Where(IsNaN(p), 0, p);               y = MatMul(p, v)
//
// with any of the factors, the mask and the guard against rows that see nothing
// left out. There may be several masks, scores may be cut into other stacks of
// matrices between them (a batch of images as a batch of windows), and a
// constant for each head may multiply the product. Exporters differ in how they
// transpose k: here k^T is transposed back, and the layout pass finds that both
// cancel.
#include <optional>
#include <utility>
#include <vector>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

// Elements of a constant that is made for each set of input sizes.
constexpr int64_t kMostMade = int64_t{1} << 20;

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
    if (rank < 3 || (axis != -1 && axis != rank - 1)) return;

    Parts parts;
    if (!Find(softmax->inputs[0], 0, parts)) return;
    const ValueId q = Unscaled(parts.product->inputs[0], parts.scale);
    const ValueId k_t = Unscaled(parts.product->inputs[1], parts.scale);
    const ValueId v = node.inputs[1];
    const Heads heads = HeadsOf(ShapeOf(p));
    for (const ValueId id : {q, k_t, v}) {
      if (ShapeOf(id).rank() < 3 || !(HeadsOf(ShapeOf(id)) == heads) ||
          graph_.value(id).type->dtype != DType::kF32) {
        return;
      }
    }
    std::optional<Shape> mask_shape;
    for (const Mask& mask : parts.masks) {
      const auto both = Broadcast(mask_shape.value_or(mask.shape), mask.shape);
      if (!both.ok()) return;
      mask_shape = *both;
    }
    std::vector<int64_t> swap;
    for (int i = 0; i < ShapeOf(k_t).rank(); ++i) swap.push_back(i);
    std::swap(swap[swap.size() - 2], swap.back());
    Shape k_shape = ShapeOf(k_t);
    std::swap(k_shape[k_shape.rank() - 2], k_shape[k_shape.rank() - 1]);
    const ValueId k = editor_.InsertBefore(node, *FindOp("Transpose"), {k_t},
                                           {{"perm", std::move(swap)}},
                                           {DType::kF32, k_shape});
    std::vector<ValueId> inputs;
    for (const ValueId id : {q, k, v}) {
      const Shape& x = ShapeOf(id);
      inputs.push_back(
          As(node, id, {heads.batch, heads.heads, x[x.rank() - 2], x.back()}));
    }
    if (parts.factor != kNoValue) {
      const ValueId factor = As(node, parts.factor, {1, heads.heads, 1, 1});
      inputs[0] =
          editor_.InsertBefore(node, *FindOp("Mul"), {inputs[0], factor}, {},
                               *graph_.value(inputs[0]).type);
    }
    if (mask_shape) inputs.push_back(SumOf(node, parts.masks));
    Attrs attrs = {{"scale", parts.scale},
                   {"zero_masked", int64_t{guarded}},
                   {"bf16", node.attrs.Int("bf16", 0)}};
    const Shape& y = ShapeOf(node.outputs[0]);
    if (y.rank() == 4) {
      editor_.Rewrite(node, *FindOp("Attention"), std::move(inputs),
                      std::move(attrs));
      return;
    }
    const ValueId made = editor_.InsertBefore(
        node, *FindOp("Attention"), std::move(inputs), std::move(attrs),
        {DType::kF32, {heads.batch, heads.heads, y[y.rank() - 2], y.back()}});
    editor_.Rewrite(node, *FindOp("Reshape"), {made, Sizes(y)}, {});
  }

  // ---- scores: a product, scaled, with masks added, its stack cut anyhow ----
  // A stack of matrices as a batch of heads.
  struct Heads {
    int64_t batch;
    int64_t heads;
    bool operator==(const Heads&) const = default;
  };
  static Heads HeadsOf(const Shape& x) {
    const int rank = x.rank();
    if (rank == 3) return {x[0], 1};
    return {x.Product(0, rank - 3), x[rank - 3]};
  }
  struct Mask {
    ValueId id;
    Shape shape;  // [batch or a part that repeats, heads, tokens, keys]
  };
  struct Parts {
    Node* product = nullptr;
    double scale = 1;
    ValueId factor = kNoValue;  // one for each head, of the queries
    std::vector<Mask> masks;
  };

  // `depth`: of sums and other shapes between softmax and product.
  bool Find(ValueId scores, int depth, Parts& parts) {
    parts.product = Product(scores, parts.scale);
    if (parts.product != nullptr) return true;
    if (depth > 6) return false;
    const Shape& shape = ShapeOf(scores);
    if (Node* reshape = editor_.SoleMaker(scores, "Reshape")) {
      const Shape& before = ShapeOf(reshape->inputs[0]);
      return before.rank() >= 3 && HeadsOf(before) == HeadsOf(shape) &&
             before.back() == shape.back() &&
             before[before.rank() - 2] == shape[shape.rank() - 2] &&
             Find(reshape->inputs[0], depth + 1, parts);
    }
    if (Node* mul = editor_.SoleMaker(scores, "Mul")) {
      return FindScaled(*mul, depth, parts);
    }
    Node* sum = editor_.SoleMaker(scores, "Add");
    if (sum == nullptr) return false;
    for (size_t side = 0; side < 2; ++side) {
      const ValueId mask = sum->inputs[1 - side];
      const std::optional<Shape> as = MaskShape(mask, shape);
      Parts found;
      if (!as || ShapeOf(sum->inputs[side]) != shape ||
          !Find(sum->inputs[side], depth + 1, found)) {
        continue;
      }
      parts = std::move(found);
      parts.masks.push_back({mask, *as});
      return true;
    }
    return false;
  }

  // A product times a constant for each head.
  bool FindScaled(const Node& mul, int depth, Parts& parts) {
    for (size_t side = 0; side < 2; ++side) {
      const ValueId factor = mul.inputs[1 - side];
      const Shape& scores = ShapeOf(mul.inputs[side]);
      const Shape& x = ShapeOf(factor);
      if (editor_.Constant(factor) == nullptr || x.rank() < 3 ||
          x.num_elements() != x[x.rank() - 3] ||
          graph_.value(factor).type->dtype != DType::kF32 ||
          scores != ShapeOf(mul.outputs[0]) ||
          HeadsOf(scores).heads != x.num_elements() || scores.rank() < 4) {
        continue;
      }
      // What is added behind a factor is not multiplied, so only a product may
      // stand before it.
      Parts found;
      if (!Find(mul.inputs[side], depth + 1, found) || !found.masks.empty() ||
          found.factor != kNoValue) {
        continue;
      }
      parts = std::move(found);
      parts.factor = factor;
      return true;
    }
    return false;
  }

  // What is added to scores, as [batch, heads, tokens, keys] whose batch may
  // repeat: leading axes are whole or 1, and those that are whole come last.
  std::optional<Shape> MaskShape(ValueId mask, const Shape& scores) const {
    const Shape& x = ShapeOf(mask);
    const int rank = scores.rank();
    if (graph_.value(mask).type->dtype != DType::kF32 || x.rank() == 0 ||
        x.rank() > rank || x.back() != scores.back()) {
      return std::nullopt;
    }
    const auto size = [&](int axis) {
      const int own = axis - (rank - x.rank());
      return own < 0 ? 1 : x[own];
    };
    const int leading = rank == 3 ? 1 : rank - 3;
    int64_t batch = 1;
    bool repeats = false;
    for (int i = leading; i-- > 0;) {
      if (size(i) == 1) {
        repeats = repeats || scores[i] > 1;
      } else if (repeats) {
        return std::nullopt;
      } else {
        batch *= size(i);
      }
    }
    return Shape{batch, rank == 3 ? 1 : size(rank - 3), size(rank - 2),
                 size(rank - 1)};
  }

  // ---- new values, before a node ----
  ValueId Sizes(const Shape& shape) {
    return editor_.AddConstant("sizes", Tensor::Int64s(shape.dims()));
  }
  ValueId As(const Node& node, ValueId id, const Shape& shape) {
    if (ShapeOf(id) == shape) return id;
    const Tensor* constant = editor_.Constant(id);
    if (constant != nullptr && constant->num_elements() <= kMostMade) {
      const Tensor sizes = Tensor::Int64s(shape.dims());
      const ValueId made = Computed("Reshape", {constant, &sizes});
      if (made != kNoValue) return made;
    }
    return editor_.InsertBefore(node, *FindOp("Reshape"), {id, Sizes(shape)},
                                {}, {DType::kF32, shape});
  }
  // Masks differ in what they repeat; of small constants, a constant.
  ValueId SumOf(const Node& node, const std::vector<Mask>& masks) {
    ValueId sum = As(node, masks[0].id, masks[0].shape);
    for (size_t i = 1; i < masks.size(); ++i) {
      const ValueId next = As(node, masks[i].id, masks[i].shape);
      const Shape shape = *Broadcast(ShapeOf(sum), ShapeOf(next));
      const Tensor* a = editor_.Constant(sum);
      const Tensor* b = editor_.Constant(next);
      if (a != nullptr && b != nullptr && shape.num_elements() <= kMostMade) {
        const ValueId made = Computed("Add", {a, b});
        if (made != kNoValue) {
          sum = made;
          continue;
        }
      }
      sum = editor_.InsertBefore(node, *FindOp("Add"), {sum, next}, {},
                                 {DType::kF32, shape});
    }
    return sum;
  }
  ValueId Computed(std::string_view op,
                   const std::vector<const Tensor*>& operands) {
    Node node;
    node.op = FindOp(op);
    node.outputs = {0};
    auto made = RunNode(node, operands);
    return made.ok() ? editor_.AddConstant("mask", std::move((*made)[0]))
                     : kNoValue;
  }

  // The product that these scores are, whatever number it is multiplied by.
  Node* Product(ValueId scores, double& scale) {
    double factor = 1;
    Node* product = editor_.SoleMaker(Unscaled(scores, factor), "MatMul");
    if (product != nullptr) scale *= factor;
    return product;
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void RecogniseAttention(Graph& graph) { AttentionPass(graph).Run(); }

}  // namespace millrace::models::graph
