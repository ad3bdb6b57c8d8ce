// Products of matrices for graphs on tensor cores: weights as they were packed
// at load, rows of 16 bits as they lie, everything else rounded on the way to
// shared memory.
#include <algorithm>

#include "models/cuda/graph_tensor.cuh"

namespace millrace::cuda {
namespace {

// How rows lie: at any strides; f32 in whole units at 16-byte addresses; units
// of factors.
enum class RowsLie { kAnyhow, kInFloats, kInUnits };

template <GraphPrecision kPrecision, class T, RowsLie kRows, bool kPacked>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    ProductTensorKernel(ProductArgs args) {
  constexpr int kInputs = kSlabUnits * kPerUnit<kPrecision>;
  const int64_t tiles = (args.n + T::kOutputs - 1) / T::kOutputs;
  const int64_t row0 = blockIdx.x / tiles * T::kRows;
  const int64_t output0 = blockIdx.x % tiles * T::kOutputs;
  const SlabRange slabs =
      SlabRange::OfBlock(static_cast<int>((args.k + kInputs - 1) / kInputs),
                         PiecesOf(kPrecision, args.k, args.n));
  // No loop around the tile: what the compiler kept for the next product cost
  // up to 33 registers.
  const int64_t product = args.first + blockIdx.y;
  ValuesIn a = args.a;
  ValuesIn b = args.b;
  TensorResult result = ResultOf(args);
  ForStackIndices(args, product, [&](int axis, int64_t index) {
    a += index * args.a_strides[axis];
    b += index * args.b_strides[axis];
    result.start += index * args.y_strides[axis];
  });
  const PieceResult to = {result, args.partial, product, args.count};
  const auto with = [&](auto& rows) {
    if constexpr (kPacked) {
      PackedRows<T::kOutputs, T::kThreads> weights(
          args.packed_b.data, args.packed_b.row_bytes, output0, args.n);
      MultiplyTensorTile<FloatFactors<kPrecision>, T>(slabs, rows, weights, to,
                                                      row0, output0);
    } else {
      StridedRows<kPrecision, T::kOutputs, T::kThreads> weights(
          b, args.b_n, args.b_k, args.k, output0, args.n);
      MultiplyTensorTile<FloatFactors<kPrecision>, T>(slabs, rows, weights, to,
                                                      row0, output0);
    }
  };
  if constexpr (kRows == RowsLie::kInFloats) {
    FloatRows<kPrecision, T::kRows, T::kThreads> rows(
        static_cast<const float*>(a.data), args.a_row, args.k, row0, args.m);
    with(rows);
  } else if constexpr (kRows == RowsLie::kInUnits) {
    PackedRows<T::kRows, T::kThreads> rows(
        a.data, 2 * args.a_row, static_cast<int>(args.k / kPerUnit<kPrecision>),
        row0, args.m);
    with(rows);
  } else {
    StridedRows<kPrecision, T::kRows, T::kThreads> rows(a, args.a_row, args.a_k,
                                                        args.k, row0, args.m);
    with(rows);
  }
}

template <GraphPrecision kPrecision, class T, RowsLie kRows, bool kPacked>
int LaunchProduct(Stream stream, const ProductArgs& args, int64_t blocks) {
  ProductArgs with = args;
  while (with.first < args.count) {
    const int64_t some = std::min(args.count - with.first, kMostProducts);
    const int error = Launch(ProductTensorKernel<kPrecision, T, kRows, kPacked>,
                             ByTensorTile<T>(args.m, args.n, some, blocks),
                             T::kThreads, T::kBytes, stream, with);
    if (error != 0) return error;
    with.first += some;
  }
  return 0;
}

// Packed weights and rows as the layers before leave them have every tile.
template <GraphPrecision kPrecision, RowsLie kRows>
int LaunchRows(Stream stream, const ProductArgs& args, int64_t blocks) {
  constexpr bool kIsUsual =
      kRows == (kPrecision == GraphPrecision::kTf32 ? RowsLie::kInFloats
                                                    : RowsLie::kInUnits);
  // With f16 and bf16 two values that are both known only in a run are rarely
  // f32: such rows have no kernel of their own.
  constexpr RowsLie kUnpackedLie = kIsUsual ? kRows : RowsLie::kAnyhow;
  if (args.packed_b.data == nullptr) {
    return WithSmallerTensorTile(args.tile, [&]<class T>() {
      return LaunchProduct<kPrecision, T, kUnpackedLie, false>(stream, args,
                                                               blocks);
    });
  }
  const auto launch = [&]<class T>() {
    return LaunchProduct<kPrecision, T, kRows, true>(stream, args, blocks);
  };
  if constexpr (kIsUsual) {
    return WithTensorTile(args.tile, launch);
  } else {
    return WithSmallerTensorTile(args.tile, launch);
  }
}

template <GraphPrecision kPrecision>
int Multiply(Stream stream, const ProductArgs& args) {
  const bool are_factors = AreFactors(kPrecision, args.a.format);
  const int64_t at_once = are_factors ? 8 : 4;  // values of 16 bytes
  bool in_units = args.a_k == 1 && args.k % kPerUnit<kPrecision> == 0 &&
                  args.a_row % at_once == 0 && IsAligned(args.a.data) &&
                  (are_factors || args.a.format == GraphFormat::kF32);
  ProductArgs with = args;
  with.wide = IsWide(args);
  with.first = 0;
  for (int axis = 0; axis < args.rank; ++axis) {
    if (args.sizes[axis] == 1) continue;
    in_units = in_units && args.a_strides[axis] % at_once == 0;
  }
  const Cut cut(kPrecision, args.k, args.m, args.n, args.count,
                args.partial != nullptr, args.tile);
  with.tile = cut.tile;
  const auto multiply = [&] {
    using enum RowsLie;
    if (!in_units) {
      return LaunchRows<kPrecision, kAnyhow>(stream, with, cut.blocks);
    }
    if constexpr (kPrecision != GraphPrecision::kTf32) {
      if (are_factors) {
        return LaunchRows<kPrecision, kInUnits>(stream, with, cut.blocks);
      }
    }
    return LaunchRows<kPrecision, kInFloats>(stream, with, cut.blocks);
  };
  const int error = multiply();
  if (error != 0 || cut.blocks == 1) return error;
  JoinPiecesArgs join = {.partial = args.partial,
                         .pieces = cut.pieces,
                         .m = args.m,
                         .n = args.n,
                         .y = args.y,
                         .y_row = args.y_row,
                         .rank = args.rank,
                         .count = args.count,
                         .sizes = {},
                         .y_strides = {},
                         .epilogue = args.epilogue,
                         .wide = false};
  std::copy_n(args.sizes, args.rank, join.sizes);
  std::copy_n(args.y_strides, args.rank, join.y_strides);
  return GraphJoinPieces(stream, join);
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
