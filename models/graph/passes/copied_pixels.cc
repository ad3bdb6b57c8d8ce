#include "models/graph/passes/copied_pixels.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

// Of a fused Resize: the sizes [n, c, h, w] it may be given.
constexpr size_t kSizes = 3;

bool Has(const Node& node, size_t operand) {
  return node.inputs.size() > operand && node.inputs[operand] != kNoValue;
}

// A layer of which each pixel of the result needs one pixel.
bool TakesSinglePixels(const Node& node) {
  if (node.op == &fused::kLookup) return true;
  if ((node.op != &fused::kConv && node.op != &fused::kByteConv) ||
      Has(node, fused::kResidual) || Has(node, fused::kGate)) {
    return false;
  }
  const NodeWindow& window = ParamsOf<ConvParams>(node.attrs).window;
  const auto all = [](const std::vector<int64_t>& list, int64_t number) {
    return std::all_of(list.begin(), list.end(),
                       [=](int64_t v) { return v == number; });
  };
  return all(window.kernel, 1) && all(window.strides, 1) && all(window.pads, 0);
}

class CopiesPass {
 public:
  explicit CopiesPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Quantise() {
    EachQuantize(graph_, [&](Node& node, const ByteScale&) { Swap(node); });
    editor_.Finish();
  }

  void Layers() {
    for (Node& node : graph_.nodes) {
      if (TakesSinglePixels(node)) Swap(node);
    }
    editor_.Finish();
  }

 private:
  // `node` reads what was copied: a node like it reads what is to be copied.
  void Swap(Node& node) {
    const Node* copies = editor_.SoleMaker(node.inputs[0], fused::kResize.name);
    if (copies == nullptr || !EnlargesByCopies(*copies, graph_)) return;
    const ValueType out = *graph_.value(node.outputs[0]).type;
    Shape small = graph_.value(copies->inputs[0]).type->shape;
    small[small.rank() - 1] = out.shape.back();
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = copies->inputs[0];
    const ValueId pixels = editor_.InsertBefore(
        node, *node.op, std::move(inputs), node.attrs, {out.dtype, small});
    std::vector<ValueId> resize = copies->inputs;
    resize[0] = pixels;
    if (Has(*copies, kSizes)) {
      resize[kSizes] = WithChannels(*copies, out.shape.back());
    }
    const Attrs attrs = copies->attrs;
    editor_.Rewrite(node, fused::kResize, std::move(resize), attrs);
  }

  // The sizes, where they name channels, with so many of them.
  ValueId WithChannels(const Node& copies, int64_t channels) {
    const ValueId id = copies.inputs[kSizes];
    const Tensor& sizes = *editor_.Constant(id);
    if (copies.attrs.Has("axes") || sizes.num_elements() != 4) return id;
    Tensor changed = Tensor::Make(DType::kI64, {4});
    std::copy_n(sizes.data<int64_t>(), 4, changed.data<int64_t>());
    changed.data<int64_t>()[1] = channels;
    return editor_.AddConstant(copies.name, std::move(changed));
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

bool CopiesPixels(const Node& node) {
  return node.op == &fused::kResize &&
         node.attrs.Text("mode", "nearest") == "nearest" &&
         node.attrs.Text("coordinate_transformation_mode", "half_pixel") !=
             "tf_crop_and_resize";
}

bool EnlargesByCopies(const Node& node, const Graph& graph) {
  return CopiesPixels(node) &&
         graph.value(node.outputs[0]).type->shape.num_elements() >=
             graph.value(node.inputs[0]).type->shape.num_elements();
}

void QuantiseBeforeCopies(Graph& graph) { CopiesPass(graph).Quantise(); }
void LayersBeforeCopies(Graph& graph) { CopiesPass(graph).Layers(); }

}  // namespace millrace::models::graph
