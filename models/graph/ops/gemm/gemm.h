// Matrix products of every element type for plain functions, blocked so that
// one panel of B stays in the second-level cache. Floats, of 16 bits too, are
// multiplied by the widest dense kernels of this machine, whose bits are those
// of all tables; other types by a loop that the compiler makes vectors of.
//
//   Gemm<float>({.m = m, .n = n, .k = k}, a, lda, pack_b, c, ldc);
//   MatMulInto<T>(m, n, k, a, b, y, ldy, ShareOf(m, n, team));
//
// Accumulates in f32 (16-bit floats and floats), f64, or integers that wrap.
// An element of C is summed in the order of k in blocks of 512, whatever its
// row, its neighbours or the team: a row's result depends on that row alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "models/graph/op.h"
#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph {

// Columns of a panel.
template <typename M>
int64_t PanelColumns();

// What products of T accumulate in.
template <typename T>
using Accumulator =
    std::conditional_t<kIsFloat<T>, MathType<T>,
                       std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>>;

// A matrix as it lies; strides in elements. {w, 1, k} reads an [n, k] matrix
// as its transpose.
template <typename T>
struct Matrix {
  const T* data = nullptr;
  int64_t row = 0;
  int64_t col = 0;
};

struct GemmSize {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// A rectangle of C.
struct GemmPart {
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t col = 0;
  int64_t num_cols = 0;
};
// This member's part: of columns where there are many, else of rows.
GemmPart ShareOf(int64_t m, int64_t n, const Team& team);

inline constexpr int64_t kGemmBlockK = 512;
inline constexpr int64_t kGemmBlockN = 256;

template <typename M>
std::unique_ptr<M[]> Scratch(int64_t count) {
  return std::make_unique_for_overwrite<M[]>(static_cast<size_t>(count));
}

// One block of rows times packed panels: c is num_rows x num_cols.
template <typename M>
void GemmPanels(int64_t num_rows, int64_t num_cols, int64_t k, const M* a,
                int64_t lda, const M* panels, M* c, int64_t ldc, bool add);

// C = A·B, or C += A·B. A and C are in M already, A's rows contiguous.
// pack(k0, kc, n0, width, cols, panel) writes kc rows of `cols` elements:
// `width` elements of B from row k0, column n0, then zeros.
template <typename M, typename PackB>
void Gemm(const GemmSize& size, const M* a, int64_t lda, PackB&& pack, M* c,
          int64_t ldc, bool add = false) {
  const int64_t cols = PanelColumns<M>();
  if (size.k == 0 && !add) {
    for (int64_t i = 0; i < size.m; ++i) {
      std::fill_n(c + i * ldc, size.n, M(0));
    }
  }
  const int64_t block_n = std::max(kGemmBlockN, cols);
  const auto panels =
      Scratch<M>(std::min(kGemmBlockK, size.k) *
                 std::min(block_n, (size.n + cols - 1) / cols * cols));
  for (int64_t n0 = 0; n0 < size.n; n0 += block_n) {
    const int64_t nc = std::min(block_n, size.n - n0);
    for (int64_t k0 = 0; k0 < size.k; k0 += kGemmBlockK) {
      const int64_t kc = std::min(kGemmBlockK, size.k - k0);
      for (int64_t j = 0; j < nc; j += cols) {
        pack(k0, kc, n0 + j, std::min(cols, nc - j), cols,
             panels.get() + j * kc);
      }
      GemmPanels<M>(size.m, nc, kc, a + k0, lda, panels.get(), c + n0, ldc,
                    add || k0 > 0);
    }
  }
}

// Writes one panel of a strided matrix; `convert` turns a T into an M.
template <typename M, typename T, typename Convert>
void PackPanel(const Matrix<T>& b, int64_t k0, int64_t kc, int64_t n0,
               int64_t width, int64_t cols, M* panel, Convert&& convert) {
  const T* from = b.data + k0 * b.row + n0 * b.col;
  if (width < cols) std::fill_n(panel, kc * cols, M(0));
  if (b.col == 1) {
    for (int64_t p = 0; p < kc; ++p) {
      for (int64_t j = 0; j < width; ++j) {
        panel[p * cols + j] = convert(from[p * b.row + j]);
      }
    }
    return;
  }
  // Some rows of the panel stay in the first-level cache while columns of B are
  // read along their length.
  constexpr int64_t kRows = 64;
  for (int64_t p0 = 0; p0 < kc; p0 += kRows) {
    const int64_t p1 = std::min(p0 + kRows, kc);
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t p = p0; p < p1; ++p) {
        panel[p * cols + j] = convert(from[p * b.row + j * b.col]);
      }
    }
  }
}

template <typename M, typename T>
M Convert(T value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(value);
  } else {
    return static_cast<M>(value);
  }
}

// The part of y = a·b that is asked for, each element rounded to T once.
template <typename T>
void MatMulInto(int64_t k, Matrix<T> a, Matrix<T> b, T* y, int64_t ldy,
                const GemmPart& part);

}  // namespace millrace::models::graph
