// What the device can do at most, to hold kernels against: bytes that loads
// alone read, and products that warps do on tensor cores from registers.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"
#include "models/cuda/tensor_core.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 32 * kPeakWarps;
constexpr int kLoads = 4;  // of 16 bytes, under way at once

__global__ void __launch_bounds__(kThreads) ReadKernel(PeakArgs args) {
  const auto* data = reinterpret_cast<const uint4*>(args.data);
  const int64_t count = args.bytes / 16;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  uint32_t bits = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += kLoads * stride) {
    uint4 loaded[kLoads];
    MILLRACE_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      loaded[n] = data[Min64(i + n * stride, count - 1)];
    }
    MILLRACE_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      bits ^= loaded[n].x ^ loaded[n].y ^ loaded[n].z ^ loaded[n].w;
    }
  }
  // Keeps the loads; one thread in four billion writes.
  if (bits == 0x9e3779b9u) *args.sink = bits;
}

__global__ void __launch_bounds__(kThreads) MultiplyKernel(PeakArgs args) {
  const uint32_t x[4] = {threadIdx.x, 0x3c003c00u, blockIdx.x, 0x3c003c00u};
  const uint32_t w[2] = {0x3c003c00u, threadIdx.x};
  float sums[kPeakChains][4] = {};
  for (int32_t i = 0; i < args.repeats; ++i) {
    MILLRACE_UNROLL
    for (int chain = 0; chain < kPeakChains; ++chain) {
      MultiplyFragment<false>(x, w, sums[chain]);
    }
  }
  float sum = 0;
  MILLRACE_UNROLL
  for (int chain = 0; chain < kPeakChains; ++chain) sum += sums[chain][0];
  if (sum == -1) *args.sink = 1;
}

}  // namespace

int ReadBytes(Stream stream, const PeakArgs& args) {
  return Launch(ReadKernel, dim3(static_cast<unsigned>(args.blocks)), kThreads,
                0, stream, args);
}

int MultiplyFragments(Stream stream, const PeakArgs& args) {
  return Launch(MultiplyKernel, dim3(static_cast<unsigned>(args.blocks)),
                kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
