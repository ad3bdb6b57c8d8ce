// Products one value at a time: the chain of every output, to be read.

#include "models/cpu/kernels/dense/epilogue.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {
namespace {

constexpr int64_t kPanel = 16;

// The chains of one panel's outputs.
class Chains {
 public:
  void Step(float x, const float* w) {
    if (left_ == 0) {
      EndLink();
      left_ = kDenseLink;
    }
    --left_;
    for (int64_t j = 0; j < kPanel; ++j) link_[j] = Fma(x, w[j], link_[j]);
  }

  const float* Sums() {
    if (num_links_ > 0) EndLink();
    return num_links_ > 0 ? sums_ : link_;
  }

 private:
  void EndLink() {
    for (int64_t j = 0; j < kPanel; ++j) {
      sums_[j] = num_links_ == 0 ? link_[j] : sums_[j] + link_[j];
      link_[j] = 0;
    }
    ++num_links_;
  }

  float sums_[kPanel] = {};  // of the links that ended
  float link_[kPanel] = {};
  int64_t num_links_ = 0;
  int64_t left_ = kDenseLink;
};

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
int64_t DenseParts<ScalarIsa>::GemmScratchFloats(const GemmArgs&) {
  return 0;
}

template <>
void DenseParts<ScalarIsa>::Gemm(const GemmArgs& g) {
  for (int64_t m = g.row_begin; m < g.row_end; ++m) {
    for (int64_t panel = g.panel_begin; panel < g.panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const float* x = g.x + m * g.ld_x;
      const float* w =
          g.w + panel * (g.panel_floats != 0 ? g.panel_floats : kPanel * g.k);
      Chains chains;
      for (int64_t i = 0; i < g.k; ++i) chains.Step(x[i], w + i * kPanel);
      const int64_t live = g.n - n0 < kPanel ? g.n - n0 : kPanel;
      Finish<Vec1>::Run(chains.Sums(), kPanel, 1, live, From(g.epilogue, m, n0),
                        g.y + m * g.ld_y + n0, g.ld_y);
    }
  }
}

template <>
int64_t DenseParts<ScalarIsa>::ConvScratchFloats(const ConvArgs&) {
  return 0;
}

template <>
void DenseParts<ScalarIsa>::Conv(const ConvArgs& a) {
  const Window& window = a.window;
  const int64_t k = window.kernel_h * window.kernel_w * a.x.channels;
  for (int64_t p = a.pixel_begin; p < a.pixel_end; ++p) {
    const int64_t top = p / a.out_width * window.stride_h - window.pad_top;
    const int64_t left = p % a.out_width * window.stride_w - window.pad_left;
    for (int64_t panel = a.panel_begin; panel < a.panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const float* w = a.w + n0 * k;
      Chains chains;
      for (int64_t i = 0; i < window.kernel_h * window.kernel_w; ++i) {
        const int64_t row = top + i / window.kernel_w * window.dilation_h;
        const int64_t column = left + i % window.kernel_w * window.dilation_w;
        const bool inside =
            row >= 0 && row < a.x.height && column >= 0 && column < a.x.width;
        for (int64_t c = 0; c < a.x.channels; ++c, w += kPanel) {
          const float x =
              inside ? a.x.data[row * a.x.ld_row + column * a.x.ld_pixel + c]
                     : 0.0f;
          chains.Step(x, w);
        }
      }
      const int64_t live = a.n - n0 < kPanel ? a.n - n0 : kPanel;
      Finish<Vec1>::Run(chains.Sums(), kPanel, 1, live, From(a.epilogue, p, n0),
                        a.y + p * a.ld_y + n0, a.ld_y);
    }
  }
}

}  // namespace millrace::models
