// The functions of one value, for vectors of any width: the chains are what
// these bodies do. Polynomials were fitted here (least squares, reweighted to
// an even relative error); the errors named below are those of all floats, in
// units in the last place, as tests/backend/dense/functions_test.cc bounds
// them.
//
// A file that compiles this gives its vectors, a struct V as in
// scalar/vec1.h. Anonymous namespace: every instruction set has its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

template <class V>
struct Math {
  using F = typename V::F;
  using I = typename V::I;
  using Mask = typename V::Mask;

  static F Set(float x) { return V::Set(x); }
  static F Neg(F x) {
    return V::OfBits(V::Xor(V::Bits(x), V::SetBits(0x80000000u)));
  }
  static F Abs(F x) {
    return V::OfBits(V::And(V::Bits(x), V::SetBits(0x7fffffffu)));
  }
  // x with its sign turned where `of` is negative.
  static F FlipSign(F x, F of) {
    const I sign = V::And(V::Bits(of), V::SetBits(0x80000000u));
    return V::OfBits(V::Xor(V::Bits(x), sign));
  }

  // c[0] + c[1] * x + …, highest power first.
  template <int kCount>
  static F Polynomial(const float (&c)[kCount], F x) {
    F p = Set(c[kCount - 1]);
#pragma GCC unroll 16
    for (int i = kCount - 2; i >= 0; --i) p = V::Fma(p, x, Set(c[i]));
    return p;
  }

  // 2 units.
  static F Exp(F x) {
    x = V::Min(Set(89.0f), V::Max(Set(-105.0f), x));
    const F rounder = Set(12582912.0f);  // 1.5 * 2^23
    const F n = V::Sub(V::Fma(x, Set(1.44269504f), rounder), rounder);
    F r = V::Fma(n, Set(-0.693359375f), x);
    r = V::Fma(n, Set(2.12194440e-4f), r);
    constexpr float kC[] = {5.0000001201e-1f, 1.6666665459e-1f,
                            4.1665795894e-2f, 8.3334519073e-3f,
                            1.3981999507e-3f, 1.9875691500e-4f};
    const F p = V::Fma(Polynomial(kC, r), V::Mul(r, r), r);
    return V::Scale(V::Add(p, Set(1.0f)), n);
  }

  // exp(x) as of a softmax: 2 units, and 0 below `least`, exp(least) being
  // 2^-126 or more. Nothing comes out that a CPU could not compute with at full
  // speed: Intel's take some 150 clocks for each number below 2^-126, as a mask
  // of -100 makes them.
  static F ExpAbove(float least, F x) {
    const F e = Exp(V::Max(Set(least), x));
    return V::Select(V::Less(x, Set(least)), V::Zero(), e);
  }

  // exp(x) - 1, 3 units. For x up to 0.
  static F ExpM1(F x) {
    constexpr float kC[] = {0.5f,           0.166666657f,   0.0416663475f,
                            0.00833339151f, 0.00139416428f, 0.000198459587f};
    const F near = V::Fma(V::Mul(x, x), Polynomial(kC, x), x);
    const F far = V::Sub(Exp(x), Set(1.0f));
    return V::Select(V::Less(Set(-0.35f), x), near, far);
  }

  // 2 units. log(0) is -infinity, of a negative number NaN.
  static F Log(F x) {
    const Mask tiny = V::Less(x, Set(0x1p-126f));
    const F normal = V::Select(tiny, V::Mul(x, Set(0x1p23f)), x);
    // normal = m * 2^e with m in [sqrt(1 / 2), sqrt(2)).
    const I root = V::SetBits(0x3f3504f3u);
    const I offset = V::SubInts(V::Bits(normal), root);
    F e = V::ToFloat(V::template RightSigned<23>(offset));
    e = V::Add(e, V::Select(tiny, Set(-23.0f), V::Zero()));
    const I mantissa = V::And(offset, V::SetBits(0x7fffffu));
    const F f = V::Sub(V::OfBits(V::AddInts(mantissa, root)), Set(1.0f));
    constexpr float kC[] = {0.333333135f,  -0.250000089f, 0.200021192f,
                            -0.166679963f, 0.142195478f,  -0.124055855f,
                            0.118881874f,  -0.116756849f, 0.067466259f};
    const F s = V::Mul(f, f);
    F y = V::Mul(V::Mul(s, f), Polynomial(kC, f));
    y = V::Fma(e, Set(-2.12194440e-4f), y);
    y = V::Fma(s, Set(-0.5f), y);
    y = V::Fma(e, Set(0.693359375f), V::Add(f, y));
    constexpr float kInf = __builtin_inff();
    y = V::Select(V::Less(x, Set(kInf)), y, x);
    y = V::Select(V::Equal(x, V::Zero()), Set(-kInf), y);
    return V::Select(V::Less(x, V::Zero()), Set(__builtin_nanf("")), y);
  }

