// Makers of steps, one for each operator that has a faster way than its plain
// function. Those of fused operators always answer; others may decline with
// null.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

// ---- which nodes the steps below stand for ----
// A fused convolution of each channel by itself.
bool IsDepthwise(const Node& node, const Graph& graph);
// A transposed convolution whose kernels stand side by side, so that each pixel
// makes a square of its own.
bool StandsSideBySide(const Node& node, const Graph& graph);
// A normalisation of rows of FP32 that have the weights in common.
bool IsRowNorm(const Node& node, const Graph& graph);

StatusOr<std::unique_ptr<Step>> MakeAttentionStep(const Node& node,
                                                  const LowerContext& context);
// Of tables that the kernels take.
StatusOr<std::unique_ptr<Step>> MakeBagStep(const Node& node,
                                            const LowerContext& context);
// Of operands in floats or bytes and a result in bytes: one pass where the
// program allows it, MakePointwiseStep otherwise.
StatusOr<std::unique_ptr<Step>> MakeByteAffineStep(const Node& node,
                                                   const LowerContext& context);
// Of both kinds of layers on bytes.
StatusOr<std::unique_ptr<Step>> MakeByteLayerStep(const Node& node,
                                                  const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeBytePoolStep(const Node& node,
                                                 const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeByteTransposedStep(
    const Node& node, const LowerContext& context);
// Of rows at a distance, or of one piece each.
StatusOr<std::unique_ptr<Step>> MakeConcatStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeConvStep(const Node& node,
                                             const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeConvTransposeStep(
    const Node& node, const LowerContext& context);
// Of kernels that overlap; MakeConvTransposeStep calls it.
StatusOr<std::unique_ptr<Step>> MakeTransposedPhasesStep(
    const Node& node, const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeGroupNormStep(const Node& node,
                                                  const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeLinearStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeLookupStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeMatMulStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeNormStep(const Node& node,
                                             const LowerContext& context);
// Null where our kernels keep the layer.
StatusOr<std::unique_ptr<Step>> MakeOneDnnStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakePoolStep(const Node& node,
                                             const LowerContext& context);
// Of operands and a result in floats or bytes.
StatusOr<std::unique_ptr<Step>> MakePointwiseStep(const Node& node,
                                                  const LowerContext& context);
// DynamicQuantizeLinear.
StatusOr<std::unique_ptr<Step>> MakeMeasureStep(const Node& node,
                                                const LowerContext& context);
// QuantizeLinear and DequantizeLinear by one scale.
StatusOr<std::unique_ptr<Step>> MakeQuantizeStep(const Node& node,
                                                 const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeRecurrentStep(const Node& node,
                                                  const LowerContext& context);
// Of FP32 over neighbouring axes.
StatusOr<std::unique_ptr<Step>> MakeReduceStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeResizeStep(const Node& node,
                                               const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeSoftmaxStep(const Node& node,
                                                const LowerContext& context);
// Of a convolution that Winograd's way is faster for, null otherwise;
// MakeConvStep calls it.
StatusOr<std::unique_ptr<Step>> MakeWinogradStep(const Node& node,
                                                 const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeVolumeConvStep(const Node& node,
                                                   const LowerContext& context);
// Images of few planes of bytes become channels last.
StatusOr<std::unique_ptr<Step>> MakeByteTransposeStep(
    const Node& node, const LowerContext& context);
StatusOr<std::unique_ptr<Step>> MakeTransposeStep(const Node& node,
                                                  const LowerContext& context);

}  // namespace millrace::models::graph
