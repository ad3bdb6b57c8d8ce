// Quantising, norm, activation, rotation of one row, eight values at a time.

#include "models/cpu/kernels/neon/head8.h"
#include "models/cpu/kernels/neon/parts.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models::neon {
namespace {

using V = Neon8;

// Sigmoid of u, times gate, times up.
Floats8 Gated(Floats8 gate, Floats8 u, Floats8 up) {
  const Floats8 one = V::Set(1.0f);
  const Floats8 t = V::Div(one, V::Add(one, V::Exp(V::Negate(u))));
  return V::Mul(V::Mul(gate, t), up);
}

}  // namespace

void QuantizeRow(const float* x, int64_t k, const Q8Row& out) {
  for (int64_t b = 0; b < k / 32; ++b, x += 32) {
    int8_t* q = out.q + b * 32;
    const float d = QuantizeHead(x, 32, q);
    const int32_t low = vaddlvq_s8(vld1q_s8(q));
    const int32_t high = vaddlvq_s8(vld1q_s8(q + 16));
    out.half[2 * b] = static_cast<int16_t>(low);
    out.half[2 * b + 1] = static_cast<int16_t>(high);
    out.d[b] = d;
    out.s[b] = d * static_cast<float>(low + high);
    out.sum[b] = low + high;
  }
}

void RestOfRow(const float* x, int64_t k, const Q8Row& q, float* rest) {
  for (int64_t i = 0; i < k; i += 8) {
    const Floats8 near = V::Mul(V::Set(q.d[i / 32]), FloatsOfInt8(q.q + i));
    V::Store(rest + i, V::Sub(V::Load(x + i), near));
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  Floats8 lanes = V::Zero();
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 v = V::LoadFirst(x + i, left);
    lanes = V::Fma(v, v, lanes);
  });
  const float mean = V::LaneSum(lanes) / static_cast<float>(n);
  const Floats8 r = V::Set(1.0f / __builtin_sqrtf(mean + eps));
  V::Each(n, [&](int64_t i, int64_t left) {
    V::StoreFirst(out + i, left,
                  V::Mul(V::Mul(V::LoadFirst(x + i, left), r),
                         V::LoadFirst(weight + i, left)));
  });
}

void Add(float* x, const float* y, int64_t n) {
  V::Each(n, [&](int64_t i, int64_t left) {
    V::StoreFirst(x + i, left,
                  V::Add(V::LoadFirst(x + i, left), V::LoadFirst(y + i, left)));
  });
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 g = V::LoadFirst(gate + i, left);
    V::StoreFirst(out + i, left, Gated(g, g, V::LoadFirst(up + i, left)));
  });
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  const Floats8 cubic = V::Set(7.13548163e-2f);
  const Floats8 linear = V::Set(1.59576912f);
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 g = V::LoadFirst(gate + i, left);
    const Floats8 u = V::Mul(g, V::Fma(V::Mul(g, g), cubic, linear));
    V::StoreFirst(out + i, left, Gated(g, u, V::LoadFirst(up + i, left)));
  });
}

void SoftCap(float* x, float cap, int64_t n) {
  const Floats8 one = V::Set(1.0f);
  const Floats8 two = V::Set(2.0f);
  const Floats8 inner = V::Set(2.0f / cap);
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 e = V::Exp(V::Mul(V::LoadFirst(x + i, left), inner));
    const Floats8 part = V::Div(two, V::Add(e, one));
    V::StoreFirst(x + i, left, V::Mul(V::Sub(one, part), V::Set(cap)));
  });
}

namespace {

// a' = fma(a, c, -(b * s)); b' = fma(a, s, b * c).
void Rotate(Floats8& a, Floats8& b, Floats8 c, Floats8 s) {
  const Floats8 old = a;
  a = V::Fma(old, c, V::Negate(V::Mul(b, s)));
  b = V::Fma(old, s, V::Mul(b, c));
}

}  // namespace

void Rope(float* head, int64_t head_dim, const float* cos, const float* sin,
          bool interleaved) {
  const int64_t half = head_dim / 2;
  V::Each(half, [&](int64_t i, int64_t left) {
    const Floats8 c = V::LoadFirst(cos + i, left);
    const Floats8 s = V::LoadFirst(sin + i, left);
    if (!interleaved) {
      Floats8 a = V::LoadFirst(head + i, left);
      Floats8 b = V::LoadFirst(head + half + i, left);
      Rotate(a, b, c, s);
      V::StoreFirst(head + i, left, a);
      V::StoreFirst(head + half + i, left, b);
      return;
    }
    // Pairs come apart and go together again.
    float* pairs = head + 2 * i;
    const Floats8 low = V::LoadFirst(pairs, 2 * left);
    const Floats8 high =
        left > 4 ? V::LoadFirst(pairs + 8, 2 * left - 8) : V::Zero();
    Floats8 a = {vuzp1q_f32(low.a, low.b), vuzp1q_f32(high.a, high.b)};
    Floats8 b = {vuzp2q_f32(low.a, low.b), vuzp2q_f32(high.a, high.b)};
    Rotate(a, b, c, s);
    V::StoreFirst(pairs, 2 * left,
                  {vzip1q_f32(a.a, b.a), vzip2q_f32(a.a, b.a)});
    if (left <= 4) return;
    V::StoreFirst(pairs + 8, 2 * left - 8,
                  {vzip1q_f32(a.b, b.b), vzip2q_f32(a.b, b.b)});
  });
}

void Scale(const float* x, float scale, int64_t n, float* out) {
  V::Each(n, [&](int64_t i, int64_t left) {
    V::StoreFirst(out + i, left,
                  V::Mul(V::LoadFirst(x + i, left), V::Set(scale)));
  });
}

}  // namespace millrace::models::neon
