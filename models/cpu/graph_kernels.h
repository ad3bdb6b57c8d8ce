// DenseTable: f32 kernels of graphs (encoders, vision, ranking) on a CPU, one
// table for each of scalar, AVX2, AVX-512 and NEON (arm_kernels.h). The sibling
// of llm_kernels.h, which serves language models; like it, plain structs and
// function pointers only.
//
//   const DenseTable& dense = …;  // ChooseDense of isa.h
//   dense.pack(w, n, k, {.n = k, .k = 1}, 0, PanelsOf(n), packed);  // once
//   dense.gemm({.x = x, .ld_x = k, .row_end = m, .w = packed, .n = n, .k = k,
//               .panel_end = panels, .y = y, .ld_y = n});
//
// A call is one thread's part of the work: arguments name the range of rows and
// panels (blocks of outputs), the caller splits. Images are NHWC, matrices
// row-major, all of f32. Unless a function says otherwise, what it writes may
// not overlap what it reads.
//
// ---- Chains -------------------------------------------------------------
// All tables give the same bits, except which NaN a NaN is. A result depends on
// its own row (pixel, channel, query) alone, never on what is computed beside
// it, nor on ranges, strides or alignment.
//
// Products: links of kDenseLink steps of k, ascending, each a chain
// acc = fma(x[k], w[k], acc) from +0; a result is the first link's sum, to
// which the others' are added in order. So its error grows with the length of a
// link and the number of links, not with k (N. Higham, The accuracy of floating
// point summation, 1993, section 4). Between links sums may wait in y: y holds
// garbage meanwhile. A step of bf16 is two values of k. Convolution: k runs
// over (kh, kw, c); what lies in the padding is 0, and is multiplied. Epilogue,
// each step rounded, absent ones left out:
//   v = acc + bias; v = v + residual (if residual_first); v = f(v);
//   v = v * gate; v = v + residual (otherwise).
//
// Lane tree over an array (norms, softmax, sums of rows): lane j of 32 takes
// elements j, j + 32, …, ascending, squares by fma; then lanes j + 16 are added
// to lanes j, then + 8, + 4, + 2, + 1.
//
// max(a, b) is a > b ? a : b, so a NaN in b comes through, one in a does not;
// min likewise with <.
//
// exp: x = min(89, max(-105, x)); n = round-to-nearest-even(x * 1.44269504)
//   the product not rounded before; r and p as in llm_kernels.h; p * 2^n,
//   rounded once. So it overflows to infinity and underflows gradually.
// The other functions are written once, in kernels/dense/math.h, for vectors of
// any width, one lane included; their greatest errors stand there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {

// Steps of k in a link of a product's chain.
inline constexpr int64_t kDenseLink = 64;

// Functions of one value. a and b are parameters, fixed for the whole call.
enum class Unary : int32_t {
  kNone,
  kRelu,         // max(0, x)
  kClip,         // min(b, max(a, x))
  kLeakyRelu,    // x < 0 ? a * x : x
  kSigmoid,      // 1 / (1 + exp(-x))
  kHardSigmoid,  // min(1, max(0, fma(a, x, b)))
  kHardSwish,    // x * min(1, max(0, fma(1 / 6, x, 0.5)))
  kSilu,         // x * sigmoid(x)
  kGeluErf,      // h = x / 2; fma(h, erf(x * sqrt(1 / 2)), h)
  kGeluTanh,     // x / (1 + exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x³)))
  kTanh,
  kElu,       // x > 0 ? x : a * (exp(x) - 1)
  kSoftplus,  // log(1 + exp(a * x)) / a
  kMish,      // x * tanh(log(1 + exp(x)))
  kExp,
  kLog,
  kSqrt,
  kRsqrt,       // 1 / sqrt(x)
  kReciprocal,  // 1 / x
  kNeg,
  kAbs,
  kErf,
  kFloor,
  kCeil,
  kRound,  // to nearest even
  kSin,    // |x| up to 30,000; beyond, digits are lost
  kCos,    // as kSin
};

