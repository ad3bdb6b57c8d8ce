// Products with 8 lanes and 16 registers: tiles of 6 rows and 2 vectors are 12
// sums.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/dense/conv.h"
#include "models/cpu/kernels/dense/float_factors.h"
#include "models/cpu/kernels/dense/gemm.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/transpose.h"

namespace millrace::models {
namespace {

struct Shape : FloatFactors<Vec8> {
  using Turn = Transposes<Square8>;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 6;
  static constexpr int64_t kBlockRows = 96;
  static constexpr int64_t kBlockK = 512;
  static constexpr int kUnroll = 1;
};

}  // namespace

template <>
int64_t DenseParts<Avx2Isa>::PackedFloats(int64_t n, int64_t k) {
  return models::Gemm<Shape>::PackedFloats(n, k);
}
template <>
void DenseParts<Avx2Isa>::Pack(const float* w, int64_t n, int64_t k,
                               MatrixStrides strides, int64_t panel_begin,
                               int64_t panel_end, float* packed) {
  models::Gemm<Shape>::Pack(w, n, k, strides, panel_begin, panel_end, packed);
}
template <>
int64_t DenseParts<Avx2Isa>::GemmScratchFloats(const GemmArgs&) {
  return 0;
}
template <>
void DenseParts<Avx2Isa>::Gemm(const GemmArgs& args) {
  models::Gemm<Shape>::Run(args);
}

template <>
int64_t DenseParts<Avx2Isa>::ConvScratchFloats(const ConvArgs& args) {
  return models::Conv<Shape>::ScratchFloats(args);
}
template <>
void DenseParts<Avx2Isa>::Conv(const ConvArgs& args) {
  models::Conv<Shape>::Run(args, args.x.data);
}

}  // namespace millrace::models
