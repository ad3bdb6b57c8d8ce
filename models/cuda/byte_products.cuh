// Products of bytes without sign by bytes with one, summed exactly in 32 bits:
// by a tensor core, or four by one thread. Inline PTX; the emulation computes
// them by loops.
#pragma once

#include "models/cuda/device_code.cuh"

namespace millrace::cuda {

// sums += x · w by a warp: x is 16 rows of 32 bytes, w 8 outputs of 32 bytes.
// With g = lane / 4 and t = lane % 4 a lane holds (PTX ISA, "Matrix fragments
// for mma.m16n8k32")
//
//   x[0]       row g, inputs 4 t to 4 t + 3         x[1]  row g + 8
//   x[2]       row g, inputs 4 t + 16 to 4 t + 19   x[3]  row g + 8
//   w[0]       output g, inputs 4 t to 4 t + 3
//   w[1]       output g, inputs 4 t + 16 to 4 t + 19
//   sums[0,1]  row g, outputs 2 t and 2 t + 1       sums[2,3]  row g + 8
//
// So a byte lies where half of a 16-bit factor does: LoadFragments of
// tensor_core.cuh brings both.
__device__ __forceinline__ void MultiplyBytes(const uint32_t x[4],
                                              const uint32_t w[2],
                                              int32_t sums[4]) {
#if !defined(__CUDACC__)
  cuda_emulation::MultiplyBytes(x, w, sums);
#elif defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
#endif
}

// sum + the products of four bytes each.
__device__ __forceinline__ int32_t DotBytes(uint32_t x, uint32_t w,
                                            int32_t sum) {
#if !defined(__CUDACC__)
  return cuda_emulation::DotBytes(x, w, sum);
#elif defined(__CUDA_ARCH__)
  int32_t out;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(w), "r"(sum));
  return out;
#else
  return sum;
#endif
}

}  // namespace millrace::cuda
