// Queries, keys and values that one layer made side by side are read where they
// stand: a part of such a layer's result that keeps whole tokens apart by a
// fixed way needs no copy, nor does one whose batch stands behind its tokens
// ([t, b, h, d], as torch's own attention has them). A result that is wanted
// that way is written that way.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

struct View {
  ValueId of;
  int64_t offset;    // values
  int64_t ld;        // values from token to token
  int64_t ld_batch;  // and from one of the batch to the next
};

// [t, b, h, d] and [b, t, h, d] become each other.
bool SwapsBatch(const Node& node) {
  return node.Is("Transpose") &&
         node.attrs.Ints("perm") == std::vector<int64_t>{1, 0, 2, 3};
}

class ViewPass {
 public:
  explicit ViewPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Run() {
    for (Node& node : graph_.nodes) {
      if (node.op == &fused::kAttention) Read(node);
      if (SwapsBatch(node)) Write(node);
    }
    editor_.Finish();
  }

 private:
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  void Read(Node& node) {
    std::vector<ValueId> inputs = node.inputs;
    std::array<AttentionOperand, 3> views;
    bool any = false;
    bool swapped = false;
    for (size_t i = 0; i < 3; ++i) {
      const Shape& shape = ShapeOf(inputs[i]);
      const int64_t stride = shape[2] * shape[3];
      views[i] = {.tokens = shape[1],
                  .heads = shape[2],
                  .size = shape[3],
                  .stride = stride,
                  .batch_stride = shape[1] * stride};
      const std::optional<View> view = ViewOf(inputs[i], swapped);
      if (!view) continue;
      any = true;
      inputs[i] = view->of;
      views[i].offset = view->offset;
      views[i].stride = view->ld;
      views[i].batch_stride = view->ld_batch;
    }
    if (!any) return;
    Attrs attrs = node.attrs;
    auto& params = EditParams<AttentionParams>(attrs);
    params.views = views;
    params.swapped = swapped;
    editor_.Rewrite(node, fused::kAttention, std::move(inputs),
                    std::move(attrs));
  }

  // Attention, whose result a node swaps.
  void Write(Node& node) {
    const Node* maker =
        editor_.SoleMaker(node.inputs[0], fused::kAttention.name);
    if (maker == nullptr ||
        ParamsOf<AttentionParams>(maker->attrs).swapped_out) {
      return;
    }
    Attrs attrs = maker->attrs;
    EditParams<AttentionParams>(attrs).swapped_out = true;
    editor_.Rewrite(node, fused::kAttention, maker->inputs, std::move(attrs));
  }

  // Of [batch, tokens, heads, size].
  std::optional<View> ViewOf(ValueId id, bool& swapped) {
    const Shape& shape = ShapeOf(id);
    Node* maker = editor_.Maker(id);
    if (maker == nullptr || !SwapsBatch(*maker)) return PartOf(id);
    const ValueId before = maker->inputs[0];
    std::optional<View> view = PartOf(before);
    if (!view) {
      const int64_t ld = shape[2] * shape[3];
      view = View{before, 0, ld, shape[0] * ld};
    }
    // What was a token of one batch is one of the batch of one token.
    swapped = true;
    return View{view->of, view->offset, view->ld_batch, view->ld};
  }

  // What is cut out of a whole along an axis.
  struct Cut {
    ValueId of;
    int axis;
    int64_t first;
    int64_t size;
  };

  // Of [batch, tokens, heads, size], through nodes that only rename axes.
  std::optional<View> PartOf(ValueId id) {
    const Shape& wanted = ShapeOf(id);
    const int64_t tokens = wanted[0] * wanted[1];
    const int64_t floats = wanted[2] * wanted[3];
    Node* maker = editor_.Maker(id);
    while (maker != nullptr && maker->op->facts.reshapes) {
      id = maker->inputs[0];
      maker = editor_.Maker(id);
    }
    if (maker == nullptr) return std::nullopt;
    const std::optional<Cut> cut =
        maker->Is("Split") ? PartOfSplit(*maker, id) : PartOfSlice(*maker);
    if (!cut || graph_.value(cut->of).constant != nullptr) return std::nullopt;
    const Shape& x = ShapeOf(cut->of);
    const int64_t inner = x.Product(cut->axis + 1, x.rank());
    if (cut->axis == 0 || x.Product(0, cut->axis) != tokens ||
        cut->size * inner != floats || (wanted[0] > 1 && x[0] != wanted[0])) {
      return std::nullopt;
    }
    const int64_t ld = x[cut->axis] * inner;
    return View{cut->of, cut->first * inner, ld, wanted[1] * ld};
  }

  std::optional<Cut> PartOfSlice(const Node& node) const {
    if (!node.Is("Slice") || node.inputs.size() < 4) return std::nullopt;
    const Shape& x = ShapeOf(node.inputs[0]);
    const std::optional<int64_t> axis = One(node.inputs[3]);
    const std::optional<int64_t> start = One(node.inputs[1]);
    const bool steps = node.inputs.size() > 4 && node.inputs[4] != kNoValue;
    if (!axis || !start || (steps && One(node.inputs[4]) != 1)) {
      return std::nullopt;
    }
    const int at = static_cast<int>(*axis < 0 ? *axis + x.rank() : *axis);
    const int64_t first =
        std::clamp<int64_t>(*start < 0 ? *start + x[at] : *start, 0, x[at]);
    return Cut{node.inputs[0], at, first, ShapeOf(node.outputs[0])[at]};
  }

  std::optional<Cut> PartOfSplit(const Node& node, ValueId part) const {
    const int rank = ShapeOf(node.inputs[0]).rank();
    const int64_t axis = node.attrs.Int("axis", 0);
    const int at = static_cast<int>(axis < 0 ? axis + rank : axis);
    int64_t first = 0;
    for (const ValueId id : node.outputs) {
      if (id == part) return Cut{node.inputs[0], at, first, ShapeOf(id)[at]};
      if (id == kNoValue) break;  // of unknown size
      first += ShapeOf(id)[at];
    }
    return std::nullopt;
  }

  std::optional<int64_t> One(ValueId id) const {
    const Tensor* constant = id == kNoValue ? nullptr : editor_.Constant(id);
    if (constant == nullptr || constant->num_elements() != 1 ||
        constant->dtype() != DType::kI64) {
      return std::nullopt;
    }
    return *constant->data<int64_t>();
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void ReadHeadsInPlace(Graph& graph) { ViewPass(graph).Run(); }

}  // namespace millrace::models::graph
