// Rows of activations as products read them, made four neighbouring values a
// thread. Which thread has which values changes no bits: what is taken of
// several values is their greatest, and sums of integers.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

// Values [at, at + 4) of a row of `width`, zeros behind it. `aligned`: rows
// begin at multiples of 16 bytes.
__device__ __forceinline__ float4 LoadFour(const float* row, int at, int width,
                                           bool aligned) {
  if (aligned && at + 4 <= width) {
    return *reinterpret_cast<const float4*>(row + at);
  }
  float4 v;
  v.x = at < width ? row[at] : 0.0f;
  v.y = at + 1 < width ? row[at + 1] : 0.0f;
  v.z = at + 2 < width ? row[at + 2] : 0.0f;
  v.w = at + 3 < width ? row[at + 3] : 0.0f;
  return v;
}
__device__ __forceinline__ void StoreFour(float* row, int at, int width,
                                          bool aligned, const float4& v) {
  if (aligned && at + 4 <= width) {
    *reinterpret_cast<float4*>(row + at) = v;
    return;
  }
  if (at < width) row[at] = v.x;
  if (at + 1 < width) row[at + 1] = v.y;
  if (at + 2 < width) row[at + 2] = v.z;
  if (at + 3 < width) row[at + 3] = v.w;
}
__device__ __forceinline__ bool IsAligned(const void* pointer, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && pitch % 4 == 0;
}

__device__ __forceinline__ float GreatestOf(const float4& v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// f16 of a row are x * inverse; scale is written behind them.
struct HalfScale {
  float scale = 1;
  float inverse = 1;
};
__device__ __forceinline__ HalfScale ScaleOfHalves(float greatest) {
  // The exponent as f32 stores it. Out of these bounds x is 0 in f16, or is
  // infinite, which it stays.
  const int exponent = static_cast<int>(BitsOfFloat(greatest) >> 23);
  if (exponent <= 40 || exponent >= 255) return {};
  return {FloatOfBits(static_cast<uint32_t>(exponent - 13) << 23),
          FloatOfBits(static_cast<uint32_t>(254 - exponent + 13) << 23)};
}

__device__ __forceinline__ void Store16Bit(const RoundedRows& to, int64_t row,
                                           int at, const float4& v,
                                           const HalfScale& scale) {
  std::byte* out = to.data + row * to.bytes;
  const bool half = to.format == InputFormat::kF16;
  const auto bits = [&](float x) {
    return static_cast<uint32_t>(half ? ToHalf(x * scale.inverse) : ToBf16(x));
  };
  if (at < to.inputs) {
    const uint2 words = {bits(v.x) | bits(v.y) << 16, bits(v.z) | bits(v.w)
                                                                      << 16};
    *reinterpret_cast<uint2*>(out + 2 * at) = words;
  }
  if (at == 0) *reinterpret_cast<float*>(out + 2 * to.inputs) = scale.scale;
}

// The greatest of 32 values, those of eight lanes, becomes 127, as on the CPU.
// All lanes of a warp call this; lane 0 has values [at, at + 4) of which `at`
// is a multiple of 128, or of 32 where the row ends within the warp.
__device__ __forceinline__ void StoreInt8(const RoundedRows& to, int64_t row,
                                          int at, const float4& v) {
  float greatest = GreatestOf(v);
  for (int step = 4; step > 0; step /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, step));
  }
  float d = greatest / 127.0f;
  const bool zero = d < 0x1p-126f;
  const float inverse = zero ? 0.0f : 1.0f / d;
  if (zero) d = 0.0f;
  const auto round = [&](float x) {
    const float scaled = rintf(x * inverse);
    return static_cast<int>(fminf(fmaxf(scaled, -127.0f), 127.0f));
  };
  const int q[4] = {round(v.x), round(v.y), round(v.z), round(v.w)};
  int sum = q[0] + q[1] + q[2] + q[3];  // then of the 16 of four lanes
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  const int other_sum = __shfl_xor_sync(kAllLanes, sum, 4);
  // An even lane has the first four of eight and stores the even ones; the odd
  // lane beside it stores the odd ones.
  const bool odd = threadIdx.x % 2 != 0;
  const auto pair = [](int a, int b) { return (a & 0xff) | (b & 0xff) << 8; };
  const int give = odd ? pair(q[0], q[2]) : pair(q[1], q[3]);
  const int keep = odd ? pair(q[1], q[3]) : pair(q[0], q[2]);
  const int got = __shfl_xor_sync(kAllLanes, give, 1);
  if (at >= to.inputs) return;
  std::byte* out = to.data + row * to.bytes;
  *reinterpret_cast<uint32_t*>(out + at) =
      static_cast<uint32_t>(odd ? got | keep << 16 : keep | got << 16);
  if (threadIdx.x % 8 == 0) {
    const uint2 scale = {BitsOfFloat(d), (static_cast<uint32_t>(sum) & 0xffff) |
                                             static_cast<uint32_t>(other_sum)
                                                 << 16};
    reinterpret_cast<uint2*>(out + to.inputs)[at / 32] = scale;
  }
}

}  // namespace millrace::cuda
