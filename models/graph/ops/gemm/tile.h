// The inner loop of matrix products, once for each instruction set. These
// files include nothing with inline functions that the linker could hand to a
// machine without the instructions.
#pragma once

#include <cstdint>

namespace millrace::models::graph {

// Computes `rows` rows and all `cols` columns of one tile of C:
//
//   c[i * ldc + j] (+)= sum over p < k of a[i * lda + p] * b[p * cols + j]
//
// Each element sums in the order of p, whatever `rows` is. The kinds of M are
// float, double (fused multiply-add where the machine has it), uint32_t and
// uint64_t (wrap around, so they serve signed integers as well).
template <typename M>
struct GemmTile {
  using Run = void (*)(int64_t k, const M* a, int64_t lda, const M* b, M* c,
                       int64_t ldc, bool add);
  static constexpr int kMaxRows = 12;
  static constexpr int kMaxCols = 32;

  int rows = 0;  // at most
  int cols = 0;
  Run run[kMaxRows] = {};  // run[i] computes i + 1 rows
};

struct GemmTiles {
  GemmTile<float> f32;
  GemmTile<double> f64;
  GemmTile<uint32_t> u32;
  GemmTile<uint64_t> u64;
};

extern const GemmTiles kPlainTiles;
extern const GemmTiles kAvx2Tiles;
extern const GemmTiles kAvx512Tiles;

}  // namespace millrace::models::graph