// Functions of two values.
enum class Binary : int32_t { kAdd, kSub, kMul, kDiv, kMin, kMax };

// A bf16, the upper half of an f32. Where arguments of products have a pointer
// to such beside one to floats, they take one of both and the other is null;
// distances are counted in values. Only products of bf16 know them: what they
// read was rounded before as they round (see Avx512Bf16Products), so that a
// value may be kept in half the bytes between two layers. Rows begin at even
// values.
using Bf16 = uint16_t;

// What happens to a finished sum. Pointers may be null: absent. Rows are those
// of y, columns the outputs.
struct Epilogue {
  const float* bias = nullptr;  // [n]
  Unary f = Unary::kNone;
  float a = 0;
  float b = 0;
  const float* residual = nullptr;      // [m][ld_residual]
  const Bf16* residual_bf16 = nullptr;  // of products
  int64_t ld_residual = 0;
  bool residual_first = false;  // before f
  const float* gate = nullptr;  // [m][ld_gate]
  int64_t ld_gate = 0;
};

// Distances in floats between neighbours of a matrix to be packed.
struct MatrixStrides {
  int64_t n = 0;
  int64_t k = 0;
};

// y[m][n] = epilogue(Σ_k x[m][k] * w[n][k]) for rows [row_begin, row_end) and
// the outputs of panels [panel_begin, panel_end). x, y, residual and gate point
// at row 0 and output 0.
struct GemmArgs {
  const float* x = nullptr;
  const Bf16* x_bf16 = nullptr;
  int64_t ld_x = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  const float* w = nullptr;  // packed, the whole matrix
  int64_t n = 0;
  int64_t k = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  float* y = nullptr;
  Bf16* y_bf16 = nullptr;
  int64_t ld_y = 0;
  Epilogue epilogue = {};
  // Floats from panel to panel of `w`, for a product with some steps of a
  // longer matrix; 0: those of this one.
  int64_t panel_floats = 0;
  float* scratch = nullptr;  // gemm_scratch_floats, aligned to 64 bytes
};

// How a kernel moves over an image, of convolutions and pools. What lies
// outside of the image is padding; how much there is at the bottom and at the
// right follows from the sizes.
struct Window {
  int64_t kernel_h = 1;
  int64_t kernel_w = 1;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t dilation_h = 1;
  int64_t dilation_w = 1;
  int64_t pad_top = 0;
  int64_t pad_left = 0;
};

// One image [height][width][channels], rows and pixels ld_row and ld_pixel
// floats apart. A group of a grouped convolution is an image of fewer channels.
struct Image {
  const float* data = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t ld_row = 0;
  int64_t ld_pixel = 0;
};

// A convolution of one image: output pixels [pixel_begin, pixel_end) of
// out_height * out_width, row by row, for the outputs of a range of panels. y,
// residual and gate are matrices of pixels. The weights are packed from
// [n][kernel_h][kernel_w][channels], that is as w[n][k]. Threads should share
// pixels first: each panel range gathers its pixels anew.
struct ConvArgs {
  Image x;
  const Bf16* x_bf16 = nullptr;  // instead of x.data
  Window window;
  int64_t out_width = 0;
  int64_t pixel_begin = 0;
  int64_t pixel_end = 0;
  const float* w = nullptr;
  int64_t n = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  float* y = nullptr;  // pixel 0, output 0
  Bf16* y_bf16 = nullptr;
  int64_t ld_y = 0;
  Epilogue epilogue = {};
  float* scratch = nullptr;  // conv_scratch_floats, aligned to 64 bytes
};

