// Kernels of 3 x 3 convolutions by Winograd's minimal filtering F(2 x 2, 3 x 3)
// (A. Lavin, S. Gray: "Fast Algorithms for Convolutional Neural Networks", CVPR
// 2016, section 4.1): four outputs of a tile from 16 multiplications instead of
// 36. A function for each of scalar, AVX2, AVX-512 and NEON; the products
// between them are those of DenseTable.
//
// The result is cut into tiles of 2 x 2 pixels, row by row; the last ones may
// lie half outside. A tile is computed from the 4 x 4 pixels d of the image
// that it sees (0 in the padding), with weights g of 3 x 3:
//   v = Bᵀ d B      [16][channels]
//   u = G g Gᵀ      [16][outputs][channels], once, see WinogradWeights
//   m[i] = v[i] · u[i]ᵀ                                16 products of
//   DenseTable y = Aᵀ m A, then the epilogue
// Only additions besides the products, so errors are those of the direct way,
// and all tables give the same bits. Chains, each step rounded:
//   v: first down the columns, then along the rows of what that gives,
//      (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//   y: the same way, ((m0 + m1) + m2, (m1 - m2) - m3)
// A tile depends on its own pixels alone. An infinity in the image may become
// NaN.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {

inline constexpr int64_t kWinogradTile = 2;     // outputs, each way
inline constexpr int64_t kWinogradPlanes = 16;  // products

// Of tiles [tile_begin, tile_end) of one image. A tile's values lie in a row of
// each of kWinogradPlanes planes, `plane` floats apart; rows are ld_v floats
// apart, ld_v >= channels rounded up to 16: what lies behind the channels may
// be overwritten.
struct WinogradInput {
  Image x;
  int64_t pad_top = 0;   // 0 or 1
  int64_t pad_left = 0;  // 0 or 1
  int64_t tiles_across = 0;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  float* v = nullptr;  // row of tile_begin in the first plane
  int64_t plane = 0;
  int64_t ld_v = 0;
};

// The way back, for outputs [output_begin, output_end), which begin at whole
// panels. Planes as above; up to 15 floats behind output_end are read.
struct WinogradOutput {
  const float* m = nullptr;  // row of tile_begin in the first plane, output 0
  int64_t plane = 0;
  int64_t ld_m = 0;
  int64_t tiles_across = 0;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t output_begin = 0;
  int64_t output_end = 0;
  float* y = nullptr;  // pixel 0, output 0
  int64_t ld_y = 0;
  Epilogue epilogue = {};  // of pixel 0, output 0
};

struct WinogradKernels {
  void (*input)(const WinogradInput& args);
  void (*output)(const WinogradOutput& args);
};

// Of a dense table ("scalar", "avx2", "avx512", "neon").
WinogradKernels WinogradOf(std::string_view dense_name);

// u[kWinogradPlanes][outputs][channels] of w[outputs][channels][3][3], computed
// in double and rounded once.
void WinogradWeights(const float* w, int64_t outputs, int64_t channels,
                     float* u);

}  // namespace millrace::models
