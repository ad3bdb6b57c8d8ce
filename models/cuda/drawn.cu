// Tokens that the step before drew, in place of the samples that a step's
// message names them by.
#include "models/cuda/device_code.cuh"
#include "models/cuda/drawn_kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void TakeDrawnKernel(TakeDrawnArgs args) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  const int32_t token = args.tokens[row];
  if (token < 0) args.tokens[row] = args.drawn[-1 - token];
}

}  // namespace

int TakeDrawn(Stream stream, const TakeDrawnArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(TakeDrawnKernel, dim3(CeilDiv(args.rows, kThreads)), kThreads,
                0, stream, args);
}

}  // namespace millrace::cuda