  // log(1 + u) for u in [0, 1], 3 units: what 1 + u loses comes back.
  static F Log1p(F u) {
    const F w = V::Add(Set(1.0f), u);
    const F lost = V::Sub(u, V::Sub(w, Set(1.0f)));
    return V::Add(Log(w), V::Div(lost, w));
  }

  // t * P(t^2) / Q(t^2) with t = x within +-limit: a function that is odd and
  // has come to +-1 there, where this is exactly that. Up to two units more
  // before.
  template <int kP, int kQ>
  static F OddRatio(F x, float limit, const float (&p)[kP],
                    const float (&q)[kQ]) {
    const F t = V::Min(Set(limit), V::Max(Set(-limit), x));
    const F s = V::Mul(t, t);
    return V::Div(V::Mul(t, Polynomial(p, s)), Polynomial(q, s));
  }
  static F WithinOne(F x) { return V::Min(Set(1.0f), V::Max(Set(-1.0f), x)); }

  // 5 units.
  static F Tanh(F x) {
    constexpr float kP[] = {1.0f, 0.13400523f, 0.0035188075f, 2.0994617e-05f,
                            1.38981e-08f};
    constexpr float kQ[] = {1.0f, 0.4673384f, 0.025965149f, 0.00033237413f,
                            7.996858e-07f};
    return WithinOne(OddRatio(x, 8.7f, kP, kQ));
  }

  // 6 units but for what OddRatio says.
  static F ErfRatio(F x) {
    constexpr float kP[] = {1.1283791f,   0.19148587f,    0.052866206f,
                            0.003805283f, 0.00028460292f, 2.0260973e-06f};
    constexpr float kQ[] = {1.0f,         0.5030326f,    0.11453235f,
                            0.015049238f, 0.0011699962f, 3.7829406e-05f};
    return OddRatio(x, 3.95f, kP, kQ);
  }

  static F Erf(F x) { return WithinOne(ErfRatio(x)); }

  static F Sigmoid(F x) {
    return V::Div(Set(1.0f), V::Add(Set(1.0f), Exp(Neg(x))));
  }

  static F HardSwish(F x) {
    const F t = V::Fma(Set(1.0f / 6), x, Set(0.5f));
    return V::Mul(x, V::Min(Set(1.0f), V::Max(V::Zero(), t)));
  }
  static F GeluErf(F x) {
    const F half = V::Mul(x, Set(0.5f));
    return V::Fma(half, ErfRatio(V::Mul(x, Set(0.707106781f))), half);
  }

  static F GeluTanh(F x) {
    // -2 * sqrt(2 / pi), alone and times 0.044715
    const F s = V::Mul(x, x);
    const F u = V::Fma(s, Set(-0.0713548163f), Set(-1.59576912f));
    return V::Div(x, V::Add(Set(1.0f), Exp(V::Mul(x, u))));
  }

  static F Softplus(F x, float a) {
    const F z = V::Mul(x, Set(a));
    const F sum = V::Add(V::Max(V::Zero(), z), Log1p(Exp(Neg(Abs(z)))));
    return V::Div(sum, Set(a));
  }

  // With e = exp(x), tanh(log(1 + e)) = e(e + 2) / (e(e + 2) + 2).
  static F Mish(F x) {
    const F e = Exp(V::Min(Set(30.0f), x));
    const F w = V::Mul(e, V::Add(e, Set(2.0f)));
    return V::Mul(x, V::Div(w, V::Add(w, Set(2.0f))));
  }

