// What the kernels share: launching, shared memory, sums of a warp, 16-bit
// floats. Compiled by nvcc, or by g++ behind tests/cuda_emulation's header.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#elif !defined(MILLRACE_CUDA_EMULATION)
#error "kernels are compiled by nvcc or under the emulation"
#endif

namespace millrace::cuda {

// Before a loop whose arrays must stay in registers.
#if defined(__CUDACC__)
#define MILLRACE_UNROLL _Pragma("unroll")
// Before a loop of loads, several of which shall be on their way at once.
#define MILLRACE_PRAGMA(text) _Pragma(#text)
#define MILLRACE_UNROLL_BY(n) MILLRACE_PRAGMA(unroll n)
#define MILLRACE_NO_UNROLL _Pragma("unroll 1")
#else
#define MILLRACE_UNROLL
#define MILLRACE_UNROLL_BY(n)
#define MILLRACE_NO_UNROLL
#endif

inline constexpr unsigned kAllLanes = 0xffffffffu;

#if defined(__CUDACC__)

template <typename T>
__device__ __forceinline__ T* SharedMemory() {
  extern __shared__ float4 shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}
__device__ __forceinline__ float FromHalf(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ uint16_t ToHalf(float value) {
  return __half_as_ushort(__float2half_rn(value));
}

template <typename Args>
int Launch(void (*kernel)(Args), dim3 grid, int threads, size_t shared_bytes,
           void* stream, const Args& args) {
  // More than this is asked for kernel by kernel.
  constexpr size_t kSharedWithoutAsking = 48 << 10;
  if (shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return static_cast<int>(error);
  }
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(
      args);
  return static_cast<int>(cudaGetLastError());
}

#else

template <typename T>
T* SharedMemory() {
  return reinterpret_cast<T*>(cuda_emulation::SharedMemory());
}
inline float FromHalf(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}
inline uint16_t ToHalf(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

template <typename Args>
int Launch(void (*kernel)(Args), dim3 grid, int threads, size_t shared_bytes,
           void*, const Args& args) {
  cuda_emulation::Do([=] {
    cuda_emulation::RunGrid(grid, dim3(static_cast<unsigned>(threads)),
                            shared_bytes, [&] { kernel(args); });
  });
  return 0;
}

#endif

__device__ __forceinline__ float FloatOfBits(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } both;
  both.bits = bits;
  return both.value;
}
__device__ __forceinline__ uint32_t BitsOfFloat(float value) {
  union {
    float value;
    uint32_t bits;
  } both;
  both.value = value;
  return both.bits;
}
// bf16 is the upper half of an f32.
__device__ __forceinline__ float FromBf16(uint16_t bits) {
  return FloatOfBits(static_cast<uint32_t>(bits) << 16);
}
// To the nearest, of two as near the even one; NaN stays NaN.
__device__ __forceinline__ uint16_t ToBf16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The same value in all lanes, by the same tree each time.
__device__ __forceinline__ float WarpSum(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}
__device__ __forceinline__ float WarpMax(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

// Sum over a block whose threads are whole warps, in all threads. `shared` has
// a place for each warp; it may be used again after the next barrier.
__device__ __forceinline__ float BlockSum(float value, float* shared) {
  value = WarpSum(value);
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < num_warps; ++i) sum += shared[i];
  return sum;
}

// Greatest of a block, likewise.
__device__ __forceinline__ float BlockMax(float value, float* shared) {
  value = WarpMax(value);
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float max = shared[0];
  for (int i = 1; i < num_warps; ++i) max = fmaxf(max, shared[i]);
  return max;
}

__device__ __forceinline__ int64_t Min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// What a launch returns that no kernel takes: cudaErrorInvalidValue.
inline constexpr int kInvalidValue = 1;

inline unsigned CeilDiv(int64_t n, int64_t unit) {
  return static_cast<unsigned>((n + unit - 1) / unit);
}

}  // namespace millrace::cuda
