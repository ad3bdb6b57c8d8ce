#include "models/graph/ops/gemm/gemm.h"

#include "models/cpu/isa.h"

namespace millrace::models::graph {
namespace {

const DenseTable& WidestTable() {
  static const DenseTable& table = [&]() -> const DenseTable& {
    const auto chosen = ChooseDense("auto");
    CHECK(chosen.ok(), "every machine runs the scalar table");
    return **chosen;
  }();
  return table;
}

// Rows and columns whose sums stay in registers, two vectors of 16 bytes wide.
constexpr int64_t kTileRows = 4;
template <typename M>
constexpr int64_t kTileColumns = 32 / int64_t{sizeof(M)};

// c[i * ldc + j] (+)= sum over p < k of a[i * lda + p] * b[p * columns + j]
template <typename M, int64_t kRows>
void Tile(int64_t k, const M* a, int64_t lda, const M* b, int64_t width, M* c,
          int64_t ldc, bool add) {
  constexpr int64_t kColumns = kTileColumns<M>;
  M sums[kRows][kColumns] = {};
  for (int64_t p = 0; p < k; ++p, b += kColumns) {
    for (int64_t i = 0; i < kRows; ++i) {
      const M x = a[i * lda + p];
      for (int64_t j = 0; j < kColumns; ++j) sums[i][j] += x * b[j];
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      c[i * ldc + j] = add ? c[i * ldc + j] + sums[i][j] : sums[i][j];
    }
  }
}

// Of one row block of dense kernels: sums that are added.
constexpr int64_t kAddedRows = 48;

}  // namespace

template <typename M>
int64_t PanelColumns() {
  if constexpr (std::is_same_v<M, float>) {
    return WidestTable().panel;
  } else {
    return kTileColumns<M>;
  }
}
template int64_t PanelColumns<float>();
template int64_t PanelColumns<double>();
template int64_t PanelColumns<uint32_t>();
template int64_t PanelColumns<uint64_t>();

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
  constexpr int64_t kColumns = kTileColumns<M>;
  for (int64_t j = 0; j < num_cols; j += kColumns) {
    const int64_t width = std::min(kColumns, num_cols - j);
    const M* panel = panels + j * k;
    int64_t i = 0;
    for (; i + kTileRows <= num_rows; i += kTileRows) {
      Tile<M, kTileRows>(k, a + i * lda, lda, panel, width, c + i * ldc + j,
                         ldc, add);
    }
    for (; i < num_rows; ++i) {
      Tile<M, 1>(k, a + i * lda, lda, panel, width, c + i * ldc + j, ldc, add);
    }
  }
}

// These panels are the packed matrix of the dense kernels.
template <>
void GemmPanels(int64_t num_rows, int64_t num_cols, int64_t k, const float* a,
                int64_t lda, const float* panels, float* c, int64_t ldc,
                bool add) {
  const DenseTable& dense = WidestTable();
  GemmArgs args{.x = a,
                .ld_x = lda,
                .row_end = num_rows,
                .w = panels,
                .n = num_cols,
                .k = k,
                .panel_end = (num_cols + dense.panel - 1) / dense.panel,
                .y = c,
                .ld_y = ldc};
  if (!add) return dense.gemm(args);
  const auto sums = Scratch<float>(std::min(kAddedRows, num_rows) * num_cols);
  args.y = sums.get();
  args.ld_y = num_cols;
  for (int64_t i = 0; i < num_rows; i += kAddedRows) {
    args.x = a + i * lda;
    args.row_end = std::min(kAddedRows, num_rows - i);
    dense.gemm(args);
    for (int64_t r = 0; r < args.row_end; ++r) {
      float* to = c + (i + r) * ldc;
      dense.binary(Binary::kAdd, to, 1, sums.get() + r * num_cols, 1, num_cols,
                   to);
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
