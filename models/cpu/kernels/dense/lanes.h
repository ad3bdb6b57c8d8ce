// Sums and extremes over an array, for vectors of any width: a reduction by 32
// lanes, as graph_kernels.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

template <class V>
class Lanes {
 public:
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  // body(i, load, store) for every vector of an array; the last one may be cut,
  // its missing lanes load as 0 and are not stored.
  template <class Body>
  static void Each(int64_t n, Body body) {
    const auto load = [](const float* p) { return V::Load(p); };
    const auto store = [](float* p, F v) { V::Store(p, v); };
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) body(i, load, store);
    const int64_t rest = n - i;
    if (rest == 0) return;
    body(
        i, [=](const float* p) { return V::LoadFirst(p, rest); },
        [=](float* p, F v) { V::StoreFirst(p, rest, v); });
  }

  // The tree over 32 lanes that begin as `start`; add(acc, i, load) takes the
  // vector at i into acc, join(a, b) folds lanes. What add makes of lanes
  // beyond n is dropped.
  template <class Add, class Join>
  static float Tree(int64_t n, float start, Add add, Join join) {
    F acc[kWays];
#pragma GCC unroll 32
    for (int w = 0; w < kWays; ++w) acc[w] = V::Set(start);
    const auto load = [](const float* p) { return V::Load(p); };
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 32
      for (int w = 0; w < kWays; ++w) {
        acc[w] = add(acc[w], i + w * kLanes, load);
      }
    }
#pragma GCC unroll 32
    for (int w = 0; w < kWays; ++w) {
      const int64_t at = i + w * kLanes;
      const int64_t rest = n - at;
      if (rest <= 0) continue;
      const auto load_cut = [=](const float* p) {
        return V::LoadFirst(p, rest);
      };
      acc[w] = V::Select(V::First(rest), add(acc[w], at, load_cut), acc[w]);
    }
#pragma GCC unroll 8
    for (int half = kWays / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int w = 0; w < half; ++w) acc[w] = join(acc[w], acc[w + half]);
    }
    return V::FirstLane(Fold<kLanes / 2>(acc[0], join));
  }

  template <class Value>
  static float Sum(int64_t n, Value value) {
    return Tree(
        n, 0.0f,
        [&](F acc, int64_t i, auto load) {
          return V::Add(acc, value(i, load));
        },
        [](F a, F b) { return V::Add(a, b); });
  }
  // Lanes of fma(v, v, lane).
  template <class Value>
  static float SumOfSquares(int64_t n, Value value) {
    return Tree(
        n, 0.0f,
        [&](F acc, int64_t i, auto load) {
          const F v = value(i, load);
          return V::Fma(v, v, acc);
        },
        [](F a, F b) { return V::Add(a, b); });
  }
  // A NaN may be lost.
  template <class Value>
  static float Greatest(int64_t n, Value value) {
    return Tree(
        n, -__builtin_inff(),
        [&](F acc, int64_t i, auto load) {
          return V::Max(acc, value(i, load));
        },
        [](F a, F b) { return V::Max(a, b); });
  }

 private:
  static constexpr int kWays = 32 / kLanes;

  // Lane 0 ends up with all lanes: first halves, then quarters, and so on.
  template <int kHalf, class Join>
  static F Fold(F v, Join join) {
    if constexpr (kHalf == 0) {
      return v;
    } else {
      return Fold<kHalf / 2>(join(v, V::template Down<kHalf>(v)), join);
    }
  }
};

}  // namespace
}  // namespace millrace::models
