// The table of all operators, one family a file.
#pragma once

#include <span>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::span<const OpDef> BinaryOps();      // binary.cc: Add, Mul, …
std::span<const OpDef> ActivationOps();  // activation.cc: Relu, Sigmoid, …
std::span<const OpDef> MatMulOps();      // matmul.cc: MatMul, Linear, Gemm
std::span<const OpDef> SoftmaxOps();     // softmax.cc: Softmax, Hardmax, …
std::span<const OpDef> RowNormOps();  // norm_rows.cc: LayerNormalization, …
std::span<const OpDef> ChannelNormOps();    // norm_channels.cc: of [n, c, ...]
std::span<const OpDef> MeanVarianceOps();   // mean_variance.cc
std::span<const OpDef> ConvOps();           // conv.cc: Conv, ConvInteger
std::span<const OpDef> ConvTransposeOps();  // conv_transpose.cc: also Col2Im
std::span<const OpDef> PoolOps();       // pool.cc: MaxPool, AveragePool, LpPool
std::span<const OpDef> WholePoolOps();  // pool_whole.cc: global, adaptive
std::span<const OpDef> ControlFlowOps();  // ../interpret: If, Loop, Scan
std::span<const OpDef> SequenceOps();     // ../interpret: SequenceAt, …
std::span<const OpDef> UnaryOps();        // unary.cc: Exp, Not, …

inline constexpr std::span<const OpDef> (*kOpFamilies[])() = {
    BinaryOps,      ActivationOps,   MatMulOps,   SoftmaxOps,       RowNormOps,
    ChannelNormOps, MeanVarianceOps, ConvOps,     ConvTransposeOps, PoolOps,
    WholePoolOps,   ControlFlowOps,  SequenceOps, UnaryOps,
};

}  // namespace millrace::models::graph
