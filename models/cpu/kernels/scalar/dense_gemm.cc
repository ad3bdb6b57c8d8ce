// Products one value at a time: the chain of every output, to be read.

#include "models/cpu/kernels/dense/epilogue.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {
namespace {

constexpr int64_t kPanel = 16;

}  // namespace

template <>
int64_t DenseParts<ScalarIsa>::PackedFloats(int64_t n, int64_t k) {
  return (n + kPanel - 1) / kPanel * kPanel * k;
}

template <>
void DenseParts<ScalarIsa>::Pack(const float* w, int64_t n, int64_t k,
                                 MatrixStrides strides, int64_t panel_begin,
                                 int64_t panel_end, float* packed) {
  for (int64_t j = panel_begin * kPanel; j < panel_end * kPanel; ++j) {
    float* out = packed + j / kPanel * kPanel * k + j % kPanel;
    for (int64_t i = 0; i < k; ++i) {
      out[i * kPanel] = j < n ? w[j * strides.n + i * strides.k] : 0.0f;
    }
  }
}

template <>
void DenseParts<ScalarIsa>::Gemm(const GemmArgs& g) {
  for (int64_t m = g.row_begin; m < g.row_end; ++m) {
    for (int64_t panel = g.panel_begin; panel < g.panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const float* x = g.x + m * g.ld_x;
      const float* w = g.w + n0 * g.k;
      float sums[kPanel] = {};
      for (int64_t i = 0; i < g.k; ++i) {
        for (int64_t j = 0; j < kPanel; ++j) {
          sums[j] = Fma(x[i], w[i * kPanel + j], sums[j]);
        }
      }
      const int64_t live = g.n - n0 < kPanel ? g.n - n0 : kPanel;
      Finish<Vec1>::Run(sums, kPanel, 1, live, From(g.epilogue, m, n0),
                        g.y + m * g.ld_y + n0, g.ld_y);
    }
  }
}

}  // namespace millrace::models
