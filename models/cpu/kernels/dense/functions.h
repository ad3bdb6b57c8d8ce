// Functions of whole arrays, for vectors of any width. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class V>
class Arrays {
 public:
  static void UnaryOf(Unary f, float a, float b, const float* x, int64_t n,
                      float* out) {
    Math<V>::With(f, a, b, [&](auto function) {
      Each(n, [&](int64_t i, auto load, auto store) {
        store(out + i, function(load(x + i)));
      });
    });
  }

  static void BinaryOf(Binary f, const float* x, int64_t step_x, const float* y,
                       int64_t step_y, int64_t n, float* out) {
    With(f, [&](auto function) {
      // Read before the loop: it may be done in place.
      const F one_x = V::Set(n > 0 && step_x == 0 ? *x : 0.0f);
      const F one_y = V::Set(n > 0 && step_y == 0 ? *y : 0.0f);
      if (step_x == 0) {
        Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(one_x, step_y == 0 ? one_y : load(y + i)));
        });
      } else if (step_y == 0) {
        Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(load(x + i), one_y));
        });
      } else {
        Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(load(x + i), load(y + i)));
        });
      }
    });
  }

 private:
  using F = typename V::F;

  // body(i, load, store) for every vector; the last may be cut.
  template <class Body>
  static void Each(int64_t n, Body body) {
    const auto load = [](const float* p) { return V::Load(p); };
    const auto store = [](float* p, F v) { V::Store(p, v); };
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) body(i, load, store);
    const int64_t rest = n - i;
    if (rest == 0) return;
    body(
        i, [=](const float* p) { return V::LoadFirst(p, rest); },
        [=](float* p, F v) { V::StoreFirst(p, rest, v); });
  }

  template <class Body>
  static void With(Binary f, Body body) {
    switch (f) {
      case Binary::kAdd:
        return body([](F x, F y) { return V::Add(x, y); });
      case Binary::kSub:
        return body([](F x, F y) { return V::Sub(x, y); });
      case Binary::kMul:
        return body([](F x, F y) { return V::Mul(x, y); });
      case Binary::kDiv:
        return body([](F x, F y) { return V::Div(x, y); });
      case Binary::kMin:
        return body([](F x, F y) { return V::Min(x, y); });
      case Binary::kMax:
        return body([](F x, F y) { return V::Max(x, y); });
    }
  }
};

}  // namespace
}  // namespace millrace::models
