// A tile of outputs of a product on tensor cores: rows of one operand times
// outputs of the other, 64 bytes of each at a time through shared memory, where
// four such slabs are in flight. Then the sums go through shared memory, so
// that bias, residual and function meet wide reads and writes.
//
// An output is one chain of `mma` over the inputs in order, whatever tile it is
// in: its bits depend on its own factors alone.
#pragma once

#include "models/cuda/async_copy.cuh"
#include "models/cuda/graph_fragments.cuh"
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {

inline constexpr int kSlabUnits = 4;  // of a row or output
inline constexpr int kSlabs = 4;      // in shared memory

// A unit of a slab in shared memory. Eight rows of one unit, which are read
// together, lie in different banks.
__device__ __forceinline__ int UnitPlace(int row, int unit) {
  return row * kSlabUnits + (unit ^ (row / 2 % kSlabUnits));
}

// kBlocks: of a multiprocessor, for which registers are kept free.
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

// ---- operands: each brings its units of one slab after the other ----
// Rows of units that lie in memory as they are multiplied, `row_bytes` apart.
// Rows behind the last are that one again.
template <int kRows, int kThreads>
class PackedRows {
 public:
  __device__ PackedRows(const void* data, int64_t row_bytes, int64_t first,
                        int64_t count)
      : PackedRows(data, row_bytes, static_cast<int>(row_bytes / kPackedUnit),
                   first, count) {}
  __device__ PackedRows(const void* data, int64_t row_bytes, int units,
                        int64_t first, int64_t count)
      : units_(units) {
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int64_t row = Min64(first + Row(i), count - 1);
      at_[i] = static_cast<const std::byte*>(data) + row * row_bytes;
    }
  }
  __device__ __forceinline__ void Fetch(int slab, uint4* to) {
    const int own = static_cast<int>(threadIdx.x) % kSlabUnits;
    const int unit = slab * kSlabUnits + own;
    const bool there = unit < units_;
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      CopyAsync<16>(to + UnitPlace(Row(i), own),
                    at_[i] + (there ? unit * kPackedUnit : 0), there);
    }
  }
  __device__ __forceinline__ void Store(uint4*) const {}

 private:
  static constexpr int kMine = kRows * kSlabUnits / kThreads;
  __device__ static __forceinline__ int Row(int i) {
    return static_cast<int>(threadIdx.x) / kSlabUnits +
           i * (kThreads / kSlabUnits);
  }
  const int units_;
  const std::byte* at_[kMine];
};

// As many values, or zeros where there are none.
template <int kValues>
__device__ __forceinline__ void LoadValues(const float* at,
                                           float (&values)[kValues]) {
  MILLRACE_UNROLL
  for (int i = 0; i < kValues; i += 4) {
    float4 four = {0, 0, 0, 0};
    if (at != nullptr) four = *reinterpret_cast<const float4*>(at + i);
    values[i] = four.x;
    values[i + 1] = four.y;
    values[i + 2] = four.z;
    values[i + 3] = four.w;
  }
}

// Rows of f32 that lie in whole units: 16-byte addresses, a multiple of a
// unit's values.
template <GraphPrecision kPrecision, int kRows, int kThreads>
class FloatRows {
 public:
  __device__ FloatRows(const float* data, int64_t row_stride, int64_t inputs,
                       int64_t first, int64_t count)
      : units_(static_cast<int>(inputs / kValues)) {
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      at_[i] = data + Min64(first + Row(i), count - 1) * row_stride;
    }
  }
  __device__ __forceinline__ void Fetch(int slab, uint4*) {
    const int unit =
        slab * kSlabUnits + static_cast<int>(threadIdx.x) % kSlabUnits;
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      LoadValues<kValues>(unit < units_ ? at_[i] + unit * kValues : nullptr,
                          values_[i]);
    }
  }
  __device__ __forceinline__ void Store(uint4* to) const {
    const int own = static_cast<int>(threadIdx.x) % kSlabUnits;
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      to[UnitPlace(Row(i), own)] = ToUnit<kPrecision>(values_[i]);
    }
  }

 private:
  static constexpr int kValues = kPerUnit<kPrecision>;
  static constexpr int kMine = kRows * kSlabUnits / kThreads;
  __device__ static __forceinline__ int Row(int i) {
    return static_cast<int>(threadIdx.x) / kSlabUnits +
           i * (kThreads / kSlabUnits);
  }
  const int units_;
  const float* at_[kMine];
  float values_[kMine][kValues];
};

// Of operands that are read value by value: a thread has one row, and every
// kStep-th unit of it.
template <int kRows, int kThreads>
struct ByRow {
  static_assert(kThreads % kRows == 0);
  static constexpr int kStep = kThreads / kRows;
  static constexpr int kMine = kSlabUnits / kStep;
  __device__ static __forceinline__ int Row() {
    return static_cast<int>(threadIdx.x) % kRows;
  }
  __device__ static __forceinline__ int Unit(int i) {
    return static_cast<int>(threadIdx.x) / kRows + i * kStep;
  }
};

