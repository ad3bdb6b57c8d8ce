// Slices of a tensor by their numbers, and whether the numbers are in range.
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {
namespace {

__device__ __forceinline__ int64_t IndexAt(const void* indices, bool wide,
                                           int64_t i) {
  return wide ? static_cast<const int64_t*>(indices)[i]
              : static_cast<const int32_t*>(indices)[i];
}

__global__ void GatherSlicesKernel(GatherSlicesArgs args) {
  const int64_t at = ThreadNumber();
  if (at >= args.outer * args.count * args.run) return;
  const int64_t slice = at / args.run;
  const int64_t outer = slice / args.count;
  int64_t index = IndexAt(args.indices, args.wide, slice % args.count);
  if (index < 0) index += args.size;
  if (index < 0 || index >= args.size) index = 0;
  const int64_t from = (outer * args.size + index) * args.run + at % args.run;
  StoreValue(args.y, at, LoadValue(args.x, from));
}

// One block; each thread finds its first, then they compare.
__global__ void CheckIndicesKernel(CheckIndicesArgs args) {
  auto* first = SharedMemory<int64_t>();
  int64_t found = args.count;
  for (int64_t i = threadIdx.x; i < args.count && found == args.count;
       i += kGraphThreads) {
    const int64_t index = IndexAt(args.indices, args.wide, i);
    if (index < -args.size || index >= args.size) found = i;
  }
  first[threadIdx.x] = found;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kGraphThreads; ++i) found = Min64(found, first[i]);
  args.found[0] = found == args.count ? -1 : found;
  args.found[1] =
      found == args.count ? 0 : IndexAt(args.indices, args.wide, found);
}

}  // namespace

int GraphGather(Stream stream, const GatherSlicesArgs& args) {
  const int64_t values = args.outer * args.count * args.run;
  if (values == 0) return 0;
  return Launch(GatherSlicesKernel, ByThread(values), kGraphThreads, 0, stream,
                args);
}

int GraphCheckIndices(Stream stream, const CheckIndicesArgs& args) {
  return Launch(CheckIndicesKernel, dim3(1), kGraphThreads,
                kGraphThreads * sizeof(int64_t), stream, args);
}

}  // namespace millrace::cuda
