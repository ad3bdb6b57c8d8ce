// Rows of 16-bit floats times a matrix of weights in any format but F32, on
// tensor cores: the way of prompts, and of their uses of experts. A block
// computes a tile of rows by outputs, 32 inputs at a time: both tiles go
// through shared memory as 16-bit floats, weights are dequantised on the way.
// The next 32 are loaded while these are multiplied.
//
// An output is one chain of `mma` over the inputs in order, whatever tile it is
// in, so its bits depend on its row and its weights alone.
#include "models/cuda/product.cuh"
#include "models/cuda/tensor_core.cuh"
#include "models/cuda/weights.cuh"

namespace millrace::cuda {
namespace {

constexpr int kInputs = 32;          // of a tile
constexpr int kUnits = kInputs / 8;  // of 16 bytes, in a row of it
// A row in shared memory, in units: one more, so that the eight rows of a
// fragment are in different banks.
constexpr int kPitch = kUnits + 1;

template <int kRows_, int kOutputs_, int kWarpsByRow_, int kWarpsByOutput_>
struct Tile {
  static constexpr int kRows = kRows_;
  static constexpr int kOutputs = kOutputs_;
  static constexpr int kWarpsByOutput = kWarpsByOutput_;
  static constexpr int kThreads = 32 * kWarpsByRow_ * kWarpsByOutput_;
  // Fragments of a warp: 16 rows, 8 outputs.
  static constexpr int kRowFragments = kRows / kWarpsByRow_ / 16;
  static constexpr int kOutputFragments = kOutputs / kWarpsByOutput_ / 8;
  static constexpr int kBufferUnits = (kRows + kOutputs) * kPitch;
};
using SmallTile = Tile<32, 64, 2, 2>;
using LargeTile = Tile<128, 128, 2, 4>;
static_assert(SmallTile::kRows == kFewTensorRows &&
              LargeTile::kRows == kManyTensorRows);
// Up to so many rows the small tile. Not measured.
constexpr int kFewRows = 64;

__device__ __forceinline__ uint32_t Pair(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

// Eight weights as 16-bit floats.
template <WeightFormat kFormat>
__device__ __forceinline__ uint4 To16Bit(const RawUnit<kFormat>& raw) {
  if constexpr (kFormat == WeightFormat::kF16 ||
                kFormat == WeightFormat::kBF16) {
    return {raw.low[0], raw.low[1], raw.low[2], raw.low[3]};
  } else {
    float w[8];
    DecodeUnit<kFormat>(raw, w);
    return {Pair(ToHalf(w[0]), ToHalf(w[1])), Pair(ToHalf(w[2]), ToHalf(w[3])),
            Pair(ToHalf(w[4]), ToHalf(w[5])), Pair(ToHalf(w[6]), ToHalf(w[7]))};
  }
}

template <WeightFormat kFormat, class T>
__global__ void __launch_bounds__(T::kThreads, 2)
    TensorKernel(LinearArgs args) {
  constexpr int kRowUnits = T::kRows * kUnits / T::kThreads;
  constexpr int kWeightUnits = T::kOutputs * kUnits / T::kThreads;
  auto* shared = SharedMemory<uint4>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const RowTile tile = TileOf<T::kRows>(args, blockIdx.x);
  if (tile.first == tile.end) return;  // whole blocks
  const int64_t output0 = int64_t{blockIdx.y} * T::kOutputs;
  const int units = args.weights.inputs / 8;

  // Units that this thread loads: row and unit i / kUnits and i % kUnits of
  // i = thread, thread + kThreads, ... Rows behind the last are that one again.
  const std::byte* row_at[kRowUnits];
  const std::byte* weights_at[kWeightUnits];
  for (int i = 0; i < kRowUnits; ++i) {
    const int64_t row = tile.row((thread + i * T::kThreads) / kUnits);
    row_at[i] = args.rounded + tile.x_of(row) * args.rounded_bytes;
  }
  for (int i = 0; i < kWeightUnits; ++i) {
    const int64_t output = output0 + (thread + i * T::kThreads) / kUnits;
    weights_at[i] = tile.weights + Min64(output, args.weights.outputs - 1) *
                                       args.weights.row_bytes;
  }
  uint4 rows[kRowUnits];
  RawUnit<kFormat> weights[kWeightUnits];
  const auto fetch = [&](int step) {
    const int unit = step * kUnits + thread % kUnits;
    if (unit >= units) return;
    for (int i = 0; i < kRowUnits; ++i) {
      rows[i] = reinterpret_cast<const uint4*>(row_at[i])[unit];
    }
    for (int i = 0; i < kWeightUnits; ++i) {
      weights[i] = FetchUnit<kFormat>(weights_at[i], args.weights.inputs, unit);
    }
  };
  const auto store = [&](int step) {
    uint4* to = shared + step % 2 * T::kBufferUnits;
    const bool there = step * kUnits + thread % kUnits < units;
    const uint4 zeros = {0, 0, 0, 0};
    for (int i = 0; i < kRowUnits; ++i) {
      const int at = thread + i * T::kThreads;
      to[at / kUnits * kPitch + at % kUnits] = there ? rows[i] : zeros;
    }
    to += T::kRows * kPitch;
    for (int i = 0; i < kWeightUnits; ++i) {
      const int at = thread + i * T::kThreads;
      to[at / kUnits * kPitch + at % kUnits] =
          there ? To16Bit<kFormat>(weights[i]) : zeros;
    }
  };

  const int warp_row = warp / T::kWarpsByOutput * T::kRowFragments * 16;
  const int warp_output = warp % T::kWarpsByOutput * T::kOutputFragments * 8;
  // A tile of few rows, those of one expert, leaves some warps without any.
  const bool works = tile.first + warp_row < tile.end;
  float sums[T::kRowFragments][T::kOutputFragments][4] = {};
  const auto multiply = [&](int step) {
    const auto* words =
        reinterpret_cast<const uint32_t*>(shared + step % 2 * T::kBufferUnits);
    // Words of a lane in the fragments: its row, its pair of inputs.
    const uint32_t* x = words + (warp_row + lane / 4) * kPitch * 4 + lane % 4;
    const uint32_t* w =
        words + (T::kRows + warp_output + lane / 4) * kPitch * 4 + lane % 4;
    MILLRACE_UNROLL
    for (int k = 0; k < kInputs / 2; k += 8) {
      uint32_t a[T::kRowFragments][4];
      MILLRACE_UNROLL
      for (int i = 0; i < T::kRowFragments; ++i) {
        const uint32_t* at = x + i * 16 * kPitch * 4 + k;
        a[i][0] = at[0];
        a[i][1] = at[8 * kPitch * 4];
        a[i][2] = at[4];
        a[i][3] = at[8 * kPitch * 4 + 4];
      }
      MILLRACE_UNROLL
      for (int j = 0; j < T::kOutputFragments; ++j) {
        const uint32_t* at = w + j * 8 * kPitch * 4 + k;
        const uint32_t b[2] = {at[0], at[4]};
        MILLRACE_UNROLL
        for (int i = 0; i < T::kRowFragments; ++i) {
          MultiplyFragment<kFormat == WeightFormat::kBF16>(a[i], b, sums[i][j]);
        }
      }
    }
  };
  const int steps = (units + kUnits - 1) / kUnits;
  fetch(0);
  store(0);
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) fetch(step + 1);
    if (works) multiply(step);
    if (step + 1 < steps) store(step + 1);
    __syncthreads();
  }

