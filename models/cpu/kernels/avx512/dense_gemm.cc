// Products with 16 lanes and 32 registers: tiles of 12 rows and 2 vectors are
// 24 sums.

#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/conv.h"
#include "models/cpu/kernels/dense/float_factors.h"
#include "models/cpu/kernels/dense/gemm.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/transpose.h"

namespace millrace::models {
namespace {

struct Shape : FloatFactors<Vec16> {
  using Turn = Transposes<Square8>;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 12;
  static constexpr int64_t kBlockRows = 192;
  static constexpr int64_t kBlockK = 768;
  static constexpr int kUnroll = 2;
};

}  // namespace

template <>
int64_t DenseParts<Avx512Isa>::PackedFloats(int64_t n, int64_t k) {
  return models::Gemm<Shape>::PackedFloats(n, k);
}
template <>
void DenseParts<Avx512Isa>::Pack(const float* w, int64_t n, int64_t k,
                                 MatrixStrides strides, int64_t panel_begin,
                                 int64_t panel_end, float* packed) {
  models::Gemm<Shape>::Pack(w, n, k, strides, panel_begin, panel_end, packed);
}
template <>
int64_t DenseParts<Avx512Isa>::GemmScratchFloats(const GemmArgs&) {
  return 0;
}
template <>
void DenseParts<Avx512Isa>::Gemm(const GemmArgs& args) {
  models::Gemm<Shape>::Run(args);
}

template <>
int64_t DenseParts<Avx512Isa>::ConvScratchFloats(const ConvArgs& args) {
  return models::Conv<Shape>::ScratchFloats(args);
}
template <>
void DenseParts<Avx512Isa>::Conv(const ConvArgs& args) {
  models::Conv<Shape>::Run(args, args.x.data);
}

}  // namespace millrace::models
