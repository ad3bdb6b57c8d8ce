// Functions of whole arrays, for vectors of any width. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/lanes.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class V>
class Arrays {
 public:
  static void UnaryOf(Unary f, float a, float b, const float* x, int64_t n,
                      float* out) {
    Math<V>::With(f, a, b, [&](auto function) {
      Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
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
        Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(one_x, step_y == 0 ? one_y : load(y + i)));
        });
      } else if (step_y == 0) {
        Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(load(x + i), one_y));
        });
      } else {
        Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
          store(out + i, function(load(x + i), load(y + i)));
        });
      }
    });
  }

  static void Mix(const float* const* rows, const float* weights, int64_t count,
                  int64_t n, float* out) {
    Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
      F sum = V::Zero();
      for (int64_t r = 0; r < count; ++r) {
        sum = V::Fma(load(rows[r] + i), V::Set(weights[r]), sum);
      }
      store(out + i, sum);
    });
  }

  // The compiler makes vectors of it.
  static void Where(const uint8_t* mask, const float* x, int64_t step_x,
                    const float* y, int64_t step_y, int64_t n, float* out) {
    const float one_x = n > 0 && step_x == 0 ? *x : 0.0f;
    const float one_y = n > 0 && step_y == 0 ? *y : 0.0f;
    if (step_x != 0 && step_y != 0) {
      for (int64_t i = 0; i < n; ++i) out[i] = mask[i] != 0 ? x[i] : y[i];
    } else if (step_x != 0) {
      for (int64_t i = 0; i < n; ++i) out[i] = mask[i] != 0 ? x[i] : one_y;
    } else if (step_y != 0) {
      for (int64_t i = 0; i < n; ++i) out[i] = mask[i] != 0 ? one_x : y[i];
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = mask[i] != 0 ? one_x : one_y;
    }
  }

 private:
  using F = typename V::F;

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
