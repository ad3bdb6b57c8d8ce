// Products of bf16: tiles as those of f32 with AVX-512, two steps of k a word.

#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
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
};
using Words = Gemm<Bf16Shape>;

int64_t WordsOf(int64_t k) { return (k + 1) / 2; }

// Rows of x are pixels of an image of one row: rounded like those.
ConvArgs AsConv(const GemmArgs& g) {
  return {.x = {.data = g.x,
                .height = 1,
                .width = g.row_end,
                .channels = g.k,
                .ld_row = g.row_end * g.ld_x,
                .ld_pixel = g.ld_x},
          .window = {},
          .out_width = g.row_end,
          .pixel_begin = g.row_begin,
          .pixel_end = g.row_end,
          .w = g.w,
          .n = g.n,
          .panel_begin = g.panel_begin,
          .panel_end = g.panel_end,
          .y = g.y,
          .ld_y = g.ld_y,
          .epilogue = g.epilogue,
          .scratch = g.scratch};
}

}  // namespace

template <>
int64_t DenseParts<Avx512Bf16Isa>::PackedFloats(int64_t n, int64_t k) {
  return Words::PackedFloats(n, WordsOf(k));
}

// Some outputs and steps at a time: rounded row by row, then turned.
template <>
void DenseParts<Avx512Bf16Isa>::Pack(const float* w, int64_t n, int64_t k,
                                     MatrixStrides strides, int64_t panel_begin,
                                     int64_t panel_end, float* packed) {
  constexpr int64_t kPanel = Words::kPanel;
  constexpr int64_t kSteps = 128;
  float floats[kSteps];
  alignas(64) float rounded[kPanel * kSteps / 2];
  const int64_t words = WordsOf(k);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t n0 = panel * kPanel;
    const int64_t live = SmallerOf(n - n0, kPanel);
    for (int64_t k0 = 0; k0 < k; k0 += kSteps) {
      const int64_t steps = SmallerOf(k - k0, kSteps);
      __builtin_memset(rounded, 0, sizeof rounded);
      for (int64_t j = 0; j < live; ++j) {
        const float* from = w + (n0 + j) * strides.n + k0 * strides.k;
        if (strides.k != 1) {
          for (int64_t i = 0; i < steps; ++i) floats[i] = from[i * strides.k];
          from = floats;
        }
        Bf16Factors::Copy(
            from, steps,
            reinterpret_cast<uint16_t*>(rounded + j * (kSteps / 2)));
      }
      Bf16Shape::Turn::Run(rounded, kPanel, WordsOf(steps), kSteps / 2,
                           packed + n0 * words + k0 / 2 * kPanel, kPanel);
    }
  }
}

template <>
int64_t DenseParts<Avx512Bf16Isa>::GemmScratchFloats(const GemmArgs& args) {
  return models::Conv<Bf16Shape>::ScratchFloats(AsConv(args));
}
template <>
void DenseParts<Avx512Bf16Isa>::Gemm(const GemmArgs& args) {
  models::Conv<Bf16Shape>::Run(AsConv(args));
}

template <>
int64_t DenseParts<Avx512Bf16Isa>::ConvScratchFloats(const ConvArgs& args) {
  return models::Conv<Bf16Shape>::ScratchFloats(args);
}
template <>
void DenseParts<Avx512Bf16Isa>::Conv(const ConvArgs& args) {
  models::Conv<Bf16Shape>::Run(args);
}

}  // namespace millrace::models
