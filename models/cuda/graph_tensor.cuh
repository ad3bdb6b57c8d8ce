// A tile of outputs of a product on tensor cores: rows of one operand times
// outputs of the other, 64 bytes of each at a time through shared memory, where
// four such slabs are in flight. Then the sums go through shared memory, so
// that bias, residual and function meet wide reads and writes.
//
// An output is one chain of `mma` over the inputs in order, or a few of them
// that are added in order (PiecesOf), whatever tile it is in: its bits depend
// on its own factors alone.
#pragma once

#include "models/cuda/graph_functions.cuh"
#include "models/cuda/graph_operands.cuh"

namespace millrace::cuda {

// kBlocks: of a multiprocessor, for which registers are kept free. The largest
// tile has none for the total of pieces.
template <int kRows_, int kOutputs_, int kWarpsByRow_, int kWarpsByOutput_,
          int kBlocks_>
struct TensorTile {
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kRows = kRows_;
  static constexpr int kOutputs = kOutputs_;
  static constexpr int kWarpsByOutput = kWarpsByOutput_;
  static constexpr int kThreads = 32 * kWarpsByRow_ * kWarpsByOutput_;
  // Fragments of a warp: 16 rows, 8 outputs.
  static constexpr int kRowFragments = kRows / kWarpsByRow_ / 16;
  static constexpr int kOutputFragments = kOutputs / kWarpsByOutput_ / 8;
  static constexpr bool kAddsPieces = kRowFragments * kOutputFragments <= 8;
  static constexpr int kUnits = (kRows + kOutputs) * kSlabUnits;  // of a slab
  // Sums of a row in shared memory: rows that are written together lie in
  // different banks.
  static constexpr int kPitch = kOutputs + 8;
  static constexpr size_t kSlabBytes = kSlabs * kUnits * sizeof(uint4);
  static constexpr size_t kSumBytes = kRows * kPitch * sizeof(float);
  static constexpr size_t kBytes =
      kSlabBytes > kSumBytes ? kSlabBytes : kSumBytes;
  static_assert(kOutputFragments % 2 == 0);
};

// The slabs of a sum that a block multiplies, and how many make a piece.
struct SlabRange {
  int first;
  int end;
  int of_piece;

