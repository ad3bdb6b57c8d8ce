// The functions of one value that graphs know, and what becomes of a layer's
// sums. They are those of the CPU's kernels within a few units in the last
// place.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/graph_kernels.h"
#include "models/cuda/graph_values.cuh"

namespace millrace::cuda {

inline constexpr int kGraphThreads = 256;

// A NaN in b stays one, a NaN in a gives b: as the CPU's extremes of two
// values.
__device__ __forceinline__ float GraphMin(float a, float b) {
  return a < b ? a : b;
}
__device__ __forceinline__ float GraphMax(float a, float b) {
  return a > b ? a : b;
}

__device__ __forceinline__ float GraphSigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

__device__ inline float Apply(Function f, float a, float b, float x) {
  switch (f) {
    case Function::kNone:
      return x;
    case Function::kRelu:
      return GraphMax(0.0f, x);
    case Function::kClip:
      return GraphMin(b, GraphMax(a, x));
    case Function::kLeakyRelu:
      return x < 0.0f ? a * x : x;
    case Function::kSigmoid:
      return GraphSigmoid(x);
    case Function::kHardSigmoid:
      return GraphMin(1.0f, GraphMax(0.0f, fmaf(a, x, b)));
    case Function::kHardSwish:
      return x * GraphMin(1.0f, GraphMax(0.0f, fmaf(1.0f / 6, x, 0.5f)));
    case Function::kSilu:
      return x * GraphSigmoid(x);
    case Function::kGeluErf: {
      const float half = 0.5f * x;
      return fmaf(half, erff(x * 0.707106781f), half);
    }
    case Function::kGeluTanh: {
      const float u = -1.59576912f * fmaf(0.044715f * x * x, x, x);
      return x / (1.0f + expf(u));
    }
    case Function::kTanh:
      return tanhf(x);
    case Function::kElu:
      return x > 0.0f ? x : a * expm1f(x);
    case Function::kSoftplus: {
      const float z = a * x;
      return (fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)))) / a;
    }
    case Function::kMish: {
      // tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2), e = exp(x)
      const float e = expf(GraphMin(30.0f, x));
      const float w = e * (e + 2.0f);
      return x * (w / (w + 2.0f));
    }
    case Function::kExp:
      return expf(x);
    case Function::kLog:
      return logf(x);
    case Function::kSqrt:
      return sqrtf(x);
    case Function::kRsqrt:
      return 1.0f / sqrtf(x);
    case Function::kReciprocal:
      return 1.0f / x;
    case Function::kNeg:
      return -x;
    case Function::kAbs:
      return fabsf(x);
    case Function::kErf:
      return erff(x);
    case Function::kFloor:
      return floorf(x);
    case Function::kCeil:
      return ceilf(x);
    case Function::kRound:
      return rintf(x);
    case Function::kSin:
      return sinf(x);
    case Function::kCos:
      return cosf(x);
  }
  return x;
}

// `at`: where the output lies in the result, and so in residual and gate.
__device__ inline float Finish(const GraphEpilogue& e, float sum,
                               int64_t output, int64_t at) {
  if (e.bias != nullptr) sum += e.bias[output];
  if (e.residual.any() && e.residual_first) sum += LoadValue(e.residual, at);
  sum = Apply(e.f, e.a, e.b, sum);
  if (e.gate.any()) sum *= LoadValue(e.gate, at);
  if (e.residual.any() && !e.residual_first) sum += LoadValue(e.residual, at);
  return sum;
}

// f(axis, index) for the place of a product in its stack, the last axis first.
template <class Args, class F>
__device__ __forceinline__ void ForStackIndices(const Args& args,
                                                int64_t product, const F& f) {
  for (int axis = args.rank - 1; axis >= 0; --axis) {
    f(axis, product % args.sizes[axis]);
    product /= args.sizes[axis];
  }
}

// Blocks for one thread an element; grids of one dimension are long enough.
inline dim3 ByThread(int64_t count) {
  return dim3(CeilDiv(count, kGraphThreads));
}
__device__ __forceinline__ int64_t ThreadNumber() {
  return int64_t{blockIdx.x} * kGraphThreads + threadIdx.x;
}

}  // namespace millrace::cuda
