// The commonest epilogues, which need no function: sums become bytes without
// leaving the registers. Anonymous namespace. S is what
// kernels/dense_int8/gemm.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense_int8/epilogue.h"

namespace millrace::models {
namespace {

template <class S>
class Int8Quick {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;

  Int8Quick(const Int8Epilogue& e, const Int8Out& out, int64_t n)
      : e_(e), out_(out), n_(n) {
    const ByteLimits limits(e);
    applies_ =
        out.bytes != nullptr && e.residual_f32 == nullptr && limits.cover_f;
    plain_ = e.middle_scale == 0 && e.residual == nullptr && e.y_scale == 1;
    low_ = limits.low;
    high_ = limits.high;
  }
  bool applies() const { return applies_; }

  // Always inlined: sums that a function is given do not stay in registers, not
  // even before. Of rows from `row` on and outputs from n0 on, all of which
  // there are if kWhole.
  template <bool kWhole, int kR, int kNv>
  [[gnu::always_inline]] inline void Finish(int64_t row, int64_t n0,
                                            I (&acc)[kR][kNv]) const {
    if (plain_) return FinishAs<true, kWhole>(row, n0, acc);
    FinishAs<false, kWhole>(row, n0, acc);
  }

 private:
  // What an epilogue does between a sum and its byte, but for f.
  struct Middle {
    explicit Middle(const Int8Epilogue& e)
        : rounds(e.middle_scale != 0),
          scale(V::Set(e.middle_scale)),
          low(V::Set(e.middle_low)),
          high(V::Set(e.middle_high)),
          residual_scale(V::Set(e.residual_scale)),
          residual_zero(V::Set(e.residual_zero)) {}

    F Of(F value, F bias) const {
      if (!rounds) return value;
      value = V::Min(high, V::Max(V::Round(value), low));
      return V::Fma(value, scale, bias);
    }
    F Join(F value, F byte) const {
      return V::Fma(V::Sub(byte, residual_zero), residual_scale, value);
    }

    const bool rounds;
    const F scale;
    const F low;
    const F high;
    const F residual_scale;
    const F residual_zero;
  };

  // The commonest epilogues without leaving the registers: two vectors at a
  // time, whole ones or what is left of the outputs.
  template <bool kPlain, bool kWhole, int kR, int kNv>
  [[gnu::always_inline]] inline void FinishAs(int64_t row, int64_t n0,
                                              I (&acc)[kR][kNv]) const {
    const Int8Epilogue& e = e_;
    const F low = V::Set(low_);
    const F high = V::Set(high_);
    const int32_t zero = e.y_zero;
    const uint8_t* const table = e.lookup;
    const int64_t ld = out_.ld;
    uint8_t* y = out_.bytes + row * ld + n0;
    const Middle middle(e);
    constexpr int kTwo = kNv < 2 ? 1 : 2;
    static_assert(kNv % kTwo == 0);
#pragma GCC unroll 4
    for (int v = 0; v < kNv; v += 2) {
      const int64_t n = n0 + v * V::kLanes;
      int64_t live[2];
      F scale[2];
      F bias[2];
      F middle_bias[2];
      I offset[2];
#pragma GCC unroll 2
      for (int i = 0; i < kTwo; ++i) {
        const int64_t at = n + i * V::kLanes;
        live[i] = kWhole ? int64_t{V::kLanes} : n_ - at;
        offset[i] = S::LoadInts(e.offset + at, live[i]);
        scale[i] = V::LoadFirst(e.scale + at, live[i]);
        bias[i] =
            e.bias != nullptr ? V::LoadFirst(e.bias + at, live[i]) : V::Zero();
        middle_bias[i] = e.middle_bias != nullptr
                             ? V::LoadFirst(e.middle_bias + at, live[i])
                             : V::Zero();
      }
      constexpr int kPairs = (kR + 1) / 2;
      typename S::Rows out[kPairs];
#pragma GCC unroll 16
      for (int pair = 0; pair < kPairs; ++pair) {
        I q[2][2];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
          const int r = 2 * pair + s < kR ? 2 * pair + s : kR - 1;
#pragma GCC unroll 2
          for (int i = 0; i < kTwo; ++i) {
            const I sum = V::AddInts(acc[r][v + i], offset[i]);
            F value = V::Fma(V::ToFloat(sum), scale[i], bias[i]);
            if constexpr (!kPlain) {
              value = middle.Of(value, middle_bias[i]);
              if (e.residual != nullptr) {
                const uint8_t* from =
                    e.residual + (row + r) * e.ld_residual + n;
                value = middle.Join(
                    value, S::LoadBytes(from + i * V::kLanes, live[i]));
              }
              value = V::Mul(value, V::Set(e.y_scale));
            }
            q[s][i] = S::ToInts(V::Min(V::Max(value, low), high));
          }
        }
        if constexpr (kTwo == 1) {
          q[0][1] = V::SetBits(0);
          q[1][1] = V::SetBits(0);
        }
        out[pair] = S::PackRows(q, zero);
      }
      if (table != nullptr) S::LookupRows(table, out);
      const int64_t bytes = kWhole ? kTwo * V::kLanes : live[0];
#pragma GCC unroll 16
      for (int r = 0; r < kR; ++r) {
        uint8_t* const to = y + r * ld + v * V::kLanes;
        if (r % 2 == 0) {
          S::StoreRow0(to, bytes, out[r / 2]);
        } else {
          S::StoreRow1(to, bytes, out[r / 2]);
        }
      }
    }
  }

  const Int8Epilogue& e_;
  const Int8Out& out_;
  const int64_t n_;
  bool applies_;
  bool plain_;  // nothing joins
  float low_;
  float high_;
};

}  // namespace
}  // namespace millrace::models
