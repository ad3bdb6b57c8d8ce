// Products of matrices for graphs on tensor cores: weights as they were packed
// at load, everything else f32 that is rounded on the way to shared memory.
#include "models/cuda/graph_tensor.cuh"

namespace millrace::cuda {
namespace {

template <GraphPrecision kPrecision, class T, bool kFloatRows, bool kPacked>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    ProductTensorKernel(ProductArgs args) {
  constexpr int kInputs = kSlabUnits * kPerUnit<kPrecision>;
  const int64_t tiles = (args.n + T::kOutputs - 1) / T::kOutputs;
  const int64_t row0 = blockIdx.x / tiles * T::kRows;
  const int64_t output0 = blockIdx.x % tiles * T::kOutputs;
  const int slabs = static_cast<int>((args.k + kInputs - 1) / kInputs);
  for (int64_t product = blockIdx.y; product < args.count;
       product += gridDim.y) {
    const float* a = args.a;
    const float* b = args.b;
    TensorResult result = {.y = args.y,
                           .rows = args.m,
                           .outputs = args.n,
                           .row_stride = args.y_row,
                           .start = 0,
                           .wide = args.wide,
                           .epilogue = args.epilogue};
    int64_t left = product;
    for (int axis = args.rank - 1; axis >= 0; --axis) {
      const int64_t index = left % args.sizes[axis];
      left /= args.sizes[axis];
      a += index * args.a_strides[axis];
      b += index * args.b_strides[axis];
      result.start += index * args.y_strides[axis];
    }
    const auto with = [&](auto& rows) {
      if constexpr (kPacked) {
        PackedRows<T::kOutputs, T::kThreads> weights(
            args.packed_b.data, args.packed_b.row_bytes, output0, args.n);
        MultiplyTensorTile<FloatFactors<kPrecision>, T>(slabs, rows, weights,
                                                        result, row0, output0);
      } else {
        StridedRows<kPrecision, T::kOutputs, T::kThreads> weights(
            b, args.b_n, args.b_k, args.k, output0, args.n);
        MultiplyTensorTile<FloatFactors<kPrecision>, T>(slabs, rows, weights,
                                                        result, row0, output0);
      }
    };
    if constexpr (kFloatRows) {
      FloatRows<kPrecision, T::kRows, T::kThreads> rows(a, args.a_row, args.k,
                                                        row0, args.m);
      with(rows);
    } else {
      StridedRows<kPrecision, T::kRows, T::kThreads> rows(
          a, args.a_row, args.a_k, args.k, row0, args.m);
      with(rows);
    }
  }
}

template <GraphPrecision kPrecision, class T>
int LaunchProduct(Stream stream, const ProductArgs& args, bool float_rows) {
  const auto launch = [&](auto kernel) {
    return Launch(kernel, ByTensorTile<T>(args.m, args.n, args.count),
                  T::kThreads, T::kBytes, stream, args);
  };
  if (args.packed_b.data != nullptr) {
    return float_rows ? launch(ProductTensorKernel<kPrecision, T, true, true>)
                      : launch(ProductTensorKernel<kPrecision, T, false, true>);
  }
  return float_rows ? launch(ProductTensorKernel<kPrecision, T, true, false>)
                    : launch(ProductTensorKernel<kPrecision, T, false, false>);
}

template <GraphPrecision kPrecision>
int Multiply(Stream stream, const ProductArgs& args) {
  // Every row in whole units at 16-byte addresses.
  bool float_rows = args.a_k == 1 && args.k % kPerUnit<kPrecision> == 0 &&
                    args.a_row % 4 == 0 && IsAligned(args.a);
  ProductArgs with = args;
  with.wide = IsWide(args.epilogue, args.y, args.n, args.y_row);
  for (int axis = 0; axis < args.rank; ++axis) {
    if (args.sizes[axis] == 1) continue;
    float_rows = float_rows && args.a_strides[axis] % 4 == 0;
    with.wide = with.wide && args.y_strides[axis] % 4 == 0;
  }
  if (with.tile == GraphTile::kChosen) {
    with.tile = TensorTileFor(args.m, args.n, args.count);
  }
  return WithTensorTile(with.tile, [&]<class T>() {
    return LaunchProduct<kPrecision, T>(stream, with, float_rows);
  });
}

}  // namespace

int GraphProductOnTensors(Stream stream, const ProductArgs& args) {
  switch (args.precision) {
    case GraphPrecision::kF32:
      break;
    case GraphPrecision::kTf32:
      return Multiply<GraphPrecision::kTf32>(stream, args);
    case GraphPrecision::kF16:
      return Multiply<GraphPrecision::kF16>(stream, args);
    case GraphPrecision::kBf16:
      return Multiply<GraphPrecision::kBf16>(stream, args);
  }
  return kInvalidValue;
}

}  // namespace millrace::cuda
