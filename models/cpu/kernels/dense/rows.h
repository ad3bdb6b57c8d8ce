// Norms, softmax and reductions of rows, for any vector width. V is what
// scalar/vec1.h shows. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/lanes.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class V>
class Rows {
 public:
  static void LayerNorm(const NormArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const float* x = a.x + row * a.ld_x;
      float* y = a.y + row * a.ld_y;
      const float count = static_cast<float>(a.n);
      const float sum =
          L::Sum(a.n, [=](int64_t i, auto load) { return load(x + i); });
      const F mean = V::Set(sum / count);
      const float squares = L::SumOfSquares(
          a.n, [=](int64_t i, auto load) { return V::Sub(load(x + i), mean); });
      const F r = V::Set(Inverse(squares / count + a.eps));
      Scaled(a, y, [=](int64_t i, auto load) {
        return V::Mul(V::Sub(load(x + i), mean), r);
      });
    }
  }

  static void RmsNorm(const NormArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const float* x = a.x + row * a.ld_x;
      const float squares = L::SumOfSquares(
          a.n, [=](int64_t i, auto load) { return load(x + i); });
      const F r = V::Set(Inverse(squares / static_cast<float>(a.n) + a.eps));
      Scaled(a, a.y + row * a.ld_y,
             [=](int64_t i, auto load) { return V::Mul(load(x + i), r); });
    }
  }

  static void GroupNorm(const GroupNormArgs& a) {
    const int64_t width = a.channels / a.groups;
    if (width == 1) return InstanceNorm(a);
    const float count = static_cast<float>(width * a.pixels);
    for (int64_t group = a.group_begin; group < a.group_end; ++group) {
      const float* x = a.x + group * width;
      const auto sum = [&](auto row_sum) {
        float total = 0.0f;
        for (int64_t p = 0; p < a.pixels; ++p) {
          total = total + row_sum(x + p * a.ld_x);
        }
        return total;
      };
      const F mean = V::Set(sum([&](const float* row) {
                              return L::Sum(width, [=](int64_t i, auto load) {
                                return load(row + i);
                              });
                            }) /
                            count);
      const float squares = sum([&](const float* row) {
        return L::SumOfSquares(width, [=](int64_t i, auto load) {
          return V::Sub(load(row + i), mean);
        });
      });
      const F r = V::Set(Inverse(squares / count + a.eps));
      NormArgs part{.n = width};
      if (a.weight != nullptr) part.weight = a.weight + group * width;
      if (a.bias != nullptr) part.bias = a.bias + group * width;
      for (int64_t p = 0; p < a.pixels; ++p) {
        const float* row = x + p * a.ld_x;
        Scaled(part, a.y + p * a.ld_y + group * width,
               [=](int64_t i, auto load) {
                 return V::Mul(V::Sub(load(row + i), mean), r);
               });
      }
    }
  }

  static void Softmax(const SoftmaxArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
      const float* x = a.x + row * a.ld_x;
      const float* mask =
          a.mask != nullptr ? a.mask + row * a.ld_mask : nullptr;
      float* y = a.y + row * a.ld_y;
      if (mask != nullptr) {
        SoftmaxRow(a, y, [=](int64_t i, auto load) {
          return V::Add(load(x + i), load(mask + i));
        });
      } else {
        SoftmaxRow(a, y, [=](int64_t i, auto load) { return load(x + i); });
      }
    }
  }

  static void Reduce(ReduceKind kind, const float* x, int64_t rows, int64_t n,
                     int64_t ld, float* y) {
    for (int64_t r = 0; r < rows; ++r, x += ld) {
      const auto value = [=](int64_t i, auto load) { return load(x + i); };
      switch (kind) {
        case ReduceKind::kSum:
          y[r] = L::Sum(n, value);
          break;
        case ReduceKind::kMean:
          y[r] = L::Sum(n, value) / static_cast<float>(n);
          break;
        case ReduceKind::kMax:
          y[r] = Extreme(n, -__builtin_inff(), value,
                         [](F a, F b) { return V::Max(a, b); });
          break;
        case ReduceKind::kMin:
          y[r] = Extreme(n, __builtin_inff(), value,
                         [](F a, F b) { return V::Min(a, b); });
          break;
      }
    }
  }

 private:
  using F = typename V::F;
  using L = Lanes<V>;

  static float Inverse(float x) { return 1.0f / __builtin_sqrtf(x); }

  // Groups of one channel: a vector of them at a time. A tree over one value
  // is that value.
  static void InstanceNorm(const GroupNormArgs& a) {
    const F count = V::Set(static_cast<float>(a.pixels));
    L::Each(a.group_end - a.group_begin, [&](int64_t i, auto load, auto store) {
      const int64_t channel = a.group_begin + i;
      const float* x = a.x + channel;
      F sum = V::Zero();
      for (int64_t p = 0; p < a.pixels; ++p) {
        sum = V::Add(sum, load(x + p * a.ld_x));
      }
      const F mean = V::Div(sum, count);
      F squares = V::Zero();
      for (int64_t p = 0; p < a.pixels; ++p) {
        const F away = V::Sub(load(x + p * a.ld_x), mean);
        squares = V::Add(squares, V::Mul(away, away));
      }
      const F r = V::Div(
          V::Set(1.0f), V::Sqrt(V::Add(V::Div(squares, count), V::Set(a.eps))));
      const F weight =
          a.weight != nullptr ? load(a.weight + channel) : V::Set(1.0f);
      const F bias = a.bias != nullptr ? load(a.bias + channel) : V::Zero();
      for (int64_t p = 0; p < a.pixels; ++p) {
        F v = V::Mul(V::Sub(load(x + p * a.ld_x), mean), r);
        if (a.weight != nullptr && a.bias != nullptr) {
          v = V::Fma(v, weight, bias);
        } else if (a.weight != nullptr) {
          v = V::Mul(v, weight);
        } else if (a.bias != nullptr) {
          v = V::Add(v, bias);
        }
        store(a.y + p * a.ld_y + channel, v);
      }
    });
  }

  // y = value * weight + bias, fused where there are both.
  template <class Value>
  static void Scaled(const NormArgs& a, float* y, Value value) {
    L::Each(a.n, [&](int64_t i, auto load, auto store) {
      F v = value(i, load);
      if (a.weight != nullptr && a.bias != nullptr) {
        v = V::Fma(v, load(a.weight + i), load(a.bias + i));
      } else if (a.weight != nullptr) {
        v = V::Mul(v, load(a.weight + i));
      } else if (a.bias != nullptr) {
        v = V::Add(v, load(a.bias + i));
      }
      store(y + i, v);
    });
  }

  template <class Value>
  static void SoftmaxRow(const SoftmaxArgs& a, float* y, Value value) {
    constexpr float kLeast = -87.33654f;  // log(2^-126)
    const F m = V::Set(L::Greatest(a.n, value));
    if (a.logarithm) {
      const float sum = L::Sum(a.n, [=](int64_t i, auto load) {
        return Math<V>::ExpAbove(kLeast, V::Sub(value(i, load), m));
      });
      // Every lane computes the same.
      const F log = Math<V>::Log(V::Set(sum));
      L::Each(a.n, [&](int64_t i, auto load, auto store) {
        store(y + i, V::Sub(V::Sub(value(i, load), m), log));
      });
      return;
    }
    L::Each(a.n, [&](int64_t i, auto load, auto store) {
      store(y + i, Math<V>::ExpAbove(kLeast, V::Sub(value(i, load), m)));
    });
    const float sum =
        L::Sum(a.n, [=](int64_t i, auto load) { return load(y + i); });
    const F factor = V::Set(1.0f / sum);
    L::Each(a.n, [&](int64_t i, auto load, auto store) {
      store(y + i, V::Mul(load(y + i), factor));
    });
  }

  // A NaN on either side stays.
  template <class Value, class Choose>
  static float Extreme(int64_t n, float start, Value value, Choose choose) {
    const auto join = [=](F a, F b) {
      return V::Select(V::Equal(a, a), choose(a, b), a);
    };
    return L::Tree(
        n, start,
        [&](F acc, int64_t i, auto load) { return join(acc, value(i, load)); },
        join);
  }
};

}  // namespace
}  // namespace millrace::models
