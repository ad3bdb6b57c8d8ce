// Attention of one head over bf16 products in tiles; all else as with AVX-512.
// Written over a type `Tiles`. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/dense_gemm.h"
#include "models/cpu/kernels/dense/attention.h"

namespace millrace::models {
namespace {

template <class Tiles>
struct TileProducts {
  static constexpr int64_t kPanel = 32;
  static constexpr bool kRounds = true;
  static int64_t Words(int64_t k) { return DenseRows<Tiles>::Words(k); }
  static int64_t Panels(int64_t n) { return (n + kPanel - 1) / kPanel; }
  static void Run(const GemmArgs& args) {
    Tiles tiles;
    DenseRows<Tiles>::Run(tiles, args, args.x);
  }
  static int64_t ScratchFloats(int64_t rows, int64_t k) {
    return DenseRows<Tiles>::ScratchFloats({.row_end = rows, .k = k});
  }
  static void Round(const float* x, int64_t n, Bf16* y) {
    Bf16Factors::Copy(x, n, y);
  }
  static void Widen(const Bf16* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i += 16) {
      Vec16::StoreFirst(y + i, n - i, KeptVec16::LoadFirst(x + i, n - i));
    }
  }
};

template <class Tiles>
struct TileAttention {
  using Heads = DenseAttention<Vec16, TileProducts<Tiles>>;
  static int64_t ScratchFloats(int64_t d, int64_t dv) {
    return Heads::ScratchFloats(d, dv);
  }
  static void Run(Tiles&, const AttentionArgs& args) { Heads::Run(args); }
};

}  // namespace
}  // namespace millrace::models
