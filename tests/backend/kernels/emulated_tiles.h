// EmulatedTiles: the tile instructions as the Intel SDM (volume 2, "TDPBSSD"
// and others) writes them out, with the members of CpuTiles. What the CPU would
// fault on sets `fault`. Anonymous namespace: a file that includes this may be
// compiled for an instruction set that others are not.
#pragma once

#include <cstdint>

#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/kernels/scalar/numbers.h"

namespace millrace::models {
namespace {

// Subnormals are zeros, on the way in and on the way out.
float Flushed(float x) {
  const uint32_t bits = BitsOfFloat(x);
  return (bits & 0x7f800000) == 0 ? FloatOfBits(bits & 0x80000000) : x;
}

struct EmulatedTiles {
  struct Tile {
    alignas(64) uint8_t bytes[16][64];
  };
  Tile tiles[8];
  TileConfig config;
  bool configured = false;
  bool fault = false;

  void Configure(const TileConfig& wanted) {
    config = wanted;
    configured = true;
    for (int i = 0; i < 8; ++i) {
      if (config.rows[i] > 16 || config.row_bytes[i] > 64) fault = true;
      __builtin_memset(&tiles[i], 0, sizeof(Tile));
    }
    if (config.palette != 1 || config.start_row != 0) fault = true;
  }
  void Release() { configured = false; }

  bool Usable(int tile) {
    if (!configured || config.rows[tile] == 0) fault = true;
    return !fault;
  }
  template <int kTile>
  void Zero() {
    if (!Usable(kTile)) return;
    __builtin_memset(&tiles[kTile], 0, sizeof(Tile));
  }
  template <int kTile>
  void Load(const void* from, int64_t stride) {
    if (!Usable(kTile)) return;
    __builtin_memset(&tiles[kTile], 0, sizeof(Tile));
    for (int m = 0; m < config.rows[kTile]; ++m) {
      __builtin_memcpy(tiles[kTile].bytes[m],
                       static_cast<const uint8_t*>(from) + m * stride,
                       config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void LoadStreamed(const void* from, int64_t stride) {
    Load<kTile>(from, stride);
  }
  template <int kTile>
  void Store(void* to, int64_t stride) {
    if (!Usable(kTile)) return;
    for (int m = 0; m < config.rows[kTile]; ++m) {
      __builtin_memcpy(static_cast<uint8_t*>(to) + m * stride,
                       tiles[kTile].bytes[m], config.row_bytes[kTile]);
    }
  }

  // C[m][n] from C[m][n] and all A[m][k], B[k][n] of four bytes each; what it
  // adds up is for `add` to know.
  template <typename Sum, typename Add>
  void Dot(int c, int a, int b, const Add& add) {
    if (!Usable(c) || !Usable(a) || !Usable(b)) return;
    if (config.row_bytes[a] / 4 != config.rows[b] ||
        config.rows[c] != config.rows[a] ||
        config.row_bytes[c] != config.row_bytes[b]) {
      fault = true;
      return;
    }
    for (int m = 0; m < config.rows[c]; ++m) {
      for (int n = 0; n < config.row_bytes[c] / 4; ++n) {
        Sum sum;
        __builtin_memcpy(&sum, tiles[c].bytes[m] + 4 * n, 4);
        sum = add(sum, m, n);
        __builtin_memcpy(tiles[c].bytes[m] + 4 * n, &sum, 4);
      }
      // Bytes beyond a row's become zeros; ours have none.
    }
  }
  template <typename X, typename Weight>
  void DotBytes(int c, int a, int b) {
    Dot<int32_t>(c, a, b, [&](int32_t sum, int m, int n) {
      for (int k = 0; k < config.rows[b]; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum += static_cast<X>(tiles[a].bytes[m][4 * k + i]) *
                 static_cast<Weight>(tiles[b].bytes[k][4 * n + i]);
        }
      }
      return sum;
    });
  }
  template <int kC, int kA, int kB>
  void DotSignedSigned() {
    DotBytes<int8_t, int8_t>(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  void DotSignedUnsigned() {
    DotBytes<int8_t, uint8_t>(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  void DotUnsignedSigned() {
    DotBytes<uint8_t, int8_t>(kC, kA, kB);
  }

  static float OfBf16At(const uint8_t* p) {
    return Flushed(FloatOfBf16(static_cast<uint16_t>(p[0] | p[1] << 8)));
  }
  template <int kC, int kA, int kB>
  void DotBf16() {
    Dot<float>(kC, kA, kB, [&](float sum, int m, int n) {
      float strand[2] = {0, 0};
      for (int k = 0; k < config.rows[kB]; ++k) {
        for (int i = 0; i < 2; ++i) {
          const float x = OfBf16At(tiles[kA].bytes[m] + 4 * k + 2 * i);
          const float w = OfBf16At(tiles[kB].bytes[k] + 4 * n + 2 * i);
          strand[i] = Flushed(Fma(x, w, strand[i]));
        }
      }
      return Flushed(Flushed(sum) + Flushed(strand[0] + strand[1]));
    });
  }
};

}  // namespace
}  // namespace millrace::models
