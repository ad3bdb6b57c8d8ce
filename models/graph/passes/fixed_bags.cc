// Bags that are all of one size need no offsets: what torch.nn.EmbeddingBag
// makes of indices [bags, size] becomes an EmbeddingBag of those, whose bags
// are rows of the batch.
#include <utility>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kIndices = 1;
constexpr size_t kOffsets = 2;
constexpr size_t kWeights = 3;

// How many indices each bag has; 0 where that differs or is not known.
int64_t SizeOfBags(const Node& node, const Tensor* offsets, int64_t indices) {
  if (offsets == nullptr || offsets->num_elements() == 0) return 0;
  const bool has_end = node.attrs.Int("include_last_offset", 0) != 0;
  const int64_t count = offsets->num_elements();
  const int64_t bags = has_end ? count - 1 : count;
  if (bags == 0 || indices == 0 || indices % bags != 0) return 0;
  const int64_t size = indices / bags;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = offsets->dtype() == DType::kI64
                           ? offsets->data<int64_t>()[i]
                           : int64_t{offsets->data<int32_t>()[i]};
    if (at != i * size) return 0;
  }
  return size;
}

}  // namespace

void FixBags(Graph& graph) {
  Editor editor(graph);
  for (Node& node : graph.nodes) {
    if (!node.Is("EmbeddingBag") || node.inputs.size() <= kOffsets ||
        node.inputs[kOffsets] == kNoValue) {
      continue;
    }
    const Shape shape = graph.value(node.inputs[kIndices]).type->shape;
    const int64_t size = SizeOfBags(
        node, editor.Constant(node.inputs[kOffsets]), shape.num_elements());
    if (size == 0) continue;
    const int64_t dims[] = {shape.num_elements() / size, size};
    std::vector<ValueId> inputs = node.inputs;
    inputs[kOffsets] = kNoValue;
    for (const size_t i : {kIndices, kWeights}) {
      if (i >= inputs.size() || inputs[i] == kNoValue) continue;
      const ValueType type{graph.value(inputs[i]).type->dtype,
                           {dims[0], dims[1]}};
      const ValueId to = editor.AddConstant(node.name, Tensor::Int64s(dims));
      inputs[i] = editor.InsertBefore(node, *FindOp("Reshape"), {inputs[i], to},
                                      {}, type);
    }
    Attrs attrs = node.attrs;
    attrs.Set("include_last_offset", int64_t{0});
    editor.Rewrite(node, *node.op, std::move(inputs), std::move(attrs));
  }
  editor.Finish();
}

}  // namespace millrace::models::graph