// A convolution of each channel by itself, for output rows [row_begin, row_end)
// and channels [channel_begin, channel_end), which begin at whole panels. w is
// [kernel_h][kernel_w][channels] as it stands. Chain: the taps that lie in the
// image, (kh, kw) ascending. y is [out_height][out_width][ld_y]; residual and
// gate are matrices of output pixels of the whole image.
struct DepthwiseArgs {
  Image x;
  const Bf16* x_bf16 = nullptr;  // instead of x.data
  Window window;
  const float* w = nullptr;
  int64_t out_width = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t channel_begin = 0;
  int64_t channel_end = 0;
  float* y = nullptr;  // pixel 0 of output row y_row
  int64_t ld_y = 0;    // floats between pixels
  int64_t y_row = 0;
  Epilogue epilogue = {};
};

// kMax: from -infinity, m = x > m or x is NaN ? x : m; a NaN stays. Means
// divide the sum of the taps in the image by their number (kMean) or by the
// number of those in the image and its padding (kMeanPadded).
enum class PoolKind : int32_t { kMax, kMean, kMeanPadded };

// For output rows [row_begin, row_end); the taps in the image, ascending.
struct PoolArgs {
  Image x;
  const Bf16* x_bf16 = nullptr;  // instead of x.data
  Window window;
  PoolKind kind = PoolKind::kMax;
  int64_t pad_bottom = 0;  // of kMeanPadded
  int64_t pad_right = 0;
  int64_t out_width = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  float* y = nullptr;  // pixel 0
  Bf16* y_bf16 = nullptr;
  int64_t ld_y = 0;  // values between pixels
};

// Rows [row_begin, row_end) of n values, normalised; may be done in place.
// weight and bias may be null. With s the tree of a sum (see Lane tree):
//   layer: m = s(x) / n; r = 1 / sqrt(s((x - m)²) / n + eps); v = (x - m) * r
//   RMS: r = 1 / sqrt(s(x²) / n + eps); v = x * r
//   y = fma(v, weight, bias), or what is left of it
struct NormArgs {
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t n = 0;
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n]
  float eps = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// One image of pixels x channels, each group of channels normalised like a row
