// Windows of signals: constants, in double precision until the end.
#include <cmath>
#include <numbers>
#include <vector>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// shape(x) of `length` values, x from 0 to 1; a periodic window is the start of
// one that is longer by one.
template <typename Shape>
void Window(Lowering& n, Shape&& shape) {
  const int64_t length = n.Int("window_length", 0);
  if (length < 0 || length > (1 << 24)) return n.Fail("a window of this size");
  const int64_t steps = n.Flag("periodic", true) ? length : length - 1;
  std::vector<double> values;
  for (int64_t i = 0; i < length; ++i) {
    values.push_back(length == 1 ? 1
                                 : shape(static_cast<double>(i) /
                                         static_cast<double>(steps)));
  }
  n.ReturnAs(DType::kF64, n.emit().Constant(models::Tensor::From<double>(
                              DType::kF64, {length}, values)));
}

double Cosine(double x, double times) {
  return std::cos(2 * std::numbers::pi * times * x);
}

void Hann(Lowering& n) {
  Window(n, [](double x) { return 0.5 - 0.5 * Cosine(x, 1); });
}
void Hamming(Lowering& n) {
  const double alpha = n.Real("alpha", 0.54);
  const double beta = n.Real("beta", 0.46);
  Window(n, [&](double x) { return alpha - beta * Cosine(x, 1); });
}
void Blackman(Lowering& n) {
  Window(n, [](double x) {
    return 0.42 - 0.5 * Cosine(x, 1) + 0.08 * Cosine(x, 2);
  });
}
void Bartlett(Lowering& n) {
  Window(n, [](double x) { return x < 0.5 ? 2 * x : 2 - 2 * x; });
}

// The modified Bessel function of order 0, by its series.
double Bessel(double x) {
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 500 && term > sum * 1e-17; ++k) {
    const double factor = x / (2 * k);
    term *= factor * factor;
    sum += term;
  }
  return sum;
}
void Kaiser(Lowering& n) {
  const double beta = n.Real("beta", 12);
  if (!(std::abs(beta) < 500)) return n.Fail("a beta of this size");
  Window(n, [&](double x) {
    const double from_middle = 2 * x - 1;
    return Bessel(beta * std::sqrt(1 - from_middle * from_middle)) /
           Bessel(beta);
  });
}

constexpr AtenOp kRows[] = {
    {"aten.hann_window.default", Hann},
    {"aten.hann_window.periodic", Hann},
    {"aten.hamming_window.default", Hamming},
    {"aten.hamming_window.periodic", Hamming},
    {"aten.hamming_window.periodic_alpha", Hamming},
    {"aten.hamming_window.periodic_alpha_beta", Hamming},
    {"aten.blackman_window.default", Blackman},
    {"aten.blackman_window.periodic", Blackman},
    {"aten.bartlett_window.default", Bartlett},
    {"aten.bartlett_window.periodic", Bartlett},
    {"aten.kaiser_window.default", Kaiser},
    {"aten.kaiser_window.periodic", Kaiser},
    {"aten.kaiser_window.beta", Kaiser},
};

}  // namespace

std::span<const AtenOp> WindowRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
