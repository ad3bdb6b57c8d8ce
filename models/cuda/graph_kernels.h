// What the kernels of graphs take: values, dense in row-major order where
// nothing else is said, images channels last. ValuesIn and ValuesOut are f32,
// f16 or bf16, all arithmetic is f32. All pointers are the device's, strides
// count values. Each launch is asynchronous on `stream`.
//
// No kernel adds by atomics, and the order of a sum follows from the sizes of
// one row, image or window, never from how many there are: a row's bits are the
// same whatever stands beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cuda/graph_values.h"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

inline constexpr int kMostAxes = 8;
inline constexpr int kMostOperands = 4;       // of a program
inline constexpr int kMostInstructions = 24;  // likewise

// Functions of one value, with parameters a and b. Chosen by number: the order
// is that of the graph runtime's list.
enum class Function : int32_t {
  kNone,
  kRelu,         // max(0, x)
  kClip,         // min(b, max(a, x))
  kLeakyRelu,    // x < 0 ? a * x : x
  kSigmoid,      // 1 / (1 + exp(-x))
  kHardSigmoid,  // min(1, max(0, a * x + b))
  kHardSwish,    // x * min(1, max(0, x / 6 + 0.5))
  kSilu,         // x * sigmoid(x)
  kGeluErf,      // x / 2 * (1 + erf(x / sqrt(2)))
  kGeluTanh,     // Hendrycks and Gimpel 2016, the tanh form
  kTanh,
  kElu,       // x > 0 ? x : a * (exp(x) - 1)
  kSoftplus,  // log(1 + exp(a * x)) / a
  kMish,      // x * tanh(log(1 + exp(x)))
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kNeg,
  kAbs,
  kErf,
  kFloor,
  kCeil,
  kRound,  // to nearest even
  kSin,
  kCos,
};

// A program of a fused elementwise operator. Registers are the operands, then
// the result of each instruction; the last one is the result.
enum class Operation : int32_t {
  kFunction,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
};
struct PointwiseInstruction {
  Operation kind;
  Function f;  // of kFunction
  int32_t x;   // registers
  int32_t y;
  float a;
  float b;
};

// y[i] = program of element i of each operand, which lies at strides of its
// own: 0 where it repeats. Operands and the result may also be bytes that stand
// for (q - zero) * scale.
struct PointwiseArgs {
  int32_t rank;
  int32_t num_operands;
  int32_t num_instructions;
  int64_t count;
  int64_t sizes[kMostAxes];
  int64_t strides[kMostOperands][kMostAxes];
  ValuesIn x[kMostOperands];
  float scales[kMostOperands];  // of bytes
  int32_t zeros[kMostOperands];
  PointwiseInstruction program[kMostInstructions];
  ValuesOut y;
  float y_scale;  // multiplies a result in bytes
  int32_t y_zero;
};

// What the factors of products are rounded to; sums are f32. kTf32 keeps 10 of
// 23 bits behind the point, kF16 as many, kBf16 7.
enum class GraphPrecision : int32_t { kF32, kTf32, kF16, kBf16 };
// Outputs that a block computes on tensor cores. No bits depend on it.
enum class GraphTile : int32_t { kChosen, kSmall, kMiddle, kTall, kLarge };
// Weights as tensor cores read them: [outputs][inputs] rounded, each row filled
// with zeros up to a multiple of this. Where `data` is null the values that the
// graph has are read.
inline constexpr int64_t kPackedUnit = 16;  // bytes
struct PackedWeights {
  const void* data;
  int64_t row_bytes;
};

// Long sums of few outputs on tensor cores are cut into pieces, each one a
// chain from 0, which are added in ascending order. Whether and where follows
// from the factors of an output and the number of outputs, never from rows.
// With few rows blocks share the pieces of a tile, and another kernel adds
// them; else a block adds its own. The bits are the same. Not measured: a piece
// of 512 factors of 16 bits is 16 slabs of a tile.
inline constexpr int64_t kPieceBytes = 1024;  // of factors of an output
inline constexpr int64_t kFewestPieces = 3;
inline constexpr int64_t kMostCutOutputs = 1024;
constexpr int64_t FactorBytes(GraphPrecision precision) {
  return precision == GraphPrecision::kF16 || precision == GraphPrecision::kBf16
             ? 2
             : 4;
}
// Of the sums of `outputs` outputs over so many inputs. 1: they are not cut.
constexpr int64_t PiecesOf(GraphPrecision precision, int64_t inputs,
                           int64_t outputs) {
  if (precision == GraphPrecision::kF32 || outputs > kMostCutOutputs) return 1;
  const int64_t bytes = inputs * FactorBytes(precision);
  const int64_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  return pieces < kFewestPieces ? 1 : pieces;
}
// Blocks that keep a large GPU busy.
inline constexpr int64_t kEnoughBlocks = 128;
inline constexpr int64_t kMostSharedPieces = 1024;
// Floats that blocks which share pieces leave, for `products` products of so
// many rows; 0: there are enough blocks without.
constexpr int64_t PartialSums(int64_t pieces, int64_t rows, int64_t outputs,
                              int64_t products) {
  const int64_t tiles = (rows + 63) / 64 * ((outputs + 63) / 64) * products;
  return pieces == 1 || pieces > kMostSharedPieces || tiles >= kEnoughBlocks
             ? 0
             : pieces * products * rows * outputs;
}

