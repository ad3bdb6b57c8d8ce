// The dense tables. Nothing here depends on an instruction set.

#include "models/cpu/arm_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

template <class Isa>
constexpr DenseProducts ProductsOf(int32_t panel) {
  using Parts = DenseParts<Isa>;
  return {
      .panel = panel,
      .costs = {.row_unit = 12, .rows_per_weight = 10, .read = 0, .gather = 2},
      .packed_floats = Parts::PackedFloats,
      .pack = Parts::Pack,
      .gemm_scratch_floats = Parts::GemmScratchFloats,
      .gemm = Parts::Gemm,
      .conv_scratch_floats = Parts::ConvScratchFloats,
      .conv = Parts::Conv,
      .attention_scratch_floats = Parts::AttentionScratchFloats,
      .attention = Parts::Attention,
      .round = nullptr,
      .pack_bf16 = nullptr,
      .max_pool = nullptr,
      .depthwise_bf16 = nullptr,
  };
}

template <class Isa>
constexpr DenseTable TableOf(const char* name, int32_t panel) {
  using Parts = DenseParts<Isa>;
  DenseTable table{};
  static_cast<DenseProducts&>(table) = ProductsOf<Isa>(panel);
  table.name = name;
  table.unary = Parts::UnaryOf;
  table.binary = Parts::BinaryOf;
  table.where = Parts::Where;
  table.mix = Parts::Mix;
  table.lstm = Parts::Lstm;
  table.gru = Parts::Gru;
  table.layer_norm = Parts::LayerNorm;
  table.rms_norm = Parts::RmsNorm;
  table.group_norm = Parts::GroupNorm;
  table.softmax = Parts::Softmax;
  table.reduce = Parts::Reduce;
  table.transpose = Parts::Transpose;
  table.depthwise = Parts::Depthwise;
  table.pool = Parts::Pool;
  table.column_means = Parts::ColumnMeans;
  return table;
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

#if !defined(MILLRACE_NO_TABLE_ABOVE_AVX2)
const DenseTable* Avx512Dense() {
  static constexpr DenseTable kTable = TableOf<Avx512Isa>("avx512", 32);
  return &kTable;
}

const DenseProducts* Avx512Bf16Products() {
  static constexpr DenseProducts kProducts = [] {
    DenseProducts products = ProductsOf<Avx512Bf16Isa>(32);
    products.round = DenseParts<Avx512Bf16Isa>::Round;
    products.pack_bf16 = DenseParts<Avx512Bf16Isa>::PackBf16;
    products.max_pool = DenseParts<Avx512Bf16Isa>::MaxPool;
    products.depthwise_bf16 = DenseParts<Avx512Bf16Isa>::Depthwise;
    return products;
  }();
  return &kProducts;
}

const DenseProducts* AmxBf16Products() {
  static constexpr DenseProducts kProducts = [] {
    DenseProducts products = ProductsOf<AmxBf16Isa>(32);
    // A core multiplies 1.7 T values a second and reads 30 GB from L3.
    products.costs = {
        .row_unit = 16, .rows_per_weight = 60, .read = 20, .gather = 10};
    products.round = DenseParts<Avx512Bf16Isa>::Round;
    products.pack_bf16 = DenseParts<AmxBf16Isa>::PackBf16;
    products.max_pool = DenseParts<Avx512Bf16Isa>::MaxPool;
    products.depthwise_bf16 = DenseParts<Avx512Bf16Isa>::Depthwise;
    return products;
  }();
  return &kProducts;
}
#endif
#elif defined(__aarch64__)
const DenseTable* NeonDense() {
  static constexpr DenseTable kTable = TableOf<NeonIsa>("neon", 16);
  return &kTable;
}
#endif

}  // namespace millrace::models
