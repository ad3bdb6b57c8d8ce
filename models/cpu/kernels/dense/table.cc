// The dense tables. Nothing here depends on an instruction set.

#include "models/cpu/dense.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

template <class Isa>
constexpr DenseTable TableOf(const char* name, int32_t panel) {
  using Parts = DenseParts<Isa>;
  return {
      .name = name,
      .panel = panel,
      .packed_floats = Parts::PackedFloats,
      .pack = Parts::Pack,
      .gemm = Parts::Gemm,
      .conv_scratch_floats = Parts::ConvScratchFloats,
      .conv = Parts::Conv,
      .attention_scratch_floats = Parts::AttentionScratchFloats,
      .attention = Parts::Attention,
      .unary = Parts::UnaryOf,
      .binary = Parts::BinaryOf,
      .where = Parts::Where,
      .mix = Parts::Mix,
      .lstm = Parts::Lstm,
      .gru = Parts::Gru,
      .layer_norm = Parts::LayerNorm,
      .rms_norm = Parts::RmsNorm,
      .group_norm = Parts::GroupNorm,
      .softmax = Parts::Softmax,
      .reduce = Parts::Reduce,
      .transpose = Parts::Transpose,
      .depthwise = Parts::Depthwise,
      .pool = Parts::Pool,
      .column_means = Parts::ColumnMeans,
  };
}

}  // namespace

const DenseTable* ScalarDense() {
  static constexpr DenseTable kTable = TableOf<ScalarIsa>("scalar", 16);
  return &kTable;
}

#if defined(__x86_64__)
const DenseTable* Avx2Dense() {
  static constexpr DenseTable kTable = TableOf<Avx2Isa>("avx2", 16);
  return &kTable;
}

const DenseTable* Avx512Dense() {
  static constexpr DenseTable kTable = TableOf<Avx512Isa>("avx512", 32);
  return &kTable;
}
#else
const DenseTable* Avx2Dense() { return nullptr; }
const DenseTable* Avx512Dense() { return nullptr; }
#endif

}  // namespace millrace::models