  static __device__ SlabRange All(int slabs) { return {0, slabs, slabs}; }
  // Of a sum in pieces: all of them, or those of the block's piece.
  static __device__ SlabRange OfBlock(int slabs, int64_t pieces) {
    if (pieces == 1) return All(slabs);
    constexpr int kOfPiece =
        static_cast<int>(kPieceBytes / kPackedUnit) / kSlabUnits;
    if (gridDim.z == 1) return {0, slabs, kOfPiece};
    const int first = static_cast<int>(blockIdx.z) * kOfPiece;
    return {first, slabs < first + kOfPiece ? slabs : first + kOfPiece,
            kOfPiece};
  }
};

// ---- where sums go ----
struct TensorResult {
  ValuesOut y;
  int64_t rows;
  int64_t outputs;
  int64_t row_stride;
  int64_t start;  // of this product in y, and so in residual and gate
  bool wide;      // four outputs are read and written at once
  GraphEpilogue epilogue;
};

// Of the first product of a stack; it begins elsewhere for another one.
template <class Args>
__device__ __forceinline__ TensorResult ResultOf(const Args& args) {
  return {.y = args.y,
          .rows = args.m,
          .outputs = args.n,
          .row_stride = args.y_row,
          .start = 0,
          .wide = args.wide,
          .epilogue = args.epilogue};
}

#if defined(__CUDACC__)
#define MILLRACE_NOINLINE __noinline__
#else
#define MILLRACE_NOINLINE __attribute__((noinline))
#endif

// One copy of the functions' code is enough.
template <class Value>
MILLRACE_NOINLINE __device__ Value ApplyToFour(Function f, float a, float b,
                                               Value v) {
  return {Apply(f, a, b, v.x), Apply(f, a, b, v.y), Apply(f, a, b, v.z),
          Apply(f, a, b, v.w)};
}
__device__ __forceinline__ float4 ApplyFast(Function f, float a, float b,
                                            float4 v) {
  if (f == Function::kNone) return v;
  if (f == Function::kRelu) {
    return {GraphMax(0.0f, v.x), GraphMax(0.0f, v.y), GraphMax(0.0f, v.z),
            GraphMax(0.0f, v.w)};
  }
  return ApplyToFour(f, a, b, v);
}
__device__ __forceinline__ float4 Sum(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Four outputs of a row, from `output` on.
__device__ __forceinline__ void StoreFour(const TensorResult& r, int64_t row,
                                          int64_t output, float4 sums) {
  if (row >= r.rows || output >= r.outputs) return;
  const int64_t at = r.start + row * r.row_stride + output;
  const GraphEpilogue& e = r.epilogue;
  if (r.wide) {
    if (e.bias != nullptr) sums = Sum(sums, LoadFour(e.bias, output));
    float4 residual = {0, 0, 0, 0};
    if (e.residual.any()) residual = LoadFour(e.residual, at);
    if (e.residual.any() && e.residual_first) sums = Sum(sums, residual);
    sums = ApplyFast(e.f, e.a, e.b, sums);
    if (e.gate.any()) {
      const float4 gate = LoadFour(e.gate, at);
      sums = {__fmul_rn(sums.x, gate.x), __fmul_rn(sums.y, gate.y),
              __fmul_rn(sums.z, gate.z), __fmul_rn(sums.w, gate.w)};
    }
    if (e.residual.any() && !e.residual_first) sums = Sum(sums, residual);
    StoreFour(r.y, at, sums);
    return;
  }
  const int some = static_cast<int>(Min64(4, r.outputs - output));
  for (int i = 0; i < some; ++i) {
    float sum = i == 0 ? sums.x : i == 1 ? sums.y : i == 2 ? sums.z : sums.w;
    if (e.bias != nullptr) sum += e.bias[output + i];
    float residual = 0;
    if (e.residual.any()) residual = LoadValue(e.residual, at + i);
    if (e.residual.any() && e.residual_first) sum += residual;
    sum = ApplyFast(e.f, e.a, e.b, {sum, 0, 0, 0}).x;
    if (e.gate.any()) sum = __fmul_rn(sum, LoadValue(e.gate, at + i));
    if (e.residual.any() && !e.residual_first) sum += residual;
    StoreValue(r.y, at + i, sum);
  }
}

// The same, or the sums of the block's piece, as they are. The branch is at the
// end, so that what is behind the layer stays in the launch's arguments, not in
// registers, while the block multiplies.
struct PieceResult {
  const TensorResult& whole;
  float* partial;
  int64_t product;  // one of `count`
  int64_t count;
};
__device__ __forceinline__ void StoreFour(const PieceResult& r, int64_t row,
                                          int64_t output, float4 sums) {
  if (gridDim.z == 1) return StoreFour(r.whole, row, output, sums);
  const int64_t outputs = r.whole.outputs;
  if (row >= r.whole.rows || output >= outputs) return;
  float* to =
      r.partial +
      ((blockIdx.z * r.count + r.product) * r.whole.rows + row) * outputs +
      output;
  if (outputs % 4 == 0) {
    *reinterpret_cast<float4*>(to) = sums;
    return;
  }
  to[0] = sums.x;
  if (output + 1 < outputs) to[1] = sums.y;
  if (output + 2 < outputs) to[2] = sums.z;
  if (output + 3 < outputs) to[3] = sums.w;
}

// ---- the tile ----
// Two units of each row times two of each output, by one `mma`.
template <GraphPrecision kPrecision>
struct FloatFactors {
  using Sum = float;
  using FourSums = float4;
  static constexpr bool kInPieces = true;
  __device__ static __forceinline__ void Multiply(const uint32_t (&x)[4],
                                                  const uint32_t* w,
                                                  float (&sums)[4]) {
    MultiplyUnits<kPrecision>(x, w, sums);
  }
};

// Result has a StoreFour of the kind's four sums.
template <class Factors, class T, class X, class W, class Result>
__device__ __forceinline__ void MultiplyTensorTile(SlabRange slabs, X& x, W& w,
                                                   const Result& result,
                                                   int64_t row0,
                                                   int64_t output0) {
  constexpr bool kAdds = Factors::kInPieces && T::kAddsPieces;
  using Sum = typename Factors::Sum;
  struct alignas(2 * sizeof(Sum)) TwoSums {
    Sum a, b;
  };
  static_assert(sizeof(Sum) == sizeof(float));
  auto* shared = SharedMemory<uint4>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int warp_row = warp / T::kWarpsByOutput * T::kRowFragments * 16;
  const int warp_output = warp % T::kWarpsByOutput * T::kOutputFragments * 8;
  const auto slab_at = [&](int slab) {
    return shared + slab % kSlabs * T::kUnits;
  };

  MILLRACE_UNROLL
  for (int i = 0; i < kSlabs - 1; ++i) {
    const int slab = slabs.first + i;
    if (slab < slabs.end) {
      x.Fetch(slab, slab_at(slab));
      w.Fetch(slab, slab_at(slab) + T::kRows * kSlabUnits);
      x.Store(slab_at(slab));
      w.Store(slab_at(slab) + T::kRows * kSlabUnits);
    }
    CommitCopies();
  }
  Sum sums[T::kRowFragments][T::kOutputFragments][4] = {};
  // Of the pieces before. -0 changes no sum, 0 would make one of -0.
  Sum totals[kAdds ? T::kRowFragments : 1][T::kOutputFragments][4];
  [[maybe_unused]] const auto for_sums = [&](const auto& f) {
    MILLRACE_UNROLL
    for (int i = 0; i < (kAdds ? T::kRowFragments : 1); ++i) {
      MILLRACE_UNROLL
      for (int j = 0; j < T::kOutputFragments; ++j) {
        MILLRACE_UNROLL
        for (int c = 0; c < 4; ++c) f(totals[i][j][c], sums[i][j][c]);
      }
    }
  };
  if constexpr (kAdds) for_sums([](Sum& total, Sum&) { total = Sum(-0.0f); });
  int left = slabs.of_piece;
  MILLRACE_NO_UNROLL
  for (int slab = slabs.first; slab < slabs.end; ++slab) {
    if constexpr (kAdds) {
      if (left-- == 0) {
        left = slabs.of_piece - 1;
        for_sums([](Sum& total, Sum& sum) {
          total += sum;
          sum = 0;
        });
      }
    }
    WaitCopies<kSlabs - 2>();
    __syncthreads();  // also: all threads have read the slab before
    const int next = slab + kSlabs - 1;
    uint4* next_at = slab_at(next);
    if (next < slabs.end) {
      x.Fetch(next, next_at);
      w.Fetch(next, next_at + T::kRows * kSlabUnits);
    }
    CommitCopies();
    const uint4* xs = slab_at(slab);
    const uint4* ws = xs + T::kRows * kSlabUnits;
    MILLRACE_UNROLL
    for (int unit = 0; unit < kSlabUnits; unit += 2) {
      uint32_t rows[T::kRowFragments][4];
      MILLRACE_UNROLL
      for (int i = 0; i < T::kRowFragments; ++i) {
        const int row = warp_row + i * 16 + lane % 16;
        LoadFragments<false>(xs + UnitPlace(row, unit + lane / 16), rows[i]);
      }
      MILLRACE_UNROLL
      for (int j = 0; j < T::kOutputFragments; j += 2) {
        const int output = warp_output + j * 8 + lane / 16 * 8 + lane % 8;
        uint32_t outputs[4];
        LoadFragments<false>(ws + UnitPlace(output, unit + lane / 8 % 2),
                             outputs);
        MILLRACE_UNROLL
        for (int i = 0; i < T::kRowFragments; ++i) {
          Factors::Multiply(rows[i], outputs, sums[i][j]);
          Factors::Multiply(rows[i], outputs + 2, sums[i][j + 1]);
        }
      }
    }
    if (next < slabs.end) {
      x.Store(next_at);
      w.Store(next_at + T::kRows * kSlabUnits);
    }
  }

  if constexpr (kAdds)
    for_sums([](Sum& total, Sum& sum) { sum = total + sum; });
  __syncthreads();
  auto* tile = reinterpret_cast<Sum*>(shared);
  MILLRACE_UNROLL
  for (int i = 0; i < T::kRowFragments; ++i) {
    MILLRACE_UNROLL
    for (int j = 0; j < T::kOutputFragments; ++j) {
      const int output = warp_output + j * 8 + lane % 4 * 2;
      MILLRACE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + i * 16 + half * 8 + lane / 4;
        *reinterpret_cast<TwoSums*>(tile + row * T::kPitch + output) = {
            sums[i][j][2 * half], sums[i][j][2 * half + 1]};
      }
    }
  }
  __syncthreads();
  constexpr int kFours = T::kOutputs / 4;
  MILLRACE_NO_UNROLL
  for (int i = thread; i < T::kRows * kFours; i += T::kThreads) {
    const int row = i / kFours;
    const int output = i % kFours * 4;
    StoreFour(result, row0 + row, output0 + output,
              *reinterpret_cast<const typename Factors::FourSums*>(
                  tile + row * T::kPitch + output));
  }
  __syncthreads();  // before the next product
}

// ---- on the host ----
inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}
// Whether four outputs may be read and written at once.
inline bool IsWide(const GraphEpilogue& e, const ValuesOut& y, int64_t outputs,
                   int64_t row_stride) {
  return outputs % 4 == 0 && row_stride % 4 == 0 && IsAligned(e.bias) &&
         StandsInFours(y.data, y.format) &&
         StandsInFours(e.residual.data, e.residual.format) &&
         StandsInFours(e.gate.data, e.gate.format);
}

