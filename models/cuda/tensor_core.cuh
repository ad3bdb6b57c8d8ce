// The tensor core's product of a fragment, and fragments from shared memory, by
// inline PTX. The emulation computes them by loops.
#pragma once

#include "models/cuda/device_code.cuh"

namespace millrace::cuda {

// sums += x · w by a warp: x is 16 rows of 16 inputs, w 8 outputs of 16 inputs,
// f16, or with kBf16 bf16; sums are f32. With g = lane / 4 and t = lane % 4 a
// lane holds (PTX ISA, "Matrix fragments for mma.m16n8k16")
//
//   x[0]       row g, inputs 2 t and 2 t + 1      x[1]  row g + 8
//   x[2]       row g, inputs 2 t + 8 and 2 t + 9  x[3]  row g + 8
//   w[0]       output g, inputs 2 t and 2 t + 1
//   w[1]       output g, inputs 2 t + 8 and 2 t + 9
//   sums[0,1]  row g, outputs 2 t and 2 t + 1     sums[2,3]  row g + 8
template <bool kBf16>
__device__ __forceinline__ void MultiplyFragment(const uint32_t x[4],
                                                 const uint32_t w[2],
                                                 float sums[4]) {
#if !defined(__CUDACC__)
  cuda_emulation::MultiplyFragment(x, w, sums, kBf16 ? FromBf16 : FromHalf);
#elif defined(__CUDA_ARCH__)
  if constexpr (kBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
  }
#endif
}

// Four matrices of 8 x 8 f16 or bf16 from shared memory by a warp: lane i gives
// where row i % 8 of matrix i / 8 is, 16 bytes that are aligned so. out[m] is
// of matrix m row lane / 4, columns 2 (lane % 4) and the next one; transposed:
// column lane / 4, rows 2 (lane % 4) and the next one (PTX ISA, ldmatrix).
template <bool kTransposed>
__device__ __forceinline__ void LoadFragments(const void* row,
                                              uint32_t out[4]) {
#if !defined(__CUDACC__)
  cuda_emulation::LoadFragments(row, out, kTransposed);
#elif defined(__CUDA_ARCH__)
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
        "[%4];"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(at)
        : "memory");
  } else {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(at)
        : "memory");
  }
#endif
}

// Two f16 less two others, each exact or rounded to the nearest.
__device__ __forceinline__ uint32_t SubtractHalves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  const __half2 both = __hsub2(*reinterpret_cast<const __half2*>(&a),
                               *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&both);
#else
  const auto less = [](uint32_t x, uint32_t y) {
    return uint32_t{ToHalf(FromHalf(static_cast<uint16_t>(x)) -
                           FromHalf(static_cast<uint16_t>(y)))};
  };
  return less(a, b) | less(a >> 16, b >> 16) << 16;
#endif
}

// Two f16, the first in the lower half.
__device__ __forceinline__ uint32_t HalfPair(float low, float high) {
#if defined(__CUDA_ARCH__)
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
#else
  return ToHalf(low) | static_cast<uint32_t>(ToHalf(high)) << 16;
#endif
}

}  // namespace millrace::cuda
