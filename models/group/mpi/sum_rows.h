// Sums of rows of floats in the order of the rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace millrace::models::mpi {

// Values [begin, end) of all rows, added in the rows' order, become those of
// every row of `out`, which may be rows, too.
template <class Rows, class Out>
void SumRows(const Rows& rows, size_t begin, size_t end, const Out& out) {
  constexpr size_t kAtOnce = 1024;
  float sum[kAtOnce];
  for (size_t at = begin; at < end; at += kAtOnce) {
    const size_t n = std::min(kAtOnce, end - at);
    std::copy_n(rows[0] + at, n, sum);
    for (size_t row = 1; row < rows.size(); ++row) {
      for (size_t i = 0; i < n; ++i) sum[i] += rows[row][at + i];
    }
    for (float* const to : out) std::copy_n(sum, n, to + at);
  }
}

}  // namespace millrace::models::mpi