  MILLRACE_UNROLL
  for (int i = 0; i < T::kRowFragments; ++i) {
    MILLRACE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = warp_row + i * 16 + half * 8 + lane / 4;
      if (tile.first + at >= tile.end) continue;
      const int64_t row = tile.row(at);
      const float scale =
          LoadAs<float>(args.rounded + tile.x_of(row) * args.rounded_bytes +
                        2 * int64_t{args.weights.inputs});
      MILLRACE_UNROLL
      for (int j = 0; j < T::kOutputFragments; ++j) {
        MILLRACE_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int64_t output =
              output0 + warp_output + j * 8 + lane % 4 * 2 + c;
          if (output >= args.weights.outputs) continue;
          StoreProduct(args, row, output,
                       __fmul_rn(scale, sums[i][j][2 * half + c]));
        }
      }
    }
  }
}

template <WeightFormat kFormat, class T>
int LaunchTensor(Stream stream, const LinearArgs& args) {
  return Launch(TensorKernel<kFormat, T>,
                dim3(BlocksOfRows(args, T::kRows),
                     CeilDiv(args.weights.outputs, T::kOutputs)),
                T::kThreads, 2 * T::kBufferUnits * sizeof(uint4), stream, args);
}

}  // namespace

int MultiplyOnTensors(Stream stream, const LinearArgs& args) {
  if (args.rows == 0) return 0;
  return WithFormat(args.weights.format, [&]<WeightFormat kFormat>() {
    if constexpr (kFormat == WeightFormat::kF32) {
      return kInvalidValue;
    } else {
      if (args.rows <= (args.tiles == nullptr ? kFewRows : kFewTensorRows)) {
        return LaunchTensor<kFormat, SmallTile>(stream, args);
      }
      return LaunchTensor<kFormat, LargeTile>(stream, args);
    }
  });
}

}  // namespace millrace::cuda
