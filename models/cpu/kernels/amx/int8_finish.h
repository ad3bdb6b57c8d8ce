// What happens to the sums of a block of tiles: the chain of
// graph_int8_kernels.h for rows of 32 outputs, several at a time, with the
// commonest epilogues compiled on their own. The vectors' own code does the
// others, with the same bits.
//
// S is what kernels/dense_int8/gemm.h says, of 16 lanes, and packs integers to
// bytes with saturation: limits that only say what a byte holds are left out.
// Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/ask_to_write.h"
#include "models/cpu/kernels/dense/math.h"
#include "models/cpu/kernels/dense_int8/epilogue.h"
#include "models/cpu/kernels/dense_int8/quick.h"

namespace millrace::models {
namespace {

template <class S>
class Int8TileFinish {
 public:
  using V = typename S::V;
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int64_t kWidth = 32;  // outputs
  static constexpr int kRows = 8;        // at a time

  Int8TileFinish(const Int8Epilogue& e, const Int8Out& out, int64_t n,
                 int64_t first_output, int64_t last_output)
      : e_(e), out_(out), n_(n), quick_(e, out_, n) {
    const bool bytes = out.bytes != nullptr;
    const bool middle = e.middle_scale != 0;
    const bool residual = e.residual != nullptr;
    const ByteLimits limits(e);
    low_ = limits.low;
    high_ = limits.high;
    const bool free = low_ == static_cast<float>(-e.y_zero) &&
                      high_ == static_cast<float>(255 - e.y_zero) &&
                      IsFarFromOverflow(first_output, last_output);
    if (bytes && quick_.applies() && e.y_scale == 1 && middle == residual) {
      way_ =
          middle
              ? (free ? &Self::Bytes<true, false> : &Self::Bytes<true, true>)
              : (free ? &Self::Bytes<false, false> : &Self::Bytes<false, true>);
    } else if (bytes && !residual && e.residual_f32 == nullptr) {
      way_ = middle ? &Self::Functions<true> : &Self::Functions<false>;
    } else if (!bytes && e.f == Unary::kNone && !residual) {
      way_ = middle ? &Self::Floats<true> : &Self::Floats<false>;
    }
  }
  Int8TileFinish(const Int8TileFinish&) = delete;
  Int8TileFinish& operator=(const Int8TileFinish&) = delete;

  // Asks for the line that a row of results is written to, since stores that
  // miss wait for each other, and for what is added to it.
  void AskFor(int64_t row, int64_t output) const {
    const int64_t at = row * out_.ld + output;
    if (out_.bytes != nullptr) {
      AskToWrite(out_.bytes + at);
    } else {
      AskToWrite(out_.floats + at);
      AskToWrite(out_.floats + at + 16);
    }
    if (e_.residual != nullptr) {
      __builtin_prefetch(e_.residual + row * e_.ld_residual + output);
    }
  }

  // y's rows from `row` on and outputs from `output` on, of up to kRows rows of
  // sums.
  void Run(const int32_t* sums, int64_t row, int64_t output,
           int64_t rows) const {
    if (way_ != nullptr) return (this->*way_)(sums, row, output, rows);
    if (!quick_.applies()) {
      const int64_t live = SmallerOf(n_ - output, kWidth);
      return Int8Finish<S>::Run(sums, kWidth, rows, live, From(e_, row, output),
                                out_.At(row, output));
    }
    for (int64_t r = 0; r < rows; ++r, sums += kWidth) {
      I acc[1][2] = {{S::LoadInts(sums, 16), S::LoadInts(sums + 16, 16)}};
      quick_.template Finish<false>(row + r, output, acc);
    }
  }

 private:
  using Self = Int8TileFinish;

  // What of the epilogue 16 outputs have in common.
  struct Column {
    I offset;
    F scale;
    F bias;
    F middle_bias;
  };
  Column At(int64_t output, float no_bias) const {
    const int64_t live = n_ - output;
    return {S::LoadInts(e_.offset + output, live),
            V::LoadFirst(e_.scale + output, live),
            e_.bias != nullptr ? V::LoadFirst(e_.bias + output, live)
                               : V::Set(no_bias),
            e_.middle_bias != nullptr
                ? V::LoadFirst(e_.middle_bias + output, live)
                : V::Zero()};
  }

