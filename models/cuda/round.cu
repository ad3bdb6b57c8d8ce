// Rows of activations as the products on tensor cores and on int8 read them. A
// row's bits depend on that row alone.
#include "models/cuda/round.cuh"

#include "models/cuda/product.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;

// A block a row.
__global__ void __launch_bounds__(kThreads) RoundHalfKernel(RoundArgs args) {
  const RoundedRows& to = args.rounded;
  const int64_t row = RowOf(args.row_ids, blockIdx.x);
  const float* x = args.x + row * args.pitch;
  const int first = 4 * static_cast<int>(threadIdx.x);
  float greatest = 0;
  MILLRACE_UNROLL_BY(4)
  for (int at = first; at < to.inputs; at += 4 * kThreads) {
    greatest = fmaxf(greatest, GreatestOf(LoadFour(x, at, to.inputs, true)));
  }
  const HalfScale scale =
      ScaleOfHalves(BlockMax(greatest, SharedMemory<float>()));
  MILLRACE_UNROLL_BY(4)
  for (int at = first; at < to.inputs; at += 4 * kThreads) {
    Store16Bit(to, row, at, LoadFour(x, at, to.inputs, true), scale);
  }
}

// Blocks along a row, for formats that need not know all of it.
__global__ void __launch_bounds__(kThreads) RoundKernel(RoundArgs args) {
  const RoundedRows& to = args.rounded;
  const int64_t row = RowOf(args.row_ids, blockIdx.y);
  const int at = 4 * static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const float4 v = LoadFour(args.x + row * args.pitch, at, to.inputs, true);
  if (to.format == InputFormat::kInt8) {
    StoreInt8(to, row, at, v);
  } else {
    Store16Bit(to, row, at, v, {});
  }
}

}  // namespace

int RoundRows(Stream stream, const RoundArgs& args) {
  if (args.rows == 0) return 0;
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.rounded.format == InputFormat::kF16) {
    return Launch(RoundHalfKernel, dim3(rows), kThreads,
                  kThreads / 32 * sizeof(float), stream, args);
  }
  return Launch(RoundKernel,
                dim3(CeilDiv(args.rounded.inputs, 4 * kThreads), rows),
                kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
