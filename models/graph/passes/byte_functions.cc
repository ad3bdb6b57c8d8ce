// What stands between DequantizeLinear and QuantizeLinear and is no layer:
// what moves values moves their bytes, functions of single values are tables,
// and what picks or joins values does so with bytes.
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/lookup_tables.h"

namespace millrace::models::graph {
namespace {

class FunctionsPass {
 public:
  explicit FunctionsPass(Graph& graph) : graph_(graph), editor_(graph) {}

  // Bytes are moved rather than what they stand for.
  void Moves() {
    for (Node& node : graph_.nodes) {
      if (!node.Is("Transpose") && !node.Is("Reshape")) continue;
      if (!DequantisedOf(graph_, editor_, node.inputs[0]) &&
          !MeasuredOf(graph_, editor_, node.inputs[0])) {
        continue;
      }
      std::vector<ValueId> inputs = node.inputs;
      inputs[0] = editor_.Maker(node.inputs[0])->inputs[0];
      const ValueId moved =
          editor_.InsertBefore(node, *node.op, std::move(inputs), node.attrs,
                               {DType::kU8, ShapeOf(node.outputs[0])});
      const Node& maker = *editor_.Maker(node.inputs[0]);
      inputs = maker.inputs;
      inputs[0] = moved;
      editor_.Rewrite(node, *maker.op, std::move(inputs), maker.attrs);
    }
    editor_.Finish();
  }

  void Functions() {
    EachQuantize(graph_, [&](Node& node, const ByteScale& scale) {
      Reshaped(node, scale) || Function(node) || MaxOf(node) || Joined(node) ||
          Mixed(node, scale);
    });
    editor_.Finish();
  }

 private:
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  void Become(Node& node, const ByteFunction& function) {
    if (function.IsIdentity()) {
      editor_.Replace(node.outputs[0], function.of);
      return;
    }
    const ValueId table = editor_.AddConstant(node.name, TableTensor(function));
    editor_.Rewrite(node, fused::kLookup, {function.of, table}, {});
  }

  bool Function(Node& node) {
    const auto function = ByteFunctionOf(graph_, editor_, node, node.inputs[0]);
    if (!function) return false;
    Become(node, *function);
    return true;
  }

  // Reshaping moves no byte.
  bool Reshaped(Node& node, const ByteScale& scale) {
    const Node* reshape = editor_.Maker(node.inputs[0]);
    if (reshape == nullptr || !reshape->Is("Reshape")) return false;
    const auto x = DequantisedOf(graph_, editor_, reshape->inputs[0]);
    if (!x || !(x->scale == scale)) return false;
    editor_.Rewrite(node, *reshape->op, {x->bytes, reshape->inputs[1]},
                    reshape->attrs);
    return true;
  }

  // The largest of rising functions of bytes is the function of the largest.
  bool MaxOf(Node& node) {
    const Node* pool = editor_.Maker(node.inputs[0]);
    if (pool == nullptr || pool->op != &fused::kPool ||
        !ParamsOf<PoolParams>(pool->attrs).is_max) {
      return false;
    }
    const auto function =
        ByteFunctionOf(graph_, editor_, node, pool->inputs[0]);
    if (!function || !function->Rises()) return false;
    const ValueId bytes = BytesOf(node, *function);
    editor_.Rewrite(node, fused::kBytePool, {bytes}, pool->attrs);
    return true;
  }

  // Concat of what is quantised alike, or can be made so byte by byte.
  bool Joined(Node& node) {
    const Node* concat = editor_.Maker(node.inputs[0]);
    if (concat == nullptr || !concat->Is("Concat")) return false;
    std::vector<ByteFunction> functions;
    for (const ValueId id : concat->inputs) {
      const auto function = ByteFunctionOf(graph_, editor_, node, id);
      if (!function) return false;
      functions.push_back(*function);
    }
    std::vector<ValueId> inputs;
    for (const ByteFunction& function : functions) {
      inputs.push_back(BytesOf(node, function));
    }
    editor_.Rewrite(node, *concat->op, std::move(inputs), concat->attrs);
    return true;
  }

  // Weighted sums of pixels of bytes, or of what a ReLU leaves of them.
  bool Mixed(Node& node, const ByteScale& scale) {
    const Node* resize = editor_.Maker(node.inputs[0]);
    if (resize == nullptr || resize->op != &fused::kResize ||
        resize->attrs.Text("coordinate_transformation_mode", "") ==
            "tf_crop_and_resize") {
      return false;
    }
    const Node* relu = editor_.Maker(resize->inputs[0]);
    const bool cut = relu != nullptr && relu->Is("Relu");
    const auto x = DequantisedOf(graph_, editor_,
                                 cut ? relu->inputs[0] : resize->inputs[0]);
    if (!x) return false;
    ByteFunction function{.of = x->bytes};
    for (int32_t i = 0; i < 256; ++i) {
      function.table[static_cast<size_t>(i)] =
          static_cast<uint8_t>(cut && i < x->scale.zero ? x->scale.zero : i);
    }
    std::vector<ValueId> inputs = resize->inputs;
    Attrs attrs = resize->attrs;
    inputs[0] = BytesOf(node, function);
    EditParams<ResizeParams>(attrs) = {.x = x->scale, .y = scale};
    editor_.Rewrite(node, fused::kResize, std::move(inputs), std::move(attrs));
    return true;
  }

  // What the function makes of its bytes, made before the node.
  ValueId BytesOf(const Node& node, const ByteFunction& function) {
    if (function.IsIdentity()) return function.of;
    const ValueId table = editor_.AddConstant(node.name, TableTensor(function));
    return editor_.InsertBefore(node, fused::kLookup, {function.of, table}, {},
                                {DType::kU8, ShapeOf(function.of)});
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void FunctionsOfBytes(Graph& graph) {
  FunctionsPass(graph).Moves();
  FunctionsPass(graph).Functions();
}

}  // namespace millrace::models::graph
