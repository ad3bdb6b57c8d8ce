// Products of bf16: tiles as those of f32 with AVX-512, two steps of k a word.

#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/avx512bf16/bf16_panels.h"
#include "models/cpu/kernels/dense/conv.h"
#include "models/cpu/kernels/dense/gemm.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/transpose.h"

namespace millrace::models {
namespace {

struct Bf16Shape : Bf16Factors {
  using Turn = Transposes<Square8>;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 12;
  static constexpr int64_t kBlockRows = 192;
  static constexpr int64_t kBlockK = 768;
  static constexpr int kUnroll = 1;
};
using Words = Gemm<Bf16Shape>;

int64_t WordsOf(int64_t k) { return (k + 1) / 2; }

// Rows of x are rounded a block at a time, a line more than a multiple of 256
// bytes apart.
constexpr int64_t kRoundedRows = 192;

int64_t LdRounded(int64_t words) { return (words + 63) / 64 * 64 + 16; }

int64_t RoundedFloats(const GemmArgs& args) {
  const int64_t words = SmallerOf(WordsOf(args.k), Bf16Shape::kBlockK);
  return SmallerOf(args.row_end, Words::MostRows(kRoundedRows)) *
         LdRounded(words);
}

}  // namespace

template <>
int64_t DenseParts<Avx512Bf16Isa>::PackedFloats(int64_t n, int64_t k) {
  return Words::PackedFloats(n, WordsOf(k));
}

template <>
void DenseParts<Avx512Bf16Isa>::Pack(const float* w, int64_t n, int64_t k,
                                     MatrixStrides strides, int64_t panel_begin,
                                     int64_t panel_end, float* packed) {
  Bf16Panels::Pack(w, n, k, WordsOf(k), strides, panel_begin, panel_end,
                   packed);
}
template <>
void DenseParts<Avx512Bf16Isa>::PackBf16(const Bf16* w, int64_t n, int64_t k,
                                         MatrixStrides strides,
                                         int64_t panel_begin, int64_t panel_end,
                                         float* packed) {
  Bf16Panels::Pack(w, n, k, WordsOf(k), strides, panel_begin, panel_end,
                   packed);
}

template <>
int64_t DenseParts<Avx512Bf16Isa>::GemmScratchFloats(const GemmArgs& args) {
  return RoundedFloats(args) +
         Words::SumFloats(args.row_end, args.n, WordsOf(args.k));
}

template <>
void DenseParts<Avx512Bf16Isa>::Gemm(const GemmArgs& args) {
  GemmArgs g = args;
  g.k = WordsOf(args.k);
  float* waiting = args.scratch + RoundedFloats(args);
  if (args.x_bf16 != nullptr) {
    Words::Run(g, reinterpret_cast<const float*>(args.x_bf16), args.ld_x / 2,
               waiting);
    return;
  }
  const int64_t step = Words::KStep(g.k);
  const int64_t ld = LdRounded(SmallerOf(g.k, Bf16Shape::kBlockK));
  auto* rounded = reinterpret_cast<uint16_t*>(args.scratch);
  const int64_t block = Words::EvenRows(g.row_end - g.row_begin, kRoundedRows);
  for (int64_t row = g.row_begin; row < g.row_end; row += block) {
    const int64_t rows = SmallerOf(g.row_end - row, block);
    for (int64_t k0 = 0; k0 < g.k; k0 += step) {
      const int64_t k1 = SmallerOf(k0 + step, g.k);
      const int64_t live = SmallerOf(2 * k1, args.k) - 2 * k0;
      for (int64_t r = 0; r < rows; ++r) {
        uint16_t* to = rounded + 2 * r * ld;
        Bf16Factors::Copy(args.x + (row + r) * args.ld_x + 2 * k0, live, to);
        if (live % 2 != 0) to[live] = 0;
      }
      Words::Block(g, args.scratch, ld, row, rows, k0, k1, waiting);
    }
  }
}

template <>
int64_t DenseParts<Avx512Bf16Isa>::ConvScratchFloats(const ConvArgs& args) {
  return models::Conv<Bf16Shape>::ScratchFloats(args);
}
template <>
void DenseParts<Avx512Bf16Isa>::Conv(const ConvArgs& args) {
  if (args.x_bf16 != nullptr) {
    models::Conv<Bf16Shape, Bf16>::Run(args, args.x_bf16);
  } else {
    models::Conv<Bf16Shape>::Run(args, args.x.data);
  }
}

template <>
void DenseParts<Avx512Bf16Isa>::Round(const float* x, int64_t n, Bf16* y) {
  Bf16Factors::Copy(x, n, y);
}

}  // namespace millrace::models
