#include "models/graph/ops/fourier.h"

#include <cstddef>
#include <numbers>

namespace millrace::models::graph {
namespace {

using Complex = std::complex<double>;

size_t SmallestFactor(size_t n) {
  for (size_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

// Cooley and Tukey 1965, by the smallest factor: out[0, n) of the elements
// in[0], in[step], … roots[i] is exp(∓2 pi i / total), with total = n * step.
void Transform(const Complex* in, size_t step, size_t n, Complex* out,
               Complex* scratch, const std::vector<Complex>& roots) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  const size_t p = SmallestFactor(n);
  const size_t m = n / p;
  for (size_t r = 0; r < p; ++r) {
    Transform(in + r * step, step * p, m, out + r * m, scratch, roots);
  }
  for (size_t i = 0; i < n; ++i) scratch[i] = out[i];
  for (size_t k = 0; k < n; ++k) {
    Complex sum = 0;
    for (size_t r = 0; r < p; ++r) {
      sum += scratch[r * m + k % m] * roots[r * k % n * step];
    }
    out[k] = sum;
  }
}

}  // namespace

void Fourier(std::vector<Complex>& x, bool inverse) {
  const size_t n = x.size();
  if (n < 2) return;
  std::vector<Complex> roots(n);
  const double turn = (inverse ? 2 : -2) * std::numbers::pi;
  for (size_t i = 0; i < n; ++i) {
    roots[i] =
        std::polar(1.0, turn * static_cast<double>(i) / static_cast<double>(n));
  }
  std::vector<Complex> out(n);
  std::vector<Complex> scratch(n);
  Transform(x.data(), 1, n, out.data(), scratch.data(), roots);
  x = std::move(out);
}

}  // namespace millrace::models::graph