// What becomes of the sum of each output: bias, residual if it is first, the
// function, gate, residual if it is not. Residual and gate lie as the result.
struct GraphEpilogue {
  const float* bias;  // of each output; null: none
  ValuesIn residual;  // likewise
  ValuesIn gate;      // multiplies
  Function f;
  float a;
  float b;
  bool residual_first;
};

// y = A · B for each of a stack of matrices: A [m][k], B [k][n], y [m][n],
// whose outputs lie side by side. B may be packed where the stack has one.
struct ProductArgs {
  GraphPrecision precision;
  PackedWeights packed_b;
  ValuesIn a;
  ValuesIn b;
  ValuesOut y;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t a_row, a_k;
  int64_t b_k, b_n;
  int64_t y_row;
  int32_t rank;  // axes of the stack
  int64_t count;
  int64_t sizes[kMostAxes];
  int64_t a_strides[kMostAxes];
  int64_t b_strides[kMostAxes];
  int64_t y_strides[kMostAxes];
  GraphEpilogue epilogue;
  float* partial;  // PartialSums of the product; null: blocks share no pieces
  int64_t first;   // set by the launch: the product of its first blocks
  GraphTile tile;  // kChosen, but for tests
  bool wide;       // set by the launch: y, residual and gate by four values
};

// A window over depth, height and width; those that an image has not are 1.
struct GraphWindow {
  int32_t in[3];
  int32_t out[3];
  int32_t kernel[3];
  int32_t stride[3];
  int32_t dilation[3];
  int32_t pad[3];      // before the image
  int32_t pad_end[3];  // behind it
};

// x [batch][in…][channels], w [outputs][channels / groups][kernel…], or of a
// transposed convolution w [channels][outputs / groups][kernel…];
// y [batch][out…][outputs]. Sums run over taps, then channels, and so do the
// inputs of packed weights. Groups that GroupsOnTensors refuses are computed in
// f32, whatever the precision.
inline constexpr int64_t kFewestGroupOutputs = 16;
// Tiles have 64 outputs of one group: with fewer outputs tensor cores would
// mostly multiply nothing. Where plain FMAs are faster was not measured.
constexpr bool GroupsOnTensors(int64_t groups, int64_t outputs) {
  return groups == 1 ||
         (groups <= 65535 && outputs / groups >= kFewestGroupOutputs);
}
struct GraphConvArgs {
  GraphPrecision precision;
  PackedWeights packed_w;
  GraphWindow window;
  int64_t batch;
  int32_t channels;
  int32_t outputs;
  int32_t groups;
  bool transposed;
  ValuesIn x;
  const float* w;
  ValuesOut y;
  GraphEpilogue epilogue;
  float* partial;  // PartialSums of one product of pixels by outputs, or null
  GraphTile tile;  // kChosen, but for tests
  bool wide;       // set by the launch: y, residual and gate by four values
};

// y = the sum of `pieces` partial results [pieces][count][m][n], in ascending
// order, and what is behind a product's sums.
struct JoinPiecesArgs {
  const float* partial;
  int64_t pieces;
  int64_t m;
  int64_t n;
  ValuesOut y;
  int64_t y_row;
  int32_t rank;  // axes of the stack
  int64_t count;
  int64_t sizes[kMostAxes];
  int64_t y_strides[kMostAxes];
  GraphEpilogue epilogue;
  bool wide;  // set by the launch: y, residual and gate by four values
};

enum class PoolOf : int32_t { kMax, kMean, kMeanPadded };
struct GraphPoolArgs {
  GraphWindow window;
  int64_t batch;
  int32_t channels;
  PoolOf kind;
  ValuesIn x;
  ValuesOut y;
};

// Softmax, or its logarithm, along the middle axis of [outer][size][inner].
struct SoftmaxArgs {
  int64_t outer, size, inner;
  bool logarithm;
  ValuesIn x;
  ValuesOut y;
};

