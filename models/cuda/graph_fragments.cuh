// What products of graphs need of tensor cores beside tensor_core.cuh: factors
// rounded to 16 bits or to tf32, and products of tf32. Its inline PTX is
// computed by plain code under the emulation.
#pragma once

#include "models/cuda/graph_kernels.h"
#include "models/cuda/tensor_core.cuh"

namespace millrace::cuda {

// Factors lie in shared memory in units of 16 bytes: eight of 16 bits, or four
// of tf32. One `mma` takes two units of each row and of each output.
template <GraphPrecision kPrecision>
inline constexpr int kPerUnit = kPrecision == GraphPrecision::kTf32 ? 4 : 8;
// Whether values lie in memory as factors of this precision do.
constexpr bool AreFactors(GraphPrecision precision, GraphFormat format) {
  return (precision == GraphPrecision::kF16 && format == GraphFormat::kF16) ||
         (precision == GraphPrecision::kBf16 && format == GraphFormat::kBf16);
}

// The format of values between the layers of a graph.
constexpr GraphFormat FormatOf(GraphPrecision precision) {
  return precision == GraphPrecision::kF16    ? GraphFormat::kF16
         : precision == GraphPrecision::kBf16 ? GraphFormat::kBf16
                                              : GraphFormat::kF32;
}

// To the nearest value with 10 bits behind the point, of two the greater one.
__device__ __forceinline__ uint32_t ToTf32(float value) {
#if defined(__CUDACC__)
  uint32_t bits = 0;
#if defined(__CUDA_ARCH__)
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
  return bits;
#else
  if (isnan(value)) return BitsOfFloat(value);
  return (BitsOfFloat(value) + 0x1000) & ~0x1fffu;
#endif
}

// Two values in 16 bits each, the first one below.
template <GraphPrecision kPrecision>
__device__ __forceinline__ uint32_t ToPair(float low, float high) {
#if defined(__CUDACC__)
  if constexpr (kPrecision == GraphPrecision::kF16) {
    return HalfPair(low, high);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
#else
  const auto round = kPrecision == GraphPrecision::kF16 ? ToHalf : ToBf16;
  return round(low) | static_cast<uint32_t>(round(high)) << 16;
#endif
}

// A quarter of a unit.
template <GraphPrecision kPrecision>
__device__ __forceinline__ uint32_t
ToWord(const float (&values)[kPerUnit<kPrecision> / 4]) {
  if constexpr (kPrecision == GraphPrecision::kTf32) {
    return ToTf32(values[0]);
  } else {
    return ToPair<kPrecision>(values[0], values[1]);
  }
}

template <GraphPrecision kPrecision>
__device__ __forceinline__ uint4
ToUnit(const float (&values)[kPerUnit<kPrecision>]) {
  if constexpr (kPrecision == GraphPrecision::kTf32) {
    return {ToTf32(values[0]), ToTf32(values[1]), ToTf32(values[2]),
            ToTf32(values[3])};
  } else {
    return {ToPair<kPrecision>(values[0], values[1]),
            ToPair<kPrecision>(values[2], values[3]),
            ToPair<kPrecision>(values[4], values[5]),
            ToPair<kPrecision>(values[6], values[7])};
  }
}

// Eight values of 16 bits.
template <GraphPrecision kPrecision>
__device__ __forceinline__ float FromPair(uint32_t pair, bool high) {
  const auto bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
  return kPrecision == GraphPrecision::kF16 ? FromHalf(bits) : FromBf16(bits);
}

// As MultiplyFragment (tensor_core.cuh), of two units of any kind. Of tf32 a
// lane holds, with g = lane / 4 and t = lane % 4, row g and input t, row g + 8
// and input t, then the same of input t + 4; of outputs g inputs t and t + 4
// (PTX ISA, "Matrix fragments for mma.m16n8k8").
template <GraphPrecision kPrecision>
__device__ __forceinline__ void MultiplyUnits(const uint32_t (&x)[4],
                                              const uint32_t* w,
                                              float (&sums)[4]) {
  if constexpr (kPrecision == GraphPrecision::kTf32) {
#if !defined(__CUDACC__)
    cuda_emulation::MultiplyTf32(x, w, sums);
#elif defined(__CUDA_ARCH__)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
#endif
  } else {
    MultiplyFragment<kPrecision == GraphPrecision::kBf16>(x, w, sums);
  }
}

}  // namespace millrace::cuda
