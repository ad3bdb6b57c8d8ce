// What follows exact sums of bytes: bias, a value that is rounded in between,
// residual, function, and bytes or floats. The chain and its roundings are
// those of the engine on cores; every product that a sum could be fused with is
// written as one operation.
#pragma once

#include "models/cuda/graph_byte_kernels.h"
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {

#if defined(__CUDACC__)
#define MILLRACE_BYTES_NOINLINE __noinline__
#else
#define MILLRACE_BYTES_NOINLINE __attribute__((noinline))
#endif

// One copy of the functions' code is enough.
template <class Value>
MILLRACE_BYTES_NOINLINE __device__ Value ApplyRare(Function f, float a, float b,
                                                   Value v) {
  return Apply(f, a, b, v);
}
__device__ __forceinline__ float ApplyOften(Function f, float a, float b,
                                            float v) {
  if (f == Function::kNone) return v;
  if (f == Function::kRelu) return GraphMax(0.0f, v);
  return ApplyRare(f, a, b, v);
}

// The nearest byte; a NaN is the least one.
__device__ __forceinline__ uint8_t ToByte(float v, float scale, int32_t zero) {
  const float low = static_cast<float>(-zero);
  const float high = static_cast<float>(255 - zero);
  const float limited = GraphMin(GraphMax(__fmul_rn(v, scale), low), high);
  return static_cast<uint8_t>(static_cast<int32_t>(rintf(limited)) + zero);
}

// Values side by side that are read and written at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Neighbours {
  T at[kCount];
};
// The first `count` of kCount; all at once where `wide`.
template <int kCount, class T>
__device__ __forceinline__ Neighbours<T, kCount> LoadSome(const T* from,
                                                          int count,
                                                          bool wide) {
  if (wide) return *reinterpret_cast<const Neighbours<T, kCount>*>(from);
  Neighbours<T, kCount> some = {};
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < count) some.at[i] = from[i];
  }
  return some;
}
template <class T, int kCount>
__device__ __forceinline__ void StoreSome(T* to,
                                          const Neighbours<T, kCount>& some,
                                          int count, bool wide) {
  if (wide) {
    *reinterpret_cast<Neighbours<T, kCount>*>(to) = some;
    return;
  }
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < count) to[i] = some.at[i];
  }
}

// The first `count` of kCount sums of a row, of outputs from `output` on, whose
// place in the result is `at`; `wide`: all of them, at addresses that are
// multiples of so many values.
template <int kCount>
__device__ __forceinline__ void FinishBytes(
    const GraphByteLayerArgs& args, const Neighbours<int32_t, kCount>& sums,
    int64_t output, int64_t at, int count, bool wide) {
  const GraphByteEpilogue& e = args.epilogue;
  const auto offset = LoadSome<kCount>(e.offset + output, count, wide);
  const auto scale = LoadSome<kCount>(e.scale + output, count, wide);
  const bool measured = e.x_scale != nullptr;
  const float x_scale = measured ? *e.x_scale : 1.0f;
  const int32_t x_zero = measured ? int32_t{*e.x_zero} : 1;
  Neighbours<float, kCount> v = {};
  if (e.bias != nullptr) {
    v = LoadSome<kCount>(e.bias + output, count, wide);
  }
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    // Sums wrap around, as those of the tensor cores do.
    const auto sum = static_cast<float>(static_cast<int32_t>(
        static_cast<uint32_t>(sums.at[i]) +
        static_cast<uint32_t>(x_zero) * static_cast<uint32_t>(offset.at[i])));
    const float by = measured ? __fmul_rn(x_scale, scale.at[i]) : scale.at[i];
    v.at[i] = e.bias != nullptr ? fmaf(sum, by, v.at[i]) : __fmul_rn(sum, by);
  }
  if (e.middle_scale != 0) {
    Neighbours<float, kCount> behind = {};
    if (e.middle_bias != nullptr) {
      behind = LoadSome<kCount>(e.middle_bias + output, count, wide);
    }
    MILLRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float rounded =
          GraphMin(e.middle_high, GraphMax(rintf(v.at[i]), e.middle_low));
      v.at[i] = fmaf(rounded, e.middle_scale, behind.at[i]);
    }
  }
  Neighbours<float, kCount> residual = {};
  if (e.residual != nullptr) {
    const auto bytes = LoadSome<kCount>(e.residual + at, count, wide);
    MILLRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      residual.at[i] = static_cast<float>(bytes.at[i]) - e.residual_zero;
    }
  } else if (e.residual_f32 != nullptr) {
    residual = LoadSome<kCount>(e.residual_f32 + at, count, wide);
  }
  const bool adds = e.residual != nullptr || e.residual_f32 != nullptr;
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    float value = v.at[i];
    if (adds && e.residual_first) {
      value = fmaf(residual.at[i], e.residual_scale, value);
    }
    value = ApplyOften(e.f, e.a, e.b, value);
    if (adds && !e.residual_first) {
      value = fmaf(residual.at[i], e.residual_scale, value);
    }
    v.at[i] = value;
  }
  if (args.y == nullptr) {
    StoreSome(args.y_f32 + at, v, count, wide);
    return;
  }
  Neighbours<uint8_t, kCount> bytes;
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    bytes.at[i] = ToByte(v.at[i], e.y_scale, e.y_zero);
    if (e.lookup != nullptr) bytes.at[i] = e.lookup[bytes.at[i]];
  }
  StoreSome(args.y + at, bytes, count, wide);
}

// ---- on the host ----
// Whether kCount outputs of every row may be read and written at once.
inline bool IsWide(const GraphByteLayerArgs& args, int64_t outputs,
                   uintptr_t count) {
  const GraphByteEpilogue& e = args.epilogue;
  const auto fits = [&](const void* at, uintptr_t size) {
    return reinterpret_cast<uintptr_t>(at) % (size * count) == 0;
  };
  return static_cast<uintptr_t>(outputs) % count == 0 && fits(e.offset, 4) &&
         fits(e.scale, 4) && fits(e.bias, 4) && fits(e.middle_bias, 4) &&
         fits(e.residual, 1) && fits(e.residual_f32, 4) && fits(args.y, 1) &&
         fits(args.y_f32, 4);
}

}  // namespace millrace::cuda