// The same of a stack of products.
template <class Args>
bool IsWide(const Args& args) {
  bool wide = IsWide(args.epilogue, args.y, args.n, args.y_row);
  for (int axis = 0; axis < args.rank; ++axis) {
    wide = wide && (args.sizes[axis] == 1 || args.y_strides[axis] % 4 == 0);
  }
  return wide;
}

using LargeTensorTile = TensorTile<128, 128, 2, 4, 2>;
using TallTensorTile = TensorTile<128, 64, 4, 2, 2>;
using MiddleTensorTile = TensorTile<64, 64, 2, 2, 4>;
using SmallTensorTile = TensorTile<32, 64, 1, 4, 5>;

// The largest tile of which there are enough to keep a large GPU busy.
inline GraphTile TensorTileFor(int64_t m, int64_t n, int64_t products) {
  const auto is_enough = [&](int rows, int outputs) {
    return int64_t{CeilDiv(m, rows)} * CeilDiv(n, outputs) * products >=
           kEnoughBlocks;
  };
  if (n > 64 && is_enough(128, 128)) return GraphTile::kLarge;
  if (is_enough(128, 64)) return GraphTile::kTall;
  return is_enough(64, 64) ? GraphTile::kMiddle : GraphTile::kSmall;
}
// Calls launch.template operator()<Tile>().
template <class Launch>
int WithTensorTile(GraphTile tile, const Launch& launch) {
  switch (tile) {
    case GraphTile::kLarge:
      return launch.template operator()<LargeTensorTile>();
    case GraphTile::kTall:
      return launch.template operator()<TallTensorTile>();
    case GraphTile::kMiddle:
      return launch.template operator()<MiddleTensorTile>();
    case GraphTile::kChosen:
    case GraphTile::kSmall:
      break;
  }
  return launch.template operator()<SmallTensorTile>();
}