  // sin(x + quarters * pi / 2): x = j * pi / 2 + r, in three parts of pi / 2.
  static F SinFrom(F x, uint32_t quarters) {
    const F rounder = Set(12582912.0f);
    const F shifted = V::Fma(x, Set(0.636619772f), rounder);
    const F j = V::Sub(shifted, rounder);
    F r = V::Fma(j, Set(-1.57079637f), x);
    r = V::Fma(j, Set(4.37113883e-8f), r);
    r = V::Fma(j, Set(1.71512489e-15f), r);
    const I turn = V::AddInts(V::Bits(shifted), V::SetBits(quarters));
    constexpr float kSin[] = {-0.166666552f, 0.0083321603f, -0.000195152097f};
    constexpr float kCos[] = {0.0416666456f, -0.00138873153f, 2.44330986e-05f};
    const F s = V::Mul(r, r);
    const F sin = V::Fma(V::Mul(r, s), Polynomial(kSin, s), r);
    const F cos = V::Fma(V::Mul(s, s), Polynomial(kCos, s),
                         V::Fma(s, Set(-0.5f), Set(1.0f)));
    const F odd = V::ToFloat(V::And(turn, V::SetBits(1)));
    const F v = V::Select(V::Equal(odd, V::Zero()), sin, cos);
    // Bit 1 of the turn becomes the sign.
    return FlipSign(v, V::OfBits(V::template Left<30>(turn)));
  }

  // body(f) with f the function as a callable of F: loops stand in the body, so
  // that the choice is made once.
  template <class Body>
  static void With(Unary op, float a, float b, Body body) {
    const F zero = V::Zero();
    const F one = Set(1.0f);
    const F va = Set(a);
    const F vb = Set(b);
    switch (op) {
      case Unary::kNone:
        return body([](F x) { return x; });
      case Unary::kRelu:
        return body([=](F x) { return V::Max(zero, x); });
      case Unary::kClip:
        return body([=](F x) { return V::Min(vb, V::Max(va, x)); });
      case Unary::kLeakyRelu:
        return body(
            [=](F x) { return V::Select(V::Less(x, zero), V::Mul(va, x), x); });
      case Unary::kSigmoid:
        return body([](F x) { return Sigmoid(x); });
      case Unary::kHardSigmoid:
        return body(
            [=](F x) { return V::Min(one, V::Max(zero, V::Fma(va, x, vb))); });
      case Unary::kHardSwish:
        return body([](F x) { return HardSwish(x); });
      case Unary::kSilu:
        return body([](F x) { return V::Mul(x, Sigmoid(x)); });
      case Unary::kGeluErf:
        return body([](F x) { return GeluErf(x); });
      case Unary::kGeluTanh:
        return body([](F x) { return GeluTanh(x); });
      case Unary::kTanh:
        return body([](F x) { return Tanh(x); });
      case Unary::kElu:
        return body([=](F x) {
          return V::Select(V::Less(zero, x), x, V::Mul(va, ExpM1(x)));
        });
      case Unary::kSoftplus:
        return body([=](F x) { return Softplus(x, a); });
      case Unary::kMish:
        return body([](F x) { return Mish(x); });
      case Unary::kExp:
        return body([](F x) { return Exp(x); });
      case Unary::kLog:
        return body([](F x) { return Log(x); });
      case Unary::kSqrt:
        return body([](F x) { return V::Sqrt(x); });
      case Unary::kRsqrt:
        return body([=](F x) { return V::Div(one, V::Sqrt(x)); });
      case Unary::kReciprocal:
        return body([=](F x) { return V::Div(one, x); });
      case Unary::kNeg:
        return body([](F x) { return Neg(x); });
      case Unary::kAbs:
        return body([](F x) { return Abs(x); });
      case Unary::kErf:
        return body([](F x) { return Erf(x); });
      case Unary::kFloor:
        return body([](F x) { return V::Floor(x); });
      case Unary::kCeil:
        return body([](F x) { return V::Ceil(x); });
      case Unary::kRound:
        return body([](F x) { return V::Round(x); });
      case Unary::kSin:
        return body([](F x) { return SinFrom(x, 0); });
      case Unary::kCos:
        return body([](F x) { return SinFrom(x, 1); });
    }
  }
};

}  // namespace
}  // namespace millrace::models
