// The table of all operators, one group a file.
#pragma once

#include <span>

#include "models/graph/op.h"

namespace millrace::models::graph {

std::span<const OpDef> BinaryOps();      // binary.cc: Add, Mul, …
std::span<const OpDef> ActivationOps();  // activation.cc: Relu, Sigmoid, …
std::span<const OpDef> GatedOps();       // gated.cc: PRelu, Glu
std::span<const OpDef> MatMulOps();      // matmul.cc: MatMul, Linear, Gemm
std::span<const OpDef> SoftmaxOps();     // softmax.cc: Softmax, Hardmax, …
std::span<const OpDef> RowNormOps();  // norm_rows.cc: LayerNormalization, …
std::span<const OpDef> ChannelNormOps();    // norm_channels.cc: of [n, c, ...]
std::span<const OpDef> MeanVarianceOps();   // mean_variance.cc
std::span<const OpDef> ConvOps();           // conv.cc: Conv, ConvInteger
std::span<const OpDef> ConvTransposeOps();  // conv_transpose.cc: also Col2Im
std::span<const OpDef> PoolOps();       // pool.cc: MaxPool, AveragePool, LpPool
std::span<const OpDef> AttentionOps();  // attention.cc
std::span<const OpDef> RotaryOps();     // rotary.cc: RotaryEmbedding
std::span<const OpDef> RnnOps();        // rnn.cc: RNN, GRU, LSTM
std::span<const OpDef> QuantizeOps();   // quantize.cc: QuantizeLinear, …
std::span<const OpDef> QLinearOps();    // qlinear.cc: MatMulInteger, QLinear…
std::span<const OpDef> ResizeOps();     // resize.cc: Resize, Upsample
std::span<const OpDef> GridSampleOps();  // grid_sample.cc: also AffineGrid
std::span<const OpDef> RegionOps();  // regions.cc: RoiAlign, NonMaxSuppression
std::span<const OpDef> RegionPoolOps();    // region_pools.cc: MaxRoiPool, …
std::span<const OpDef> EmbeddingBagOps();  // embedding_bag.cc
std::span<const OpDef> SignalOps();        // signal.cc: DFT, STFT
std::span<const OpDef> WindowOps();        // windows.cc: HannWindow, …
std::span<const OpDef> EinsumOps();        // einsum.cc
std::span<const OpDef> DeformConvOps();    // deform_conv.cc
std::span<const OpDef> DetOps();           // det.cc
std::span<const OpDef> RandomOps();  // random.cc: RandomNormal, Bernoulli, …
std::span<const OpDef> WholePoolOps();     // pool_whole.cc: global, adaptive
std::span<const OpDef> ControlFlowOps();   // ../interpret: If, Loop, Scan
std::span<const OpDef> SequenceOps();      // ../interpret: SequenceAt, …
std::span<const OpDef> UnaryOps();         // unary.cc: Exp, Not, …
std::span<const OpDef> SpecialOps();       // special.cc: Lgamma, …
std::span<const OpDef> IndexOps();         // index.cc: Index, IndexPut
std::span<const OpDef> ViewOps();          // views.cc: SliceScatter, AsStrided
std::span<const OpDef> AlongAxisOps();     // along_axis.cc: ArgMax, TopK, …
std::span<const OpDef> RunningOps();       // running.cc: CumMax, …
std::span<const OpDef> LinearSystemOps();  // linear_systems.cc: Solve, …
std::span<const OpDef> CastOps();          // cast.cc: Cast, CastLike
std::span<const OpDef> ConcatOps();        // concat.cc: Concat, Split
std::span<const OpDef> DynamicOps();       // dynamic.cc: NonZero, Unique, …
std::span<const OpDef> GatherOps();        // gather.cc: Gather, GatherND, …
std::span<const OpDef> LogicOps();         // logic.cc: And, BitShift, …
std::span<const OpDef> PadOps();           // pad.cc: Pad
std::span<const OpDef> PowerOps();         // power.cc: Pow, Mod
std::span<const OpDef> ReduceOps();        // reduce.cc: ReduceSum, …
std::span<const OpDef> ReshapeOps();       // reshape.cc: Reshape, Squeeze, …
std::span<const OpDef> ScatterOps();       // scatter.cc: ScatterND, …
std::span<const OpDef> SelectOps();        // select.cc: Where, Clip
std::span<const OpDef> ShapeOps();      // shape_of.cc: Shape, Range, Trilu, …
std::span<const OpDef> SliceOps();      // slice.cc: Slice, Expand, Tile
std::span<const OpDef> TransposeOps();  // transpose.cc: Transpose, …
std::span<const OpDef> VariadicOps();   // variadic.cc: Max, Sum, …

// One a line, whatever the formatter thinks.
// clang-format off
inline constexpr std::span<const OpDef> (*kOpGroups[])() = {
    BinaryOps,
    ActivationOps,
    MatMulOps,
    SoftmaxOps,
    RowNormOps,
    ChannelNormOps,
    MeanVarianceOps,
    ConvOps,
    ConvTransposeOps,
    PoolOps,
    WholePoolOps,
    ControlFlowOps,
    SequenceOps,
    UnaryOps,
    SpecialOps,
    IndexOps,
    ViewOps,
    GatedOps,
    AttentionOps,
    RotaryOps,
    RnnOps,
    QuantizeOps,
    QLinearOps,
    ResizeOps,
    GridSampleOps,
    RegionOps,
    RegionPoolOps,
    EmbeddingBagOps,
    SignalOps,
    WindowOps,
    EinsumOps,
    DeformConvOps,
    DetOps,
    RandomOps,
    AlongAxisOps,
    RunningOps,
    LinearSystemOps,
    CastOps,
    ConcatOps,
    DynamicOps,
    GatherOps,
    LogicOps,
    PadOps,
    PowerOps,
    ReduceOps,
    ReshapeOps,
    ScatterOps,
    SelectOps,
    ShapeOps,
    SliceOps,
    TransposeOps,
    VariadicOps,
};
// clang-format on

}  // namespace millrace::models::graph
