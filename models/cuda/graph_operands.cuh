// Operands of a product on tensor cores: each brings its units of one slab
// after the other to shared memory.
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

}  // namespace millrace::cuda
