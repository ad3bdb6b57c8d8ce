// Fourier transforms of any length in double precision.
#pragma once

#include <complex>
#include <vector>

namespace millrace::models::graph {

// X[k] = sum of x[j] exp(-2 pi i j k / n), or its conjugate kernel when
// inverse; never divided by n. Lengths with small factors cost n log n, a
// prime factor p costs p for each element.
void Fourier(std::vector<std::complex<double>>& x, bool inverse);

}  // namespace millrace::models::graph
