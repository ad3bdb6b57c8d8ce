#include "models/graph/ops/gemm/gemm.h"

namespace millrace::models::graph {
namespace {

const GemmTiles& BestTiles() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return kAvx512Tiles;
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return kAvx2Tiles;
#endif
  return kPlainTiles;
}

}  // namespace

template <>
const GemmTile<float>& BestTile() {
  return BestTiles().f32;
}
template <>
const GemmTile<double>& BestTile() {
  return BestTiles().f64;
}
template <>
const GemmTile<uint32_t>& BestTile() {
  return BestTiles().u32;
}
template <>
const GemmTile<uint64_t>& BestTile() {
  return BestTiles().u64;
}

GemmPart ShareOf(int64_t m, int64_t n, const Team& team) {
  if (n >= 64 * team.count || n >= m) {
    const auto [begin, end] = team.Share(n, 32);
    return {0, m, begin, end - begin};
  }
  const auto [begin, end] = team.Share(m, 12);
  return {begin, end - begin, 0, n};
}

template <typename M>
void GemmPanels(int64_t num_rows, int64_t num_cols, int64_t k, const M* a,
                int64_t lda, const M* panels, M* c, int64_t ldc, bool add) {
  const GemmTile<M>& tile = BestTile<M>();
  const int64_t cols = tile.cols;
  M edge[GemmTile<M>::kMaxRows * GemmTile<M>::kMaxCols];
  for (int64_t i = 0; i < num_rows; i += tile.rows) {
    const int64_t rows = std::min<int64_t>(tile.rows, num_rows - i);
    const auto run = tile.run[rows - 1];
    for (int64_t j = 0; j < num_cols; j += cols) {
      const int64_t width = std::min(cols, num_cols - j);
      M* out = c + i * ldc + j;
      if (width == cols) {
        run(k, a + i * lda, lda, panels + j * k, out, ldc, add);
        continue;
      }
      run(k, a + i * lda, lda, panels + j * k, edge, cols, false);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t x = 0; x < width; ++x) {
          const M sum = edge[r * cols + x];
          out[r * ldc + x] = add ? out[r * ldc + x] + sum : sum;
        }
      }
    }
  }
}

template <typename T>
void MatMulInto(int64_t k, Matrix<T> a, Matrix<T> b, T* y, int64_t ldy,
                const GemmPart& part) {
  using M = Accumulator<T>;
  constexpr bool kDirect = std::is_same_v<T, M>;
  if (part.num_rows <= 0 || part.num_cols <= 0) return;
  const auto pack = [&](int64_t k0, int64_t kc, int64_t n0, int64_t width,
                        int64_t cols, M* panel) {
    PackPanel<M>(b, k0, kc, part.col + n0, width, cols, panel,
                 [](T v) { return Convert<M>(v); });
  };
  // Rows in blocks, so that what is converted stays small.
  const bool as_it_lies = kDirect && (a.col == 1 || k <= 1);
  const int64_t block = as_it_lies && kDirect
                            ? part.num_rows
                            : std::min<int64_t>(part.num_rows, 240);
  const auto rows = Scratch<M>(as_it_lies ? 0 : block * k);
  const auto out = Scratch<M>(kDirect ? 0 : block * part.num_cols);
  for (int64_t i0 = 0; i0 < part.num_rows; i0 += block) {
    const int64_t m = std::min(block, part.num_rows - i0);
    const T* from = a.data + (part.row + i0) * a.row;
    T* to = y + (part.row + i0) * ldy + part.col;
    const M* packed = rows.get();
    int64_t lda = k;
    if constexpr (kDirect) {
      if (as_it_lies) {
        packed = from;
        lda = a.row;
      }
    }
    if (!as_it_lies) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t p = 0; p < k; ++p) {
          rows[static_cast<size_t>(i * k + p)] =
              Convert<M>(from[i * a.row + p * a.col]);
        }
      }
    }
    const GemmSize size{m, part.num_cols, k};
    if constexpr (kDirect) {
      Gemm<M>(size, packed, lda, pack, to, ldy);
    } else {
      Gemm<M>(size, packed, lda, pack, out.get(), part.num_cols);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < part.num_cols; ++j) {
          to[i * ldy + j] =
              static_cast<T>(out[static_cast<size_t>(i * part.num_cols + j)]);
        }
      }
    }
  }
}

#define MILLRACE_MATMUL(T)                                                \
  template void MatMulInto<T>(int64_t, Matrix<T>, Matrix<T>, T*, int64_t, \
                              const GemmPart&)
MILLRACE_MATMUL(Half);
MILLRACE_MATMUL(BFloat16);
MILLRACE_MATMUL(float);
MILLRACE_MATMUL(double);
MILLRACE_MATMUL(int8_t);
MILLRACE_MATMUL(uint8_t);
MILLRACE_MATMUL(int16_t);
MILLRACE_MATMUL(uint16_t);
MILLRACE_MATMUL(int32_t);
MILLRACE_MATMUL(uint32_t);
MILLRACE_MATMUL(int64_t);
MILLRACE_MATMUL(uint64_t);
#undef MILLRACE_MATMUL

template void GemmPanels<float>(int64_t, int64_t, int64_t, const float*,
                                int64_t, const float*, float*, int64_t, bool);
template void GemmPanels<double>(int64_t, int64_t, int64_t, const double*,
                                 int64_t, const double*, double*, int64_t,
                                 bool);
template void GemmPanels<uint32_t>(int64_t, int64_t, int64_t, const uint32_t*,
                                   int64_t, const uint32_t*, uint32_t*, int64_t,
                                   bool);
template void GemmPanels<uint64_t>(int64_t, int64_t, int64_t, const uint64_t*,
                                   int64_t, const uint64_t*, uint64_t*, int64_t,
                                   bool);

}  // namespace millrace::models::graph
