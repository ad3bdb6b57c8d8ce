// One step of recurrent cells, for vectors of any width. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/lanes.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class V>
class Cells {
 public:
  static void Lstm(const float* gates, int64_t n, float* c, float* h) {
    Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
      const F in = M::Sigmoid(load(gates + i));
      const F out = M::Sigmoid(load(gates + n + i));
      const F forget = M::Sigmoid(load(gates + 2 * n + i));
      const F fresh = V::Mul(in, M::Tanh(load(gates + 3 * n + i)));
      const F cell = V::Fma(forget, load(c + i), fresh);
      store(c + i, cell);
      store(h + i, V::Mul(out, M::Tanh(cell)));
    });
  }

  static void Gru(const float* x, const float* r, int64_t n, float* h) {
    Lanes<V>::Each(n, [&](int64_t i, auto load, auto store) {
      const F update = M::Sigmoid(V::Add(load(x + i), load(r + i)));
      const F reset = M::Sigmoid(V::Add(load(x + n + i), load(r + n + i)));
      const F fresh =
          M::Tanh(V::Fma(reset, load(r + 2 * n + i), load(x + 2 * n + i)));
      store(h + i, V::Fma(update, V::Sub(load(h + i), fresh), fresh));
    });
  }

 private:
  using F = typename V::F;
  using M = Math<V>;
};

}  // namespace
}  // namespace millrace::models
