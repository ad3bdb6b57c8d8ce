// Values of graphs in and out of memory: every kernel that takes several
// formats loads and stores through these. Arithmetic is in f32.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/graph_values.h"

namespace millrace::cuda {

// Finite values beyond the greatest of f16, 65504, become that one, so that
// what stands for "hidden" in masks, -3.4e38, stays finite.
__device__ __forceinline__ uint16_t ToFiniteHalf(float value) {
  const float limited = fminf(fmaxf(value, -65504.0f), 65504.0f);
  const bool finite = fabsf(value) < INFINITY;  // and no NaN
  return ToHalf(finite ? limited : value);
}

// ---- of a format that is known when the kernel is compiled ----
template <GraphFormat kFormat>
__device__ __forceinline__ float LoadAs(const void* data, int64_t i) {
  if constexpr (kFormat == GraphFormat::kF32) {
    return static_cast<const float*>(data)[i];
  } else if constexpr (kFormat == GraphFormat::kF16) {
    return FromHalf(static_cast<const uint16_t*>(data)[i]);
  } else {
    return FromBf16(static_cast<const uint16_t*>(data)[i]);
  }
}

// ---- of one that a launch tells; the same in all threads ----
__device__ __forceinline__ float LoadValue(const ValuesIn& from, int64_t i) {
  if (from.format == GraphFormat::kF32) {
    return LoadAs<GraphFormat::kF32>(from.data, i);
  }
  return from.format == GraphFormat::kF16
             ? LoadAs<GraphFormat::kF16>(from.data, i)
             : LoadAs<GraphFormat::kBf16>(from.data, i);
}
__device__ __forceinline__ void StoreValue(const ValuesOut& to, int64_t i,
                                           float value) {
  if (to.format == GraphFormat::kF32) {
    static_cast<float*>(to.data)[i] = value;
  } else {
    static_cast<uint16_t*>(to.data)[i] =
        to.format == GraphFormat::kF16 ? ToFiniteHalf(value) : ToBf16(value);
  }
}

// Four neighbours, at an address that is a multiple of their size.
__device__ __forceinline__ float4 LoadFour(const ValuesIn& from, int64_t i) {
  if (from.format == GraphFormat::kF32) {
    return *reinterpret_cast<const float4*>(
        static_cast<const float*>(from.data) + i);
  }
  const uint2 pairs = *reinterpret_cast<const uint2*>(
      static_cast<const uint16_t*>(from.data) + i);
  const uint16_t bits[4] = {
      static_cast<uint16_t>(pairs.x), static_cast<uint16_t>(pairs.x >> 16),
      static_cast<uint16_t>(pairs.y), static_cast<uint16_t>(pairs.y >> 16)};
  if (from.format == GraphFormat::kF16) {
    return {FromHalf(bits[0]), FromHalf(bits[1]), FromHalf(bits[2]),
            FromHalf(bits[3])};
  }
  return {FromBf16(bits[0]), FromBf16(bits[1]), FromBf16(bits[2]),
          FromBf16(bits[3])};
}
__device__ __forceinline__ void StoreFour(const ValuesOut& to, int64_t i,
                                          const float4& v) {
  if (to.format == GraphFormat::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(to.data) + i) = v;
    return;
  }
  const auto bits = [&](float value) {
    return static_cast<uint32_t>(
        to.format == GraphFormat::kF16 ? ToFiniteHalf(value) : ToBf16(value));
  };
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(to.data) + i) = {
      bits(v.x) | bits(v.y) << 16, bits(v.z) | bits(v.w) << 16};
}

// ---- on the host ----
// Whether four neighbours may be read or written at once from each fourth on.
inline bool StandsInFours(const void* data, GraphFormat format) {
  return reinterpret_cast<uintptr_t>(data) %
             static_cast<uintptr_t>(4 * BytesOf(format)) ==
         0;
}

// Calls launch.template operator()<format>(). Bytes are no values.
template <class Launch>
int WithFormat(GraphFormat format, const Launch& launch) {
  switch (format) {
    case GraphFormat::kF32:
      return launch.template operator()<GraphFormat::kF32>();
    case GraphFormat::kF16:
      return launch.template operator()<GraphFormat::kF16>();
    case GraphFormat::kBf16:
      return launch.template operator()<GraphFormat::kBf16>();
    case GraphFormat::kU8:
      break;
  }
  return kInvalidValue;
}

}  // namespace millrace::cuda
