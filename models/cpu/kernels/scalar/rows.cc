// What happens to one row of activations between the matrices: quantising,
// norm, activation, rotation, sums.

#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models::scalar {

void QuantizeRow(const float* x, int64_t k, const Q8Row& out) {
  constexpr float kLeastNormal = 0x1p-126f;
  for (int64_t b = 0; b < k / 32; ++b) {
    const float* block = x + b * 32;
    float greatest = 0.0f;
    for (int i = 0; i < 32; ++i) {
      const float magnitude = __builtin_fabsf(block[i]);
      greatest = magnitude > greatest ? magnitude : greatest;
    }
    float d = greatest / 127.0f;
    const bool zero = d < kLeastNormal;
    const float inverse = zero ? 0.0f : 1.0f / d;
    if (zero) d = 0.0f;
    int32_t half[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      const auto q = static_cast<int8_t>(RoundToInt(block[i] * inverse));
      out.q[b * 32 + i] = q;
      half[i / 16] += q;
    }
    const int32_t sum = half[0] + half[1];
    out.half[2 * b] = static_cast<int16_t>(half[0]);
    out.half[2 * b + 1] = static_cast<int16_t>(half[1]);
    out.d[b] = d;
    out.s[b] = d * static_cast<float>(sum);
    out.sum[b] = sum;
  }
}

void RestOfRow(const float* x, int64_t k, const Q8Row& q, float* rest) {
  for (int64_t i = 0; i < k; ++i) {
    rest[i] = x[i] - q.d[i / 32] * static_cast<float>(q.q[i]);
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  float lanes[8] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 8] = Fma(x[i], x[i], lanes[i % 8]);
  const float mean = LaneSum(lanes) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

void Add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float t = 1.0f / (1.0f + Exp(-gate[i]));
    out[i] = (gate[i] * t) * up[i];
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float u = g * Fma(g * g, 7.13548163e-2f, 1.59576912f);
    const float t = 1.0f / (1.0f + Exp(-u));
    out[i] = (g * t) * up[i];
  }
}

void SoftCap(float* x, float cap, int64_t n) {
  const float inner = 2.0f / cap;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = (1.0f - 2.0f / (Exp(x[i] * inner) + 1.0f)) * cap;
  }
}

void Rope(float* head, int64_t head_dim, const float* cos, const float* sin,
          bool interleaved) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    float* a = interleaved ? head + 2 * i : head + i;
    float* b = interleaved ? a + 1 : a + half;
    const float a_new = Fma(*a, cos[i], -(*b * sin[i]));
    const float b_new = Fma(*a, sin[i], *b * cos[i]);
    *a = a_new;
    *b = b_new;
  }
}

void Scale(const float* x, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale;
}

}  // namespace millrace::models::scalar
