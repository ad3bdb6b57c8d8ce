// What exporters spell out and later passes need not see:
//
//   Op(Expand(a), b), when Op broadcasts       Op(a, b)
//   Reshape(Reshape(x))                        Reshape(x), or x
//   batches of matrices joined to one axis     products of four dimensions:
//     MatMul(Reshape(a), Reshape(b))             Reshape(MatMul(a, b))
//   Where(Not(Any(s != -inf)), 0, Softmax(s))  Where(IsNaN(p), 0, p)
//
// The last is how decompositions of PyTorch guard rows of attention that see
// nothing; its ONNX exporters write the other form. They differ where s has
// NaNs, which the second hides.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"
#include "models/graph/string_types.h"

namespace millrace::models::graph {
namespace {

constexpr std::array<std::string_view, 17> kBroadcasting = {"MatMul",
                                                            "Add",
                                                            "Sub",
                                                            "Mul",
                                                            "Div",
                                                            "Where",
                                                            "Equal",
                                                            "Less",
                                                            "LessOrEqual",
                                                            "Greater",
                                                            "GreaterOrEqual",
                                                            "And",
                                                            "Or",
                                                            "Max",
                                                            "Min",
                                                            "Pow",
                                                            "Mod"};

class SimplifyPass {
 public:
  explicit SimplifyPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void DropExpands() {
    for (Node& node : graph_.nodes) {
      if (std::count(kBroadcasting.begin(), kBroadcasting.end(),
                     node.op->name) == 0) {
        continue;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        while (DropsExpand(node, i)) {
        }
      }
    }
    editor_.Finish();
  }

  void LiftProducts() {
    for (Node& node : graph_.nodes) {
      if (node.Is("MatMul")) LiftProduct(node);
      if (node.Is("Where")) ShortenGuard(node);
    }
    editor_.Finish();
  }

  void JoinReshapes() {
    for (Node& node : graph_.nodes) {
      if (!node.Is("Reshape")) continue;
      const Node* before = editor_.Maker(node.inputs[0]);
      if (before != nullptr && before->Is("Reshape")) {
        editor_.Rewrite(node, *node.op, {before->inputs[0], Sizes(node)}, {});
      }
      if (ShapeOf(node.inputs[0]) == ShapeOf(node.outputs[0]) &&
          !IsOutput(node.outputs[0])) {
        editor_.Replace(node.outputs[0], node.inputs[0]);
      }
    }
    editor_.Finish();
  }

 private:
  const ValueType& TypeOf(ValueId id) const { return *graph_.value(id).type; }
  const Shape& ShapeOf(ValueId id) const { return TypeOf(id).shape; }

