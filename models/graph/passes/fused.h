// The operators that passes make and that only a plan knows: they have no plain
// function and no importer finds them. Activations stand channels last; weights
// stay as the graph has them, for the step that packs them.
//
// An activation is the attribute `activation`, a number of
// cpu/graph_kernels.h's Unary, with `alpha` and `beta`. The order is that of
// its Epilogue: bias, residual if `residual_first`, activation, gate, residual
// otherwise.
#pragma once

#include <cstddef>

#include "models/graph/op.h"

namespace millrace::models::graph::fused {

// Where operands of layers stand; a node may leave out those at its end.
inline constexpr size_t kBias = 2;
inline constexpr size_t kResidual = 3;
inline constexpr size_t kGate = 4;
// Of layers on bytes.
inline constexpr size_t kTable = 5;
inline constexpr size_t kMiddleBias = 6;
inline constexpr size_t kMeasured = 7;  // scale; the zero point is next

// x [n, spatial…, c], weight [o, c/group, k…], bias [o]?, residual?, gate?
// (both of the result's shape): strides, dilations, pads (begins, then ends),
// group.
extern const OpDef kConv;
// The same of x [n, depth, h, w, c], without residual and gate.
extern const OpDef kVolumeConv;
// As kConv with weight [c, o/group, k…] for transposed convolution.
extern const OpDef kConvTranspose;
// x [n, spatial…, c]: kind "max" or "average", kernel_shape, strides,
// dilations, pads, count_include_pad. The result's type tells its sizes.
extern const OpDef kPool;
// x [n, spatial…, c], scale [c]?, bias [c]?: num_groups, epsilon.
extern const OpDef kGroupNorm;
// x [n, h, w, c], then the operands behind x and the attributes of a Resize
// node of [n, c, h, w] that leaves n and c as they are. UINT8, too, where
// pixels are copies; where they are not, with the scales that layers on bytes
// have.
extern const OpDef kResize;
// x […, k], weight [n, k], or [k, n] if `weight_kn`, either with axes apart,
// bias [n]?, residual?, gate?
extern const OpDef kLinear;
// a [batch…, m, k], b [batch…, k, n], both known only in a run, broadcast as
// MatMul does, then bias [n]?, residual?, gate? (of the result's shape). The
// operands lie as they were made: axis i of what is multiplied is axis
// a_perm[i], b_perm[i] of them, and y_perm[i] of the result; of a k, of b k or
// n, and of the result n stands last.
extern const OpDef kMatMul;
// q [b, t, h, d], k [b, s, g, d], v [b, s, g, e], mask? broadcast to
// [b, h, t, s] (FP32 added, or BOOL; a batch of it that divides b repeats):
// scale, is_causal. Result [b, t, h, e].
// With `offsets`, `strides` and `batch_strides`, one for each of q, k, v, these
// lie in something wider, where tokens and members of the batch are so many
// values apart; `sizes` has t, h, d of each. `swapped`: of one of them, tokens
// stand before the batch; `swapped_out`: so they do in the result, [t, b, h,
// e].
extern const OpDef kAttention;
// Chains of elementwise operators: `program` lists op codes and registers.
extern const OpDef kPointwise;

// ---- on bytes: UINT8 that stand for (q - zero) * scale ----
// As kConv and kLinear on bytes x with `x_scale`, `x_zero`, and a weight whose
// integers are kept. Results are bytes with `y_scale`, `y_zero`, or FP32 where
// these are absent; so is the residual, with `residual_scale`, `residual_zero`.
// `middle_scale`, `middle_zero`: the sum with its bias is quantised by these
// before anything else happens; then it is multiplied by `middle_factor` and
// operand 6, [1] or [n], is added. Operands 7 and 8: x's scale and zero point
// where they are measured in each run. Operand 5: 256 bytes, what becomes of
// each byte of the result at last.
extern const OpDef kByteConv;
extern const OpDef kByteLinear;
// As kConvTranspose of one group, likewise; x's scale is a constant.
extern const OpDef kByteConvTranspose;
// As kPool: the largest byte, or the mean of a whole image, which has x_scale,
// x_zero and, unless it is FP32, y_scale, y_zero.
extern const OpDef kBytePool;
// x, table [256]: what becomes of each byte.
extern const OpDef kLookup;
// As kPointwise; `scales` and `zeros` have one number for each operand and then
// one for the result: a scale of 0 says FP32.
extern const OpDef kBytePointwise;

}  // namespace millrace::models::graph::fused
