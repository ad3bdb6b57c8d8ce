// What happens to finished sums, for vectors of any width. A block of them is
// read from wherever they stand (a tile's buffer, or y itself) and written to
// y. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

// The same epilogue from another row and output on.
inline Epilogue From(const Epilogue& e, int64_t row, int64_t output) {
  Epilogue moved = e;
  if (e.bias != nullptr) moved.bias += output;
  if (e.residual != nullptr) moved.residual += row * e.ld_residual + output;
  if (e.residual_bf16 != nullptr) {
    moved.residual_bf16 += row * e.ld_residual + output;
  }
  if (e.gate != nullptr) moved.gate += row * e.ld_gate + output;
  return moved;
}

template <class V>
class Finish {
 public:
  // y[rows][n] from sums[rows][ld_sums]; may be done in place. The vectors of a
  // row are whole but for the last, whose missing lanes are not touched.
  static void Run(const float* sums, int64_t ld_sums, int64_t rows, int64_t n,
                  const Epilogue& e, float* y, int64_t ld_y) {
    const Block block{sums, ld_sums, rows, n, y, ld_y};
    const bool plain = e.gate == nullptr && e.residual == nullptr;
    Math<V>::With(e.f, e.a, e.b, [&](auto f) {
      if (!plain) {
        All(block, e, f);
      } else if (e.bias != nullptr) {
        Bias<true>(block, e, f);
      } else {
        Bias<false>(block, e, f);
      }
    });
  }

 private:
  using F = typename V::F;
  struct Block {
    const float* sums;
    int64_t ld_sums;
    int64_t rows;
    int64_t n;
    float* y;
    int64_t ld_y;
  };

  // body(row, column, load, store) for every vector.
  template <class Body>
  static void Each(const Block& t, Body body) {
    const auto load = [](const float* p) { return V::Load(p); };
    const auto store = [](float* p, F v) { V::Store(p, v); };
    const int64_t whole = t.n / V::kLanes * V::kLanes;
    const int64_t rest = t.n - whole;
    const auto load_cut = [=](const float* p) { return V::LoadFirst(p, rest); };
    const auto store_cut = [=](float* p, F v) { V::StoreFirst(p, rest, v); };
    for (int64_t r = 0; r < t.rows; ++r) {
      for (int64_t c = 0; c < whole; c += V::kLanes) body(r, c, load, store);
      if (rest > 0) body(r, whole, load_cut, store_cut);
    }
  }

  template <bool kBias, class Function>
  static void Bias(const Block& t, const Epilogue& e, Function f) {
    Each(t, [&](int64_t r, int64_t c, auto load, auto store) {
      F v = load(t.sums + r * t.ld_sums + c);
      if constexpr (kBias) v = V::Add(v, load(e.bias + c));
      store(t.y + r * t.ld_y + c, f(v));
    });
  }

  template <class Function>
  static void All(const Block& t, const Epilogue& e, Function f) {
    const bool first = e.residual != nullptr && e.residual_first;
    const bool last = e.residual != nullptr && !e.residual_first;
    Each(t, [&](int64_t r, int64_t c, auto load, auto store) {
      F v = load(t.sums + r * t.ld_sums + c);
      if (e.bias != nullptr) v = V::Add(v, load(e.bias + c));
      if (first) v = V::Add(v, load(e.residual + r * e.ld_residual + c));
      v = f(v);
      if (e.gate != nullptr) v = V::Mul(v, load(e.gate + r * e.ld_gate + c));
      if (last) v = V::Add(v, load(e.residual + r * e.ld_residual + c));
      store(t.y + r * t.ld_y + c, v);
    });
  }
};

}  // namespace
}  // namespace millrace::models
