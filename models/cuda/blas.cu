// What goes with products that a library computes: their sums become outputs,
// as the product on tensor cores stores its own; and rows of sums are compared,
// by which a way to compute them is tested before it is used.
#include "models/cuda/blas_kernels.h"
#include "models/cuda/product.cuh"
#include "models/cuda/round.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = 4 * kThreads;  // of a block

// Blocks along a row of outputs, and one each for all rows: those whose sums
// are elsewhere have nothing to do.
__global__ void __launch_bounds__(kThreads)
    FinishProductKernel(FinishProductArgs args) {
  const LinearArgs& to = args.product;
  const int64_t row = RowOf(to.row_ids, blockIdx.y);
  const int64_t at = row - args.first;
  if (at < 0 || at >= args.count) return;  // whole blocks
  const int width = to.weights.outputs;
  const int output = static_cast<int>(blockIdx.x) * kOutputs +
                     4 * static_cast<int>(threadIdx.x);
  if (output >= width) return;
  const auto scale = *reinterpret_cast<const float*>(
      to.rounded + row * to.rounded_bytes + 2 * int64_t{to.weights.inputs});
  // Sums have a pitch of whole float4, so four may be read at the end, too.
  float4 v =
      *reinterpret_cast<const float4*>(args.sums + at * args.pitch + output);
  v = {__fmul_rn(scale, v.x), __fmul_rn(scale, v.y), __fmul_rn(scale, v.z),
       __fmul_rn(scale, v.w)};
  if (to.bias != nullptr) {
    const float4 bias = LoadFour(to.bias, output, width, IsAligned(to.bias, 0));
    v = {v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w};
  }
  float* y = to.y + row * to.out_pitch;
  const bool aligned = IsAligned(to.y, to.out_pitch);
  if (to.adds) {
    const float4 old = LoadFour(y, output, width, aligned);
    v = {fmaf(to.scale, v.x, old.x), fmaf(to.scale, v.y, old.y),
         fmaf(to.scale, v.z, old.z), fmaf(to.scale, v.w, old.w)};
  }
  StoreFour(y, output, width, aligned, v);
}

// A block a row.
__global__ void __launch_bounds__(kThreads)
    CompareRowsKernel(CompareRowsArgs args) {
  const float* x = args.x + int64_t{blockIdx.x} * args.pitch;
  float differs = 0;
  for (int i = static_cast<int>(threadIdx.x); i < args.width; i += kThreads) {
    if (BitsOfFloat(x[i]) != BitsOfFloat(args.expected[i])) differs = 1;
  }
  differs = BlockMax(differs, SharedMemory<float>());
  if (threadIdx.x == 0) args.differs[blockIdx.x] = differs > 0 ? 1 : 0;
}

}  // namespace

int FinishProduct(Stream stream, const FinishProductArgs& args) {
  if (args.product.rows == 0 || args.count == 0) return 0;
  if (args.product.tiles != nullptr) return kInvalidValue;
  return Launch(FinishProductKernel,
                dim3(CeilDiv(args.product.weights.outputs, kOutputs),
                     static_cast<unsigned>(args.product.rows)),
                kThreads, 0, stream, args);
}

int CompareRows(Stream stream, const CompareRowsArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(CompareRowsKernel, dim3(static_cast<unsigned>(args.rows)),
                kThreads, kThreads / 32 * sizeof(float), stream, args);
}

}  // namespace millrace::cuda
