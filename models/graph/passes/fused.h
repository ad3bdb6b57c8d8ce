// The operators that passes make and that only a plan knows: they have no plain
// function and no importer finds them. Images stand channels last; weights stay
// as the graph has them, for the step that packs them. Their parameters are
// typed: fused_params.h.
#pragma once

#include <cstddef>

#include "models/graph/fused_params.h"
#include "models/graph/op.h"

namespace millrace::models::graph::fused {

// Where operands of layers stand; a node may leave out those at its end.
inline constexpr size_t kBias = 2;
inline constexpr size_t kResidual = 3;
inline constexpr size_t kGate = 4;
// Of layers on UINT8.
inline constexpr size_t kTable = 5;       // [256]: what becomes of each result
inline constexpr size_t kMiddleBias = 6;  // [1] or [n]
inline constexpr size_t kMeasured = 7;    // x's scale; its zero point is next

// x [n, spatial…, c], weight [o, c/group, k…], bias [o]?, residual?, gate?
// (both of the result's shape). ConvParams.
extern const OpDef kConv;
// The same of x [n, depth, h, w, c], without residual and gate. ConvParams.
extern const OpDef kVolumeConv;
// As kConv with weight [c, o/group, k…] for transposed convolution. ConvParams.
extern const OpDef kConvTranspose;
// x [n, spatial…, c]. Its sizes are those of the result's type. PoolParams.
extern const OpDef kPool;
// x [n, spatial…, c], scale [c]?, bias [c]?. GroupNormParams.
extern const OpDef kGroupNorm;
// x [n, h, w, c], then the operands behind x and the attributes of a Resize
// node of [n, c, h, w] that leaves n and c as they are. UINT8, too, where
// pixels are copies; where they are not, with scales. ResizeParams.
extern const OpDef kResize;
// x […, k], weight [n, k], or [k, n] if weight_kn, either with axes apart,
// bias [n]?, residual?, gate?. LinearParams.
extern const OpDef kLinear;
// a [batch…, m, k], b [batch…, k, n], both known only in a run, broadcast as
// MatMul does, then bias [n]?, residual?, gate? (of the result's shape). The
// operands lie as they were made: of a, k stands last, of b k or n, and of the
// result n. MatMulParams.
extern const OpDef kMatMul;
// q [b, t, h, d], k [b, s, g, d], v [b, s, g, e], mask? broadcast to
// [b, h, t, s] (FP32 added, or BOOL; a batch of it that divides b repeats).
// Result [b, t, h, e]. AttentionParams.
extern const OpDef kAttention;
// Chains of elementwise operators. PointwiseParams.
extern const OpDef kPointwise;

// ---- on UINT8 that stand for (q - zero) * scale ----
// As kConv and kLinear on UINT8 x, with a weight whose integers are kept.
// Results are UINT8, or FP32 where the quantization has no y; so is the
// residual. ConvParams, LinearParams.
extern const OpDef kByteConv;
extern const OpDef kByteLinear;
// As kConvTranspose of one group, likewise; x's scale is a constant.
extern const OpDef kByteConvTranspose;
// As kPool: the largest byte, or the mean of a whole image, which has an x and,
// unless it is FP32, a y. PoolParams.
extern const OpDef kBytePool;
// x, table [256]: what becomes of each byte.
extern const OpDef kLookup;
// As kPointwise with scales. PointwiseParams.
extern const OpDef kBytePointwise;

}  // namespace millrace::models::graph::fused
