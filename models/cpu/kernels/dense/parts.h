// The functions of the dense tables. Each instruction set's files define their
// specialisations, compiled with its flags; the table is put together by a file
// that has none of them, since it is read on every machine.
#pragma once

#include "models/cpu/graph_kernels.h"
#include "models/cpu/winograd_kernels.h"

namespace millrace::models {

struct ScalarIsa;
struct Avx2Isa;
struct Avx512Isa;
struct Avx512Bf16Isa;  // products alone
struct AmxBf16Isa;     // as well
struct NeonIsa;

template <class Isa>
struct DenseParts {
  static int64_t PackedFloats(int64_t n, int64_t k);
  static void Pack(const float* w, int64_t n, int64_t k, MatrixStrides strides,
                   int64_t panel_begin, int64_t panel_end, float* packed);
  static int64_t GemmScratchFloats(const GemmArgs& args);
  static void Gemm(const GemmArgs& args);
  static int64_t ConvScratchFloats(const ConvArgs& args);
  static void Conv(const ConvArgs& args);
  static int64_t AttentionScratchFloats(int64_t d, int64_t dv);
  static void Attention(const AttentionArgs& args);
  // Of bf16 alone.
  static void Round(const float* x, int64_t n, Bf16* y);
  static void PackBf16(const Bf16* w, int64_t n, int64_t k,
                       MatrixStrides strides, int64_t panel_begin,
                       int64_t panel_end, float* packed);
  static void MaxPool(const PoolArgs& args);

  static void UnaryOf(Unary f, float a, float b, const float* x, int64_t n,
                      float* out);
  static void BinaryOf(Binary f, const float* x, int64_t step_x, const float* y,
                       int64_t step_y, int64_t n, float* out);
  static void Where(const uint8_t* mask, const float* x, int64_t step_x,
                    const float* y, int64_t step_y, int64_t n, float* out);
  static void Mix(const float* const* rows, const float* weights, int64_t count,
                  int64_t n, float* out);
  static void Lstm(const float* gates, int64_t n, float* c, float* h);
  static void Gru(const float* x, const float* r, int64_t n, float* h);

  static void LayerNorm(const NormArgs& args);
  static void RmsNorm(const NormArgs& args);
  static void GroupNorm(const GroupNormArgs& args);
  static void Softmax(const SoftmaxArgs& args);
  static void Reduce(ReduceKind kind, const float* x, int64_t rows, int64_t n,
                     int64_t ld_x, float* y);
  static void Transpose(const float* x, int64_t rows, int64_t columns,
                        int64_t ld_x, float* y, int64_t ld_y);

  static void Depthwise(const DepthwiseArgs& args);
  static void Pool(const PoolArgs& args);
  static void ColumnMeans(const float* x, int64_t rows, int64_t n, int64_t ld_x,
                          float* y);
  // Of winograd_kernels.h.
  static void WinogradIn(const WinogradInput& args);
  static void WinogradOut(const WinogradOutput& args);
};

}  // namespace millrace::models