// of layer norm; a group's sums are chains over pixels of the channels' trees.
// Instance norm has as many groups as channels. May be done in place.
struct GroupNormArgs {
  const float* x = nullptr;  // [pixels][ld_x]
  int64_t ld_x = 0;
  int64_t pixels = 0;
  int64_t channels = 0;
  int64_t groups = 0;
  int64_t group_begin = 0;
  int64_t group_end = 0;
  const float* weight = nullptr;  // [channels]
  const float* bias = nullptr;    // [channels]
  float eps = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// v = x + mask (if any); m = max v; e = exp(v - m), 0 where that is below
// 2^-126; y = e * (1 / tree(e)), or y = (v - m) - log(tree(e)). A row of
// nothing but -infinity, or one with a NaN, becomes NaN. May be done in place.
struct SoftmaxArgs {
  const float* x = nullptr;
  int64_t ld_x = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t n = 0;
  const float* mask = nullptr;
  int64_t ld_mask = 0;  // 0: one row for all
  bool logarithm = false;
  float* y = nullptr;
  int64_t ld_y = 0;
};

// Sums by the tree; a NaN makes an extreme NaN.
enum class ReduceKind : int32_t { kSum, kMean, kMax, kMin };

// Attention of query rows [row_begin, row_end) of one head over all of its
// keys: out = softmax(q * scale · Kᵀ + mask) · V. Keys and values are packed
// once for all rows, the keys k[num_keys][d] and the values v[num_keys][dv] by
//   pack(k, num_keys, d, {.n = ld_k, .k = 1}, …)
//   pack(v, dv, num_keys, {.n = 1, .k = ld_v}, …)
// Chain of a row, over chunks of 512 keys, ascending; a key that the causal
// limit hides, and a chunk whose scores are all -infinity, is passed over:
//   s = Σ (q[i] * scale) * k[i] as a product; s = s + mask; m = max s;
//   p = exp(s - m), 0 for s - m below -69.3 (2^-100); l = tree(p);
//   o = Σ p * v as a product; o = o + 0
//   further chunks: M' = max(M, m); a = exp(M - M'); b = exp(m - M');
//   M = M'; L = fma(L, a, l * b); O = fma(O, a, o * b)
//   out = O * (1 / L)
// A row that sees nothing becomes NaN, as softmax of -infinities is, or 0 where
// `zero_if_hidden`. A hidden key's value is multiplied by 0: it must be finite.
struct AttentionArgs {
  const float* q = nullptr;
  const Bf16* q_bf16 = nullptr;
  int64_t ld_q = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t d = 0;
  int64_t dv = 0;
  int64_t num_keys = 0;
  const float* k = nullptr;  // packed
  const float* v = nullptr;  // packed
  float scale = 1;
  const float* mask = nullptr;  // added to scores
  int64_t ld_mask = 0;          // 0: one row for all
  bool causal = false;          // row i sees keys 0…i + causal_offset
  int64_t causal_offset = 0;
  bool zero_if_hidden = false;
  float* out = nullptr;
  Bf16* out_bf16 = nullptr;
  int64_t ld_out = 0;
  float* scratch = nullptr;  // attention_scratch_floats, aligned to 64 bytes
};

// What decides how a product is best cut for several threads.
struct ProductCosts {
  int64_t row_unit;  // rows of a full register tile
  // Reading a weight costs as much as multiplying it by so many rows.
  int64_t rows_per_weight;
  // What a row costs beside its products, in tenths of a panel that it meets:
  // to read it, as another thread may have written it, and to copy or round it.
  int64_t read;
  int64_t gather;
};

// Products at one precision of their factors. What goes in and comes out, and
// the sums, are f32 at each.
struct DenseProducts {
  // Outputs of one panel; a matrix has ceil(n / panel) of them.
  int32_t panel;
  ProductCosts costs;
  // Floats of a packed matrix; its memory is aligned to 64 bytes.
  int64_t (*packed_floats)(int64_t n, int64_t k);
  // Packs panels [begin, end) of w[n][k]; `packed` is the whole matrix, read by
  // these products alone. Those of f32: [panel][k][outputs], outputs beyond n
  // are 0.
  void (*pack)(const float* w, int64_t n, int64_t k, MatrixStrides strides,
               int64_t panel_begin, int64_t panel_end, float* packed);
  // Of a product of these sizes; pointers and ranges do not matter. 0 for f32.
  int64_t (*gemm_scratch_floats)(const GemmArgs& args);
  void (*gemm)(const GemmArgs& args);
  // Of a convolution of these sizes; pointers and ranges do not matter.
  int64_t (*conv_scratch_floats)(const ConvArgs& args);
  void (*conv)(const ConvArgs& args);

  int64_t (*attention_scratch_floats)(int64_t d, int64_t dv);
  void (*attention)(const AttentionArgs& args);

  // ---- null for f32 ----
  // y[i] = x[i] as these products round it.
  void (*round)(const float* x, int64_t n, Bf16* y);
  // As `pack`, of what was rounded before.
  void (*pack_bf16)(const Bf16* w, int64_t n, int64_t k, MatrixStrides strides,
                    int64_t panel_begin, int64_t panel_end, float* packed);
  // kMax of PoolArgs, from bf16 to bf16.
  void (*max_pool)(const PoolArgs& args);
  // Of bf16, to f32; multiplies in f32.
  void (*depthwise_bf16)(const DepthwiseArgs& args);
};

// Its products are of f32.
struct DenseTable : DenseProducts {
  const char* name;  // "scalar", "avx2", "avx512", "neon"