// The same without the tiles of 128 rows: for operands that are read value by
// value, which wait for their loads more than for products. Each tile is a
// kernel more to compile for each way to read.
template <class Launch>
int WithSmallerTensorTile(GraphTile tile, const Launch& launch) {
  return tile == GraphTile::kChosen || tile == GraphTile::kSmall
             ? launch.template operator()<SmallTensorTile>()
             : launch.template operator()<MiddleTensorTile>();
}

// How the sums of a launch are cut.
struct Cut {
  int64_t pieces;
  int64_t blocks;  // that share the pieces of a tile: as many, or one
  GraphTile tile;

  Cut(GraphPrecision precision, int64_t inputs, int64_t m, int64_t n,
      int64_t products, bool has_room, GraphTile wanted)
      : pieces(PiecesOf(precision, inputs, n)),
        blocks(has_room && PartialSums(pieces, m, n, products) > 0 ? pieces
                                                                   : 1),
        tile(wanted != GraphTile::kChosen
                 ? wanted
                 : TensorTileFor(m, n, products * blocks)) {
    if (pieces > 1 && tile == GraphTile::kLarge) tile = GraphTile::kTall;
  }
};

// Tiles along x, outputs first, so that tiles of the same rows run together;
// products along y, kMostProducts at most; pieces along z.
#if defined(__CUDACC__)
inline constexpr int64_t kMostProducts = 65535;  // as grids allow
#else
inline constexpr int64_t kMostProducts = 4;  // so that tests need more launches
#endif
template <class T>
dim3 ByTensorTile(int64_t m, int64_t n, int64_t products, int64_t pieces = 1) {
  return dim3(static_cast<unsigned>(int64_t{CeilDiv(m, T::kRows)} *
                                    CeilDiv(n, T::kOutputs)),
              static_cast<unsigned>(products < 65535 ? products : 65535),
              static_cast<unsigned>(pieces));
}

}  // namespace millrace::cuda
