// The end of a step: logits are scaled and capped, and each row's greatest one
// is found, so that greedy rows need no logits on the host.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

struct Best {
  float logit;
  int32_t id;
};
// NaN loses to everything, so that the order of comparisons does not matter.
__device__ __forceinline__ Best Better(Best a, Best b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.id < b.id ? a : b;
}

__global__ void __launch_bounds__(kThreads) HeadKernel(HeadArgs args) {
  Best* shared = SharedMemory<Best>();
  const int64_t row = blockIdx.x;
  float* logits = args.logits + row * args.pitch;
  Best best{0, -1};
  for (int id = static_cast<int>(threadIdx.x); id < args.vocab;
       id += kThreads) {
    float logit = args.scale * logits[id];
    if (args.softcap > 0) logit = args.softcap * tanhf(logit / args.softcap);
    logits[id] = logit;
    if (!isnan(logit)) best = Better(best, {logit, id});
  }
  for (int step = 16; step > 0; step /= 2) {
    const float logit = __shfl_xor_sync(kAllLanes, best.logit, step);
    const int32_t id = __shfl_xor_sync(kAllLanes, best.id, step);
    best = Better(best, {logit, id});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / 32; ++i) best = Better(best, shared[i]);
  args.ids[row] = best.id < 0 ? 0 : best.id;
}

}  // namespace

int FinishLogits(Stream stream, const HeadArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(HeadKernel, dim3(static_cast<unsigned>(args.rows)), kThreads,
                kThreads / 32 * sizeof(Best), stream, args);
}

}  // namespace millrace::cuda
