// The end of a step: logits are scaled and capped, and each row's greatest one
// is found, so that greedy rows need no logits on the host.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"
#include "models/cuda/round.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

// NaN loses to everything, so that the order of comparisons does not matter.
__device__ __forceinline__ Greatest Better(Greatest a, Greatest b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.id < b.id ? a : b;
}
__device__ __forceinline__ Greatest BestOfWarp(Greatest best) {
  for (int step = 16; step > 0; step /= 2) {
    const float logit = __shfl_xor_sync(kAllLanes, best.logit, step);
    const int32_t id = __shfl_xor_sync(kAllLanes, best.id, step);
    best = Better(best, {logit, id});
  }
  return best;
}

// A block for each kHeadPart ids of a row.
__global__ void __launch_bounds__(kThreads) HeadKernel(HeadArgs args) {
  Greatest* shared = SharedMemory<Greatest>();
  const int64_t row = blockIdx.y;
  float* logits = args.logits + row * args.pitch;
  const int begin = static_cast<int>(blockIdx.x) * kHeadPart;
  const int end = min(begin + kHeadPart, args.vocab);
  const bool aligned = IsAligned(args.logits, args.pitch);
  const bool changes = args.scale != 1 || args.softcap > 0;
  Greatest best{0, -1};
  MILLRACE_UNROLL_BY(4)
  for (int i = 0; i < kHeadPart / 4 / kThreads; ++i) {
    const int at = begin + 4 * static_cast<int>(i * kThreads + threadIdx.x);
    const float4 v = LoadFour(logits, at, end, aligned);
    float values[4] = {v.x, v.y, v.z, v.w};
    MILLRACE_UNROLL
    for (int k = 0; k < 4; ++k) {
      float logit = args.scale * values[k];
      if (args.softcap > 0) logit = args.softcap * tanhf(logit / args.softcap);
      values[k] = logit;
      if (at + k < end && !isnan(logit)) best = Better(best, {logit, at + k});
    }
    if (!changes) continue;
    StoreFour(logits, at, end, aligned,
              {values[0], values[1], values[2], values[3]});
  }
  best = BestOfWarp(best);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / 32; ++i) best = Better(best, shared[i]);
  args.parts[row * gridDim.x + blockIdx.x] = best;
}

// A warp a row.
__global__ void __launch_bounds__(32) BestPartKernel(HeadArgs args) {
  const int parts = PartsOfHead(args.vocab);
  const int64_t row = blockIdx.x;
  Greatest best{0, -1};
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += 32) {
    best = Better(best, args.parts[row * parts + i]);
  }
  best = BestOfWarp(best);
  if (threadIdx.x == 0) args.ids[row] = best.id < 0 ? 0 : best.id;
}

}  // namespace

int FinishLogits(Stream stream, const HeadArgs& args) {
  if (args.rows == 0) return 0;
  const auto rows = static_cast<unsigned>(args.rows);
  const int error = Launch(
      HeadKernel, dim3(static_cast<unsigned>(PartsOfHead(args.vocab)), rows),
      kThreads, kThreads / 32 * sizeof(Greatest), stream, args);
  if (error != 0) return error;
  return Launch(BestPartKernel, dim3(rows), 32, 0, stream, args);
}

}  // namespace millrace::cuda
