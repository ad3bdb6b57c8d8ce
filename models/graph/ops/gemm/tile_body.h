// The body of the tiles, compiled with the flags of the file that includes it.
// VECTOR_BYTES and MAX_ROWS are set there so that MAX_ROWS x 2 accumulators and
// two vectors of B fit in the registers.
#include "models/graph/ops/gemm/tile.h"

namespace millrace::models::graph {
namespace {

template <typename M>
struct VectorOf {
  typedef M Type
      __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(M)), may_alias));
  static constexpr int kLanes = VECTOR_BYTES / sizeof(M);
};

template <typename M, int kRows>
void Tile(int64_t k, const M* a, int64_t lda, const M* b, M* c, int64_t ldc,
          bool add) {
  using V = typename VectorOf<M>::Type;
  constexpr int kLanes = VectorOf<M>::kLanes;
  V sum[kRows][2];
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = V{};
  for (int64_t p = 0; p < k; ++p) {
    const V b0 = *reinterpret_cast<const V*>(b + p * 2 * kLanes);
    const V b1 = *reinterpret_cast<const V*>(b + p * 2 * kLanes + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const M x = a[i * lda + p];
      sum[i][0] += b0 * x;
      sum[i][1] += b1 * x;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    V* out = reinterpret_cast<V*>(c + i * ldc);
    out[0] = add ? out[0] + sum[i][0] : sum[i][0];
    out[1] = add ? out[1] + sum[i][1] : sum[i][1];
  }
}

template <typename M, int kRows>
constexpr void Fill(GemmTile<M>& tile) {
  tile.run[kRows - 1] = Tile<M, kRows>;
  if constexpr (kRows > 1) Fill<M, kRows - 1>(tile);
}

template <typename M>
constexpr GemmTile<M> TileOf() {
  GemmTile<M> tile;
  tile.rows = MAX_ROWS;
  tile.cols = 2 * VectorOf<M>::kLanes;
  Fill<M, MAX_ROWS>(tile);
  return tile;
}

constexpr GemmTiles kTiles = {TileOf<float>(), TileOf<double>(),
                              TileOf<uint32_t>(), TileOf<uint64_t>()};

}  // namespace
}  // namespace millrace::models::graph
