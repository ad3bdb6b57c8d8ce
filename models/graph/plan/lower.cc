#include "models/graph/plan/lower.h"

#include "models/graph/passes/fused.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/trees_step.h"

namespace millrace::models::graph {
namespace {

using Maker = StatusOr<std::unique_ptr<Step>> (*)(const Node&,
                                                  const LowerContext&);
struct Row {
  const OpDef* op;
  Maker make;
};
constexpr Row kFused[] = {
    {&fused::kAttention, MakeAttentionStep},
    {&fused::kByteConv, MakeByteLayerStep},
    {&fused::kByteConvTranspose, MakeByteTransposedStep},
    {&fused::kByteLinear, MakeByteLayerStep},
    {&fused::kBytePointwise, MakeByteAffineStep},
    {&fused::kBytePool, MakeBytePoolStep},
    {&fused::kConv, MakeConvStep},
    {&fused::kConvTranspose, MakeConvTransposeStep},
    {&fused::kGroupNorm, MakeGroupNormStep},
    {&fused::kLinear, MakeLinearStep},
    {&fused::kLookup, MakeLookupStep},
    {&fused::kMatMul, MakeMatMulStep},
    {&fused::kPointwise, MakePointwiseStep},
    {&fused::kPool, MakePoolStep},
    {&fused::kResize, MakeResizeStep},
    {&fused::kVolumeConv, MakeVolumeConvStep},
};

// What the dense kernels may do better than the plain function.
struct FasterRow {
  std::string_view op;
  Maker make;
};
constexpr FasterRow kFaster[] = {
    {"GRU", MakeRecurrentStep},
    {"LSTM", MakeRecurrentStep},
    {"LayerNormalization", MakeNormStep},
    {"RMSNormalization", MakeNormStep},
    {"ReduceL2", MakeReduceStep},
    {"ReduceMax", MakeReduceStep},
    {"ReduceMean", MakeReduceStep},
    {"ReduceMin", MakeReduceStep},
    {"ReduceSum", MakeReduceStep},
    {"ReduceSumSquare", MakeReduceStep},
    {"Concat", MakeConcatStep},
    {"EmbeddingBag", MakeBagStep},
    {"Softmax", MakeSoftmaxStep},
    {"ml.Trees", MakeTreesStep},
    {"LogSoftmax", MakeSoftmaxStep},
    {"Transpose", MakeTransposeStep},
    {"Transpose", MakeByteTransposeStep},
    {"DynamicQuantizeLinear", MakeMeasureStep},
    {"QuantizeLinear", MakeQuantizeStep},
    {"DequantizeLinear", MakeQuantizeStep},
};

}  // namespace

StatusOr<std::unique_ptr<Step>> Lower(const Node& node,
                                      const LowerContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<Step> outside,
                   MakeOneDnnStep(node, context));
  if (outside != nullptr) return outside;
  for (const Row& row : kFused) {
    if (row.op == node.op) return row.make(node, context);
  }
  for (const FasterRow& row : kFaster) {
    if (!node.Is(row.op)) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<Step> step, row.make(node, context));
    if (step != nullptr) return step;
  }
  CHECK(node.op->run != nullptr, "every fused operator has a step");
  return MakePlainStep(node, context);
}

}  // namespace millrace::models::graph