// Any format, at any strides.
template <GraphPrecision kPrecision, int kRows, int kThreads>
class StridedRows {
 public:
  __device__ StridedRows(const ValuesIn& data, int64_t row_stride,
                         int64_t input_stride, int64_t inputs, int64_t first,
                         int64_t count)
      : at_(data + Min64(first + Place::Row(), count - 1) * row_stride),
        stride_(input_stride),
        inputs_(inputs) {}
  __device__ __forceinline__ void Fetch(int slab, uint4*) {
    const void* data = at_.data;
    if (at_.format == GraphFormat::kF32) {
      FetchBy(slab,
              [=](int64_t i) { return LoadAs<GraphFormat::kF32>(data, i); });
    } else if (at_.format == GraphFormat::kF16) {
      FetchBy(slab,
              [=](int64_t i) { return LoadAs<GraphFormat::kF16>(data, i); });
    } else {
      FetchBy(slab,
              [=](int64_t i) { return LoadAs<GraphFormat::kBf16>(data, i); });
    }
  }
  __device__ __forceinline__ void Store(uint4* to) const {
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      to[UnitPlace(Place::Row(), Place::Unit(i))] =
          ToUnit<kPrecision>(values_[i]);
    }
  }

 private:
  using Place = ByRow<kRows, kThreads>;
  static constexpr int kValues = kPerUnit<kPrecision>;
  template <class Load>
  __device__ __forceinline__ void FetchBy(int slab, const Load& load) {
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      const int64_t from =
          (int64_t{slab} * kSlabUnits + Place::Unit(i)) * kValues;
      MILLRACE_UNROLL
      for (int j = 0; j < kValues; ++j) {
        values_[i][j] = from + j < inputs_ ? load((from + j) * stride_) : 0.0f;
      }
    }
  }

  const ValuesIn at_;
  const int64_t stride_;
  const int64_t inputs_;
  float values_[Place::kMine][kValues];
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

// ---- the tile ----
// Two units of each row times two of each output, by one `mma`.
template <GraphPrecision kPrecision>
struct FloatFactors {
  using Sum = float;
  using FourSums = float4;
  __device__ static __forceinline__ void Multiply(const uint32_t (&x)[4],
                                                  const uint32_t* w,
                                                  float (&sums)[4]) {
    MultiplyUnits<kPrecision>(x, w, sums);
  }
};

// Result has a StoreFour of the kind's four sums.
template <class Factors, class T, class X, class W, class Result>
__device__ __forceinline__ void MultiplyTensorTile(int slabs, X& x, W& w,
                                                   const Result& result,
                                                   int64_t row0,
                                                   int64_t output0) {
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
  for (int slab = 0; slab < kSlabs - 1; ++slab) {
    if (slab < slabs) {
      x.Fetch(slab, slab_at(slab));
      w.Fetch(slab, slab_at(slab) + T::kRows * kSlabUnits);
      x.Store(slab_at(slab));
      w.Store(slab_at(slab) + T::kRows * kSlabUnits);
    }
    CommitCopies();
  }
  Sum sums[T::kRowFragments][T::kOutputFragments][4] = {};
  MILLRACE_NO_UNROLL
  for (int slab = 0; slab < slabs; ++slab) {
    WaitCopies<kSlabs - 2>();
    __syncthreads();  // also: all threads have read the slab before
    const int next = slab + kSlabs - 1;
    uint4* next_at = slab_at(next);
    if (next < slabs) {
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
    if (next < slabs) {
      x.Store(next_at);
      w.Store(next_at + T::kRows * kSlabUnits);
    }
  }

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

using LargeTensorTile = TensorTile<128, 128, 2, 4, 2>;
using TallTensorTile = TensorTile<128, 64, 4, 2, 2>;
using MiddleTensorTile = TensorTile<64, 64, 2, 2, 4>;
using SmallTensorTile = TensorTile<32, 64, 1, 4, 5>;

// The largest tile of which there are enough to keep a large GPU busy.
inline GraphTile TensorTileFor(int64_t m, int64_t n, int64_t products) {
  constexpr int64_t kEnough = 128;
  const auto is_enough = [&](int rows, int outputs) {
    return int64_t{CeilDiv(m, rows)} * CeilDiv(n, outputs) * products >=
           kEnough;
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

// Tiles along x, outputs first, so that tiles of the same rows run together;
// products along y, which a kernel walks in steps of gridDim.y.
template <class T>
dim3 ByTensorTile(int64_t m, int64_t n, int64_t products) {
  return dim3(static_cast<unsigned>(int64_t{CeilDiv(m, T::kRows)} *
                                    CeilDiv(n, T::kOutputs)),
              static_cast<unsigned>(products < 65535 ? products : 65535));
}

}  // namespace millrace::cuda