  // A value that is quantised on its own.
  struct Middle {
    explicit Middle(const Int8Epilogue& e)
        : scale(V::Set(e.middle_scale)),
          low(V::Set(e.middle_low)),
          high(V::Set(e.middle_high)) {}
    F Of(F v, F bias) const {
      v = V::Min(high, V::Max(V::Round(v), low));
      return V::Fma(v, scale, bias);
    }
    const F scale, low, high;
  };

  // Whether no value that is rounded to a byte comes near to what 32 bits hold.
  bool IsFarFromOverflow(int64_t first, int64_t last) const {
    constexpr float kMost = 1 << 28;
    F scale = V::Zero();
    F bias = V::Zero();
    for (int64_t i = first; i < last; i += V::kLanes) {
      scale = V::Max(scale, Abs(V::LoadFirst(e_.scale + i, last - i)));
      if (e_.bias != nullptr) {
        bias = V::Max(bias, Abs(V::LoadFirst(e_.bias + i, last - i)));
      }
      if (e_.middle_bias != nullptr) {
        bias = V::Max(bias, Abs(V::LoadFirst(e_.middle_bias + i, last - i)));
      }
    }
    const float limits[] = {e_.middle_scale, e_.middle_low * e_.middle_scale,
                            e_.middle_high * e_.middle_scale,
                            256 * e_.residual_scale,
                            e_.residual_zero * e_.residual_scale};
    for (const float limit : limits) {
      if (!(limit < kMost && limit > -kMost)) return false;
    }
    return AllLess(scale, 0.125f) && AllLess(bias, kMost);
  }
  static F Abs(F x) { return V::Max(x, V::Sub(V::Zero(), x)); }
  static bool AllLess(F x, float limit) {
    return V::Less(x, V::Set(limit)) == static_cast<typename V::Mask>(-1);
  }

  template <bool kJoins, bool kLimits>
  void Bytes(const int32_t* sums, int64_t row, int64_t output,
             int64_t rows) const {
    for (; rows >= kRows; rows -= kRows, row += kRows) {
      BytesOf<kJoins, kLimits, kRows>(sums, row, output);
      sums += kRows * kWidth;
    }
    for (; rows > 0; --rows, ++row, sums += kWidth) {
      BytesOf<kJoins, kLimits, 1>(sums, row, output);
    }
  }

