#include "models/cpu/winograd_kernels.h"

#include <array>

#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

template <class Isa>
constexpr WinogradKernels kOf = {DenseParts<Isa>::WinogradIn,
                                 DenseParts<Isa>::WinogradOut};

// Four values of three: G of the paper.
std::array<double, 4> Spread(double a, double b, double c) {
  return {a, (a + b + c) / 2, (a - b + c) / 2, c};
}

}  // namespace

WinogradKernels WinogradOf(std::string_view dense_name) {
#if defined(__x86_64__)
#if !defined(MILLRACE_NO_TABLE_ABOVE_AVX2)
  if (dense_name == "avx512") return kOf<Avx512Isa>;
#endif
  if (dense_name == "avx2") return kOf<Avx2Isa>;
#elif defined(__aarch64__)
  if (dense_name == "neon") return kOf<NeonIsa>;
#endif
  (void)dense_name;
  return kOf<ScalarIsa>;
}

void WinogradWeights(const float* w, int64_t outputs, int64_t channels,
                     float* u) {
  const int64_t pairs = outputs * channels;
  for (int64_t i = 0; i < pairs; ++i, w += 9) {
    std::array<std::array<double, 4>, 3> down;  // of each column
    for (size_t c = 0; c < 3; ++c) down[c] = Spread(w[c], w[3 + c], w[6 + c]);
    for (size_t r = 0; r < 4; ++r) {
      const auto across = Spread(down[0][r], down[1][r], down[2][r]);
      for (size_t c = 0; c < 4; ++c) {
        u[static_cast<int64_t>(r * 4 + c) * pairs + i] =
            static_cast<float>(across[c]);
      }
    }
  }
}

}  // namespace millrace::models
