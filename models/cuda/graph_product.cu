// Products of matrices for graphs: linear layers, and stacks of matrices that
// are both known only in a run. Operands are read where they lie.
#include "models/cuda/graph_tile.cuh"

namespace millrace::cuda {
namespace {

__global__ void __launch_bounds__(kGraphThreads)
    ProductKernel(ProductArgs args) {
  const int64_t tiles = (args.n + kTile - 1) / kTile;
  const int64_t row0 = blockIdx.x / tiles * kTile;
  const int64_t output0 = blockIdx.x % tiles * kTile;
  for (int64_t product = blockIdx.y; product < args.count;
       product += gridDim.y) {
    ValuesIn a = args.a;
    ValuesIn b = args.b;
    int64_t y_at = 0;
    ForStackIndices(args, product, [&](int axis, int64_t index) {
      a += index * args.a_strides[axis];
      b += index * args.b_strides[axis];
      y_at += index * args.y_strides[axis];
    });
    MultiplyTile(
        args.m, args.n, args.k, row0, output0,
        [&](int64_t row, int64_t input) {
          return LoadValue(a, row * args.a_row + input * args.a_k);
        },
        [&](int64_t input, int64_t output) {
          return LoadValue(b, input * args.b_k + output * args.b_n);
        },
        [&](int64_t row, int64_t output, float sum) {
          const int64_t at = y_at + row * args.y_row + output;
          StoreValue(args.y, at, Finish(args.epilogue, sum, output, at));
        });
  }
}

}  // namespace

int GraphProduct(Stream stream, const ProductArgs& args) {
  if (args.count == 0 || args.m == 0 || args.n == 0) return 0;
  if (args.precision != GraphPrecision::kF32) {
    return GraphProductOnTensors(stream, args);
  }
  return Launch(ProductKernel, ByTile(args.m, args.n, args.count),
                kGraphThreads, kTileBytes, stream, args);
}

}  // namespace millrace::cuda
