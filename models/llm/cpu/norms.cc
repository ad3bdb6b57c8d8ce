// Run time: norms of rows and activations.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// Sum of f(x[i]) by the lane tree of llm_kernels.h.
template <typename F>
float LaneTree(const float* x, int64_t n, F f) {
  float lane[8] = {};
  for (int64_t i = 0; i < n; ++i) lane[i % 8] += f(x[i]);
  for (int step = 4; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

// out = (x - mean) / sqrt(variance + eps) * weight + bias, in f32 and without
// fma, so that every instruction set gives the same bits. `out` may be x.
void LayerNorm(const float* x, const Norm& norm, int64_t n, float eps,
               float* out) {
  const auto count = static_cast<float>(n);
  const float mean = LaneTree(x, n, [](float v) { return v; }) / count;
  const float squares =
      LaneTree(x, n, [mean](float v) { return (v - mean) * (v - mean); });
  const float r = 1.0f / std::sqrt(squares / count + eps);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (x[i] - mean) * r * norm.weight[static_cast<size_t>(i)] +
             norm.bias[static_cast<size_t>(i)];
  }
}

}  // namespace

void CpuBackend::Normalise(const Norm& norm, const float* x, float* out) const {
  const int64_t n = shape().hidden;
  if (norm.weight.empty()) {
    if (x != out) std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  } else if (norm.bias.empty()) {
    kernels_.rms_norm(x, norm.weight.data(), n, shape().norm_eps, out);
  } else {
    LayerNorm(x, norm, n, shape().norm_eps, out);
  }
}

// Without fma where it is not a kernel's, so that all tables give the same
// bits.
void CpuBackend::Activate(Activation activation, float* gate, float* up,
                          int64_t n, float* out) const {
  switch (activation) {
    case Activation::kSilu:
      kernels_.silu_mul(gate, up, n, out);
      return;
    case Activation::kGelu:
      kernels_.gelu_mul(gate, up, n, out);
      return;
    case Activation::kGeluErf:
      for (int64_t i = 0; i < n; ++i) {
        const float erf = std::erf(gate[i] * std::numbers::sqrt2_v<float> / 2);
        out[i] = 0.5f * gate[i] * (1 + erf) * up[i];
      }
      return;
    case Activation::kClampedSwiglu: {
      constexpr float kLimit = 7, kSteepness = 1.702f;
      for (int64_t i = 0; i < n; ++i) {
        gate[i] = std::min(gate[i], kLimit) * kSteepness;
        up[i] = (std::clamp(up[i], -kLimit, kLimit) + 1) / kSteepness;
      }
      kernels_.silu_mul(gate, up, n, out);
      return;
    }
  }
}

void CpuBackend::RunHiddenRows(Worker& worker, const Command& command) {
  const auto [begin, end] = worker.Share(RowsOf(command));
  for (int64_t i = begin; i < end; ++i) {
    Normalise(command.norm, X(command, static_cast<int32_t>(i)),
              logits_.data() + i * ld_logits_);
  }
  worker.Barrier();
}

}  // namespace millrace::models