  // ---- functions of whole arrays ----
  // out[i] = f(x[i]) and f(x[i * step_x], y[i * step_y]), steps of 0 or 1: a
  // step of 0 repeats one value. May be done in place.
  void (*unary)(Unary f, float a, float b, const float* x, int64_t n,
                float* out);
  void (*binary)(Binary f, const float* x, int64_t step_x, const float* y,
                 int64_t step_y, int64_t n, float* out);
  // out[i] = mask[i] ? x[i * step_x] : y[i * step_y].
  void (*where)(const uint8_t* mask, const float* x, int64_t step_x,
                const float* y, int64_t step_y, int64_t n, float* out);
  // out[i] = Σ_r rows[r][i] * weights[r]: a chain of fma over r from +0.
  void (*mix)(const float* const* rows, const float* weights, int64_t count,
              int64_t n, float* out);
  // One step of a recurrent cell for one row of n states.
  //   LSTM, gates [4][n] = i, o, f, u:  c = fma(s(f), c, s(i) * tanh(u));
  //     h = s(o) * tanh(c)
  //   GRU, of the input x [3][n] and of the state r [3][n], each z, r, u:
  //     z = s(xz + rz); v = tanh(fma(s(xr + rr), ru, xu)); h = fma(z, h - v, v)
  void (*lstm)(const float* gates, int64_t n, float* c, float* h);
  void (*gru)(const float* x, const float* r, int64_t n, float* h);

  // ---- rows ----
  void (*layer_norm)(const NormArgs& args);
  void (*rms_norm)(const NormArgs& args);
  void (*group_norm)(const GroupNormArgs& args);
  void (*softmax)(const SoftmaxArgs& args);
  // y[row] of x[rows][n].
  void (*reduce)(ReduceKind kind, const float* x, int64_t rows, int64_t n,
                 int64_t ld_x, float* y);
  // y[c * ld_y + r] = x[r * ld_x + c], whatever the 32 bits mean.
  void (*transpose)(const float* x, int64_t rows, int64_t columns, int64_t ld_x,
                    float* y, int64_t ld_y);

  // ---- windows ----
  void (*depthwise)(const DepthwiseArgs& args);
  void (*pool)(const PoolArgs& args);
  // Means of columns, y[n] of x[rows][n]: chains of 64 rows each, then a chain
  // of those, divided by rows. Pools a whole image; threads share columns.
  void (*column_means)(const float* x, int64_t rows, int64_t n, int64_t ld_x,
                       float* y);
};

// The tables compiled in; null where the compiler has no such target. Whether
// this machine may run one is isa.h's business.
const DenseTable* ScalarDense();
const DenseTable* Avx2Dense();
const DenseTable* Avx512Dense();

// Products whose factors, x and w, are rounded to bf16: to nearest even, what
// is smaller than 2^-126 to 0. Chain of an output, over pairs of k ascending:
//   acc = fma(x[k + 1], w[k + 1], acc); acc = fma(x[k], w[k], acc)
// from +0; an odd last one stands beside 0, and sums below 2^-126 become 0. The
// rest is as above: a result depends on its own row alone. Attention rounds
// q * scale, k, p and v; chunks begin at pairs. Null where the
// compiler has no such target.
const DenseProducts* Avx512Bf16Products();

// The same in tiles; of the same rounding, but another chain, that of the amx
// table in llm_kernels.h: steps of 32 values of k, from 0 on and ascending, a
// last one filled up with zeros; in each step two sums from +0, of its even and
// of its odd values, ascending, u_j = fma(x[k], w[k], u_j); then
//   acc = acc + (u_0 + u_1)
// from +0. Links do not cut it. Sums below 2^-126 become 0 at each of these
// additions. Attention, with e = 1.44269504 and [ ] rounded first:
//   s = (Σ q * k) * [scale * e]; s = fma(mask, e, s); m = max s
//   p = 2^(s - m), 0 below -126, by n = floor(x), r = x - n and
//     1 + r * (c1 + r * (c2 + r * (c3 + r * c4))), fma each, times 2^n, with
//     c = 6.93044841e-1, 2.41280213e-1, 5.22424690e-2, 1.34266876e-2
// and as above otherwise, the same powers where chunks are merged.
const DenseProducts* AmxBf16Products();

}  // namespace millrace::models
