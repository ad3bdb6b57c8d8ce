// The additions of 3 x 3 convolutions by Winograd's way, with channels in the
// lanes, for any vector width. V is what scalar/vec1.h shows. Anonymous
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/epilogue.h"
#include "models/cpu/winograd_kernels.h"

namespace millrace::models {
namespace {

template <class V>
class Winograd {
 public:
  static void In(const WinogradInput& a) {
    alignas(64) static constexpr float kZeros[V::kLanes] = {};
    float* v = a.v;
    for (int64_t tile = a.tile_begin; tile < a.tile_end; ++tile, v += a.ld_v) {
      const int64_t row = tile / a.tiles_across;
      const int64_t top = row * kWinogradTile - a.pad_top;
      const int64_t left =
          (tile - row * a.tiles_across) * kWinogradTile - a.pad_left;
      Pixel pixels[4][4];
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          const bool inside = top + i >= 0 && top + i < a.x.height &&
                              left + j >= 0 && left + j < a.x.width;
          if (inside) {
            pixels[i][j] = {
                a.x.data + ((top + i) * a.x.ld_row + (left + j) * a.x.ld_pixel),
                ~int64_t{0}};
          } else {
            pixels[i][j] = {kZeros, 0};
          }
        }
      }
      const int64_t whole = a.x.channels / V::kLanes * V::kLanes;
      for (int64_t c = 0; c < whole; c += V::kLanes) {
        TileIn(pixels, c, v + c, a.plane,
               [](const float* p) { return V::Load(p); });
      }
      if (whole < a.x.channels) {
        const int64_t rest = a.x.channels - whole;
        TileIn(pixels, whole, v + whole, a.plane,
               [rest](const float* p) { return V::LoadFirst(p, rest); });
      }
    }
  }

  static void Out(const WinogradOutput& a) {
    for (int64_t tile = a.tile_begin; tile < a.tile_end;) {
      const int64_t row = tile / a.tiles_across;
      const int64_t column = tile - row * a.tiles_across;
      int64_t run = a.tiles_across - column;
      if (run > a.tile_end - tile) run = a.tile_end - tile;
      if (run > kMostTiles) run = kMostTiles;
      const float* m = a.m + (tile - a.tile_begin) * a.ld_m;
      for (int64_t n = a.output_begin; n < a.output_end; n += kChunk) {
        RunOut(a, m + n, row, column, run, n);
      }
      tile += run;
    }
  }

 private:
  using F = typename V::F;
  struct Pixel {
    const float* at;
    int64_t mask;  // of the channel; 0 in the padding
  };
  static constexpr int64_t kMostTiles = 8;  // of a run that is finished at once
  static constexpr int64_t kChunk = 64;     // outputs of it

  template <class Load>
  [[gnu::always_inline]] static void TileIn(const Pixel (&pixels)[4][4],
                                            int64_t c, float* v, int64_t plane,
                                            Load load) {
    F down[4][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      F d[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        d[i] = load(pixels[i][j].at + (c & pixels[i][j].mask));
      }
      down[0][j] = V::Sub(d[0], d[2]);
      down[1][j] = V::Add(d[1], d[2]);
      down[2][j] = V::Sub(d[2], d[1]);
      down[3][j] = V::Sub(d[1], d[3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      V::Store(v, V::Sub(down[i][0], down[i][2]));
      V::Store(v + plane, V::Add(down[i][1], down[i][2]));
      V::Store(v + 2 * plane, V::Sub(down[i][2], down[i][1]));
      V::Store(v + 3 * plane, V::Sub(down[i][1], down[i][3]));
      v += 4 * plane;
    }
  }

  // Outputs from n on, of tiles beside each other.
  static void RunOut(const WinogradOutput& a, const float* m, int64_t row,
                     int64_t column, int64_t run, int64_t n) {
    constexpr int64_t kRow = kMostTiles * kWinogradTile * kChunk;
    alignas(64) float sums[kWinogradTile * kRow];
    const int64_t live = a.output_end - n < kChunk ? a.output_end - n : kChunk;
    for (int64_t tile = 0; tile < run; ++tile) {
      float* to = sums + tile * kWinogradTile * kChunk;
      for (int64_t c = 0; c < live; c += V::kLanes) {
        TileOut(m + tile * a.ld_m + c, a.plane, to + c, to + kRow + c);
      }
    }
    int64_t pixels = a.out_width - column * kWinogradTile;
    if (pixels > run * kWinogradTile) pixels = run * kWinogradTile;
    for (int64_t r = 0; r < kWinogradTile; ++r) {
      const int64_t out_row = row * kWinogradTile + r;
      if (out_row >= a.out_height) break;
      const int64_t pixel = out_row * a.out_width + column * kWinogradTile;
      Finish<V>::Run(sums + r * kRow, kChunk, pixels, live,
                     From(a.epilogue, pixel, n), a.y + pixel * a.ld_y + n,
                     a.ld_y);
    }
  }

  // The two pixels of the tile's first row, and of its second.
  [[gnu::always_inline]] static void TileOut(const float* m, int64_t plane,
                                             float* first, float* second) {
    F down[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F m0 = V::Load(m + j * plane);
      const F m1 = V::Load(m + (4 + j) * plane);
      const F m2 = V::Load(m + (8 + j) * plane);
      const F m3 = V::Load(m + (12 + j) * plane);
      down[0][j] = V::Add(V::Add(m0, m1), m2);
      down[1][j] = V::Sub(V::Sub(m1, m2), m3);
    }
    const auto along = [](const F(&d)[4], float* to) {
      V::Store(to, V::Add(V::Add(d[0], d[1]), d[2]));
      V::Store(to + kChunk, V::Sub(V::Sub(d[1], d[2]), d[3]));
    };
    along(down[0], first);
    along(down[1], second);
  }
};

}  // namespace
}  // namespace millrace::models