  bool IsOutput(ValueId id) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const Port& port) { return port.value == id; });
  }

  ValueId Sizes(const Node& node) {
    return editor_.AddConstant(node.name,
                               Tensor::Int64s(ShapeOf(node.outputs[0]).dims()));
  }

  // Operand i without its Expand, if the result keeps its type.
  bool DropsExpand(Node& node, size_t i) {
    const Node* expand = editor_.Maker(node.inputs[i]);
    if (expand == nullptr || !expand->Is("Expand")) return false;
    std::vector<ValueId> inputs = node.inputs;
    inputs[i] = expand->inputs[0];
    std::vector<Arg> args;
    for (const ValueId id : inputs) {
      if (id == kNoValue) return false;
      args.push_back({true, TypeOf(id).dtype, ShapeOf(id), nullptr});
    }
    const auto types = InferTypes(Call{node, args});
    if (!types.ok() || types->empty() ||
        (*types)[0] != TypeOf(node.outputs[0])) {
      return false;
    }
    editor_.Rewrite(node, *node.op, std::move(inputs), node.attrs);
    return true;
  }

  // The value [a, b, r, c] that this one, [a·b, r, c], is made of, if so.
  std::optional<ValueId> Unjoined(ValueId id, const Node& before) {
    const Node* maker = editor_.Maker(id);
    if (maker == nullptr || ShapeOf(id).rank() != 3) return std::nullopt;
    if (maker->Is("Reshape")) {
      const Shape& from = ShapeOf(maker->inputs[0]);
      const Shape& to = ShapeOf(id);
      if (from.rank() != 4 || from[2] != to[1] || from[3] != to[2]) {
        return std::nullopt;
      }
      return maker->inputs[0];
    }
    if (editor_.NumReaders(id) != 1) return std::nullopt;
    if (maker->Is("Transpose") &&
        maker->attrs.Ints("perm") == std::vector<int64_t>{0, 2, 1}) {
      const auto of = Unjoined(maker->inputs[0], before);
      if (!of) return std::nullopt;
      Shape shape = ShapeOf(*of);
      std::swap(shape[2], shape[3]);
      return editor_.InsertBefore(before, *maker->op, {*of},
                                  {{"perm", std::vector<int64_t>{0, 1, 3, 2}}},
                                  {TypeOf(id).dtype, shape});
    }
    const int64_t axis = maker->attrs.Int("axis", -1);
    if (maker->Is("Softmax") && (axis == -1 || axis == 2)) {
      const auto of = Unjoined(maker->inputs[0], before);
      if (!of) return std::nullopt;
      return editor_.InsertBefore(before, *maker->op, {*of},
                                  {{"axis", int64_t{-1}}}, TypeOf(*of));
    }
    return std::nullopt;
  }

  void LiftProduct(Node& node) {
    const auto a = Unjoined(node.inputs[0], node);
    if (!a) return;
    const auto b = Unjoined(node.inputs[1], node);
    if (!b) return;
    const Shape& left = ShapeOf(*a);
    const Shape& right = ShapeOf(*b);
    if (left[0] != right[0] || left[1] != right[1]) return;
    const ValueType type = {TypeOf(node.outputs[0]).dtype,
                            {left[0], left[1], left[2], right[3]}};
    const ValueId product =
        editor_.InsertBefore(node, *node.op, {*a, *b}, {}, type);
    editor_.Rewrite(node, *FindOp("Reshape"), {product, Sizes(node)}, {});
  }

  // The operand of the node, of that operator, that made the value.
  ValueId Through(ValueId id, std::string_view op) {
    const Node* maker = id == kNoValue ? nullptr : editor_.Maker(id);
    return maker != nullptr && maker->Is(op) ? maker->inputs[0] : kNoValue;
  }

  bool IsMinusInfinity(ValueId id) const {
    const Tensor* tensor = editor_.Constant(id);
    return tensor != nullptr && tensor->dtype() == DType::kF32 &&
           tensor->num_elements() == 1 &&
           *tensor->data<float>() == -std::numeric_limits<float>::infinity();
  }

  void ShortenGuard(Node& where) {
    const ValueId p = where.inputs[2];
    const ValueId scores = Through(p, "Softmax");
    if (scores == kNoValue || !editor_.IsFilledWith(where.inputs[1], 0)) return;
    ValueId id = where.inputs[0];
    for (const std::string_view op :
         {"Not", "Cast", "ReduceMax", "Cast", "Not"}) {
      id = Through(id, op);
    }
    const Node* equal = id == kNoValue ? nullptr : editor_.Maker(id);
    if (equal == nullptr || !equal->Is("Equal") || equal->inputs[0] != scores ||
        !IsMinusInfinity(equal->inputs[1])) {
      return;
    }
    const ValueId nan = editor_.InsertBefore(where, *FindOp("IsNaN"), {p}, {},
                                             {DType::kBool, ShapeOf(p)});
    editor_.Rewrite(where, *where.op, {nan, where.inputs[1], p}, {});
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void Simplify(Graph& graph) {
  SimplifyPass(graph).DropExpands();
  SimplifyPass(graph).LiftProducts();
  SimplifyPass(graph).JoinReshapes();
}

}  // namespace millrace::models::graph