  // kJoins: a value between and a residual.
  template <bool kJoins, bool kLimits, int kR>
  void BytesOf(const int32_t* sums, int64_t row, int64_t output) const {
    const Column columns[] = {At(output, 0.0f), At(output + 16, 0.0f)};
    const Middle middle(e_);
    const F residual_scale = V::Set(e_.residual_scale);
    const F residual_zero = V::Set(e_.residual_zero);
    const F low = V::Set(low_);
    const F high = V::Set(high_);
    const int64_t live = n_ - output;
    const int64_t ld_residual = e_.ld_residual;
    const uint8_t* residual =
        kJoins ? e_.residual + row * ld_residual + output : nullptr;
    constexpr int kPairs = (kR + 1) / 2;
    typename S::Rows out[kPairs];
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) {
      I q[2][2];
#pragma GCC unroll 2
      for (int s = 0; s < 2; ++s) {
        const int r = 2 * pair + s < kR ? 2 * pair + s : kR - 1;
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const Column& c = columns[i];
          const I sum =
              V::AddInts(S::LoadInts(sums + r * kWidth + i * 16, 16), c.offset);
          F v = V::Fma(V::ToFloat(sum), c.scale, c.bias);
          if constexpr (kJoins) {
            v = middle.Of(v, c.middle_bias);
            const F x = S::LoadBytes(residual + r * ld_residual + i * 16,
                                     live - i * 16);
            v = V::Fma(V::Sub(x, residual_zero), residual_scale, v);
          }
          if constexpr (kLimits) v = V::Min(V::Max(v, low), high);
          q[s][i] = S::ToInts(v);
        }
      }
      out[pair] = S::PackRows(q, e_.y_zero);
    }
    if (e_.lookup != nullptr) S::LookupRows(e_.lookup, out);
    uint8_t* y = out_.bytes + row * out_.ld + output;
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r, y += out_.ld) {
      if (r % 2 == 0) {
        S::StoreRow0(y, live, out[r / 2]);
      } else {
        S::StoreRow1(y, live, out[r / 2]);
      }
    }
  }

  // Bytes of any function, without a residual.
  template <bool kMiddle>
  void Functions(const int32_t* sums, int64_t row, int64_t output,
                 int64_t rows) const {
    Math<V>::With(e_.f, e_.a, e_.b, [&](auto f) {
      FunctionsOf<kMiddle>(sums, row, output, rows, f);
    });
  }
  template <bool kMiddle, class Function>
  [[gnu::noinline]] void FunctionsOf(const int32_t* sums, int64_t row,
                                     int64_t output, int64_t rows,
                                     Function f) const {
    // A bias of -0 changes nothing.
    const Column columns[] = {At(output, -0.0f), At(output + 16, -0.0f)};
    const Middle middle(e_);
    const F y_scale = V::Set(e_.y_scale);
    const F low = V::Set(static_cast<float>(-e_.y_zero));
    const F high = V::Set(static_cast<float>(255 - e_.y_zero));
    const int64_t live = n_ - output;
    uint8_t* y = out_.bytes + row * out_.ld + output;
    for (int64_t r = 0; r < rows; r += 2) {
      const bool two = r + 1 < rows;
      I q[2][2];
#pragma GCC unroll 2
      for (int s = 0; s < 2; ++s) {
        const int32_t* from = sums + (two ? r + s : r) * kWidth;
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const Column& c = columns[i];
          const I sum = V::AddInts(S::LoadInts(from + i * 16, 16), c.offset);
          F v = V::Fma(V::ToFloat(sum), c.scale, c.bias);
          if constexpr (kMiddle) v = middle.Of(v, c.middle_bias);
          q[s][i] = S::ToInts(Int8Finish<S>::Limited(f(v), y_scale, low, high));
        }
      }
      typename S::Rows out[] = {S::PackRows(q, e_.y_zero)};
      if (e_.lookup != nullptr) S::LookupRows(e_.lookup, out);
      S::StoreRow0(y, live, out[0]);
      if (two) S::StoreRow1(y + out_.ld, live, out[0]);
      y += 2 * out_.ld;
    }
  }

  template <bool kMiddle>
  void Floats(const int32_t* sums, int64_t row, int64_t output,
              int64_t rows) const {
    // A bias of -0 changes nothing.
    const Column columns[] = {At(output, -0.0f), At(output + 16, -0.0f)};
    const Middle middle(e_);
    const F residual_scale = V::Set(e_.residual_scale);
    const float* residual = e_.residual_f32;
    const int64_t live = n_ - output;
    for (int64_t r = row; r < row + rows; ++r, sums += kWidth) {
      float* y = out_.floats + r * out_.ld + output;
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Column& c = columns[i];
        const I sum = V::AddInts(S::LoadInts(sums + i * 16, 16), c.offset);
        F v = V::Fma(V::ToFloat(sum), c.scale, c.bias);
        if constexpr (kMiddle) v = middle.Of(v, c.middle_bias);
        if (residual != nullptr) {
          const float* x = residual + r * e_.ld_residual + output;
          v = V::Fma(V::LoadFirst(x + i * 16, live - i * 16), residual_scale,
                     v);
        }
        V::StoreFirst(y + i * 16, live - i * 16, v);
      }
    }
  }

  const Int8Epilogue& e_;
  const Int8Out out_;
  const int64_t n_;
  const Int8Quick<S> quick_;
  float low_ = 0;
  float high_ = 0;
  // Null: there is none for this epilogue.
  void (Self::*way_)(const int32_t*, int64_t, int64_t, int64_t) const = nullptr;
};

}  // namespace
}  // namespace millrace::models