// Each group of channels of each item is normalised by itself:
// x [items][pixels][channels]. Layer norms are of one pixel and one group.
struct NormalizeArgs {
  int64_t items, pixels, channels, groups;
  bool centred;         // else RMS, without a mean
  const float* weight;  // of each channel; null: 1
  const float* bias;    // null: 0
  float eps;
  ValuesIn x;
  ValuesOut y;
};

enum class ReduceOf : int32_t { kSum, kMean, kMax, kMin, kSumSquare, kL2 };
// [outer][size][inner] to [outer][inner]. A NaN makes an extreme NaN.
struct ReduceArgs {
  int64_t outer, size, inner;
  ReduceOf kind;
  ValuesIn x;
  ValuesOut y;
};

// Where tokens of heads of values lie: token t of head h of item b at
// b * item + t * token + h * size.
struct HeadsAt {
  int64_t item;
  int64_t token;
  int64_t size;
};
inline constexpr int64_t kMostHeadSize = 256;
inline constexpr int64_t kMostTensorHeadSize = 128;  // on tensor cores
// out = softmax(q · K * scale + mask) · V, each query over all keys, in order
// (Milakov and Gimelshein 2018 for the running maximum).
// Queries, keys, weights and values are rounded to `precision`, scores are not;
// heads of more than kMostTensorHeadSize values are computed in f32.
struct GraphAttentionArgs {
  GraphPrecision precision;
  ValuesIn q;
  ValuesIn k;
  ValuesIn v;
  const float* mask;  // null: none
  ValuesOut out;
  HeadsAt q_at, k_at, v_at, out_at;
  int64_t items, heads, key_heads, queries, keys;
  int64_t mask_items;       // a mask's items repeat
  int64_t mask_strides[4];  // of item, head, query, key
  float scale;
  bool causal;          // query i sees keys 0…i
  bool zero_if_hidden;  // a query that sees nothing: 0, else NaN
  bool wide;            // set by the launch: q, k and v are read by 16 bytes
};

// y [outer][count][run] = x [outer][size][run] at indices [count], which count
// from the end where they are negative. What is out of range reads entry 0.
struct GatherSlicesArgs {
  int64_t outer, size, run, count;
  const void* indices;
  bool wide;  // INT64, else INT32
  ValuesIn x;
  ValuesOut y;
};
// found[0] = the first place whose index is out of range, or -1; found[1] = it.
struct CheckIndicesArgs {
  const void* indices;
  bool wide;
  int64_t count;
  int64_t size;
  int64_t* found;  // [2]
};

// to[i * to_strides] = from[i * from_strides] for each index i, in another
// format if that of `to` is another one; bytes are copied to bytes.
struct CopyStridedArgs {
  int32_t rank;
  int64_t count;
  int64_t sizes[kMostAxes];
  int64_t from_strides[kMostAxes];
  int64_t to_strides[kMostAxes];
  ValuesIn from;
  ValuesOut to;
};

enum class CastFrom : int32_t { kI64, kI32, kU8, kBool };
struct CastArgs {
  CastFrom type;
  int64_t count;
  const void* from;
  float* to;
};

// Each returns 0, or the number of the device's error. Nothing to do: 0.
int GraphPointwise(Stream stream, const PointwiseArgs& args);
int GraphProduct(Stream stream, const ProductArgs& args);
int GraphConv(Stream stream, const GraphConvArgs& args);
// What the two above call where the precision is not f32; a convolution needs
// packed weights.
int GraphProductOnTensors(Stream stream, const ProductArgs& args);
int GraphConvOnTensors(Stream stream, const GraphConvArgs& args);
// And what these call behind blocks that share pieces. One piece is a product
// that a library multiplied.
int GraphJoinPieces(Stream stream, const JoinPiecesArgs& args);
int GraphPool(Stream stream, const GraphPoolArgs& args);
int GraphSoftmax(Stream stream, const SoftmaxArgs& args);
int GraphNormalize(Stream stream, const NormalizeArgs& args);
int GraphReduce(Stream stream, const ReduceArgs& args);
int GraphAttention(Stream stream, const GraphAttentionArgs& args);
// What it calls where the precision is not f32.
int GraphAttentionOnTensors(Stream stream, const GraphAttentionArgs& args);
int GraphGather(Stream stream, const GatherSlicesArgs& args);
int GraphCheckIndices(Stream stream, const CheckIndicesArgs& args);
int GraphCopyStrided(Stream stream, const CopyStridedArgs& args);
int GraphCast(Stream stream, const CastArgs& args);

}  // namespace millrace::cuda
