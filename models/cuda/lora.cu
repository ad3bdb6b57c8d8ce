// What LoRA adapters add to the products of a step: for rows that have one,
// y += scale * B · (A · x), in f32. Rows stand in tiles of one adapter, which
// read its factors once: many adapters share a launch (as the SGMV of Punica,
// Chen et al. 2024). Two kernels: shrink makes A · x, expand adds B times that.
//
// An entry of A · x is summed over splits of the inputs by one warp each, in
// its lanes' order and then by a tree; splits are added in ascending order, by
// one block that walks them all or by the reader of what many blocks made: the
// same operations. An output is one chain of sums over the rank by one thread.
// So a row's bits depend on the row and its adapter alone.
#include "models/cuda/lora_kernels.h"

#include "models/cuda/async_copy.cuh"
#include "models/cuda/product.cuh"
#include "models/cuda/round.cuh"

namespace millrace::cuda {
namespace {

constexpr int kRows = kLoraTileRows;

// ---- shrink ----

constexpr int kWarps = 4;
constexpr int kShrinkThreads = 32 * kWarps;
constexpr int kRanks = 4;  // rows of A of a warp
static_assert(kWarps * kRanks == kLoraRanks);
static_assert(kRanks * kRows == 32, "a sum for each lane");
constexpr int kSplitUnits = kLoraSplitInputs / 8;
constexpr int kPasses = kSplitUnits / 32;  // of a warp over a split

// Eight values of a factor, as they are in memory.
template <bool kF32>
struct FactorUnit {
  uint4 words[kF32 ? 2 : 1];

  __device__ __forceinline__ void Fetch(const std::byte* factor, int64_t unit) {
    const auto* at = reinterpret_cast<const uint4*>(factor);
    words[0] = at[kF32 ? 2 * unit : unit];
    if constexpr (kF32) words[1] = at[2 * unit + 1];
  }
  __device__ __forceinline__ void Decode(float values[8]) const {
    if constexpr (kF32) {
      MILLRACE_UNROLL
      for (int i = 0; i < 2; ++i) {
        values[4 * i] = FloatOfBits(words[i].x);
        values[4 * i + 1] = FloatOfBits(words[i].y);
        values[4 * i + 2] = FloatOfBits(words[i].z);
        values[4 * i + 3] = FloatOfBits(words[i].w);
      }
    } else {
      const uint32_t pairs[4] = {words[0].x, words[0].y, words[0].z,
                                 words[0].w};
      MILLRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        values[2 * i] = FromHalf(static_cast<uint16_t>(pairs[i] & 0xffff));
        values[2 * i + 1] = FromHalf(static_cast<uint16_t>(pairs[i] >> 16));
      }
    }
  }
};

// The sum over the lanes of a warp of value i, in lane i: each is added up by
// the same tree.
__device__ __forceinline__ float SumOfLane(float (&values)[32], int lane) {
  MILLRACE_UNROLL
  for (int level = 0; level < 5; ++level) {
    const int step = 16 >> level;
    const bool upper = (lane & step) != 0;
    MILLRACE_UNROLL
    for (int i = 0; i < 16; ++i) {
      if (i >= step) continue;
      const float keep = upper ? values[i + step] : values[i];
      const float give = upper ? values[i] : values[i + step];
      values[i] = keep + __shfl_xor_sync(kAllLanes, give, step);
    }
  }
  return values[0];
}

// Starts copying units [first, first + units) of a tile's rows of x. Of a row
// in shared memory the first halves of all units come first, then the second
// ones, so that lanes side by side read what lies side by side.
__device__ __forceinline__ void CopyRows(const LoraArgs& args,
                                         const LoraTile& tile, int first,
                                         int units, float4* to) {
  for (int row = 0; row < tile.count; ++row) {
    const auto* from = reinterpret_cast<const float4*>(
        args.x + args.order[tile.first + row] * args.pitch + 8 * first);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * units;
         i += kShrinkThreads) {
      CopyAsync<16>(to + (2 * row + i % 2) * kSplitUnits + i / 2, from + i,
                    true);
    }
  }
  CommitCopies();
}

// What a warp's rows of A give of a split, lane (rank, row): rank * kRows +
// row.
template <bool kF32>
__device__ __forceinline__ float ShrinkSplit(
    const FactorUnit<kF32> (&a)[kPasses][kRanks], int units, int rows,
    const float4* x, int lane) {
  float sums[kRanks * kRows] = {};
  MILLRACE_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    const int unit = 32 * pass + lane;
    if (unit >= units) continue;
    float w[kRanks][8];
    MILLRACE_UNROLL
    for (int k = 0; k < kRanks; ++k) a[pass][k].Decode(w[k]);
    MILLRACE_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row >= rows) continue;
      const float4 low = x[2 * row * kSplitUnits + unit];
      const float4 high = x[(2 * row + 1) * kSplitUnits + unit];
      const float values[8] = {low.x,  low.y,  low.z,  low.w,
                               high.x, high.y, high.z, high.w};
      MILLRACE_UNROLL
      for (int k = 0; k < kRanks; ++k) {
        MILLRACE_UNROLL
        for (int i = 0; i < 8; ++i) {
          sums[k * kRows + row] =
              fmaf(w[k][i], values[i], sums[k * kRows + row]);
        }
      }
    }
  }
  return SumOfLane(sums, lane);
}

// Blocks: some ranks of a target, a tile, and a split where they are shared.
template <bool kF32>
__global__ void __launch_bounds__(kShrinkThreads) ShrinkKernel(LoraArgs args) {
  const LoraTile tile = args.tiles[blockIdx.y];
  if (tile.count == 0) return;
  const int chunks = args.most_rank / kLoraRanks;
  const int target = static_cast<int>(blockIdx.x) / chunks;
  const LoraFactors factors = tile.adapter[args.first_matrix + target];
  const int first_rank = static_cast<int>(blockIdx.x) % chunks * kLoraRanks;
  if (first_rank >= factors.rank) return;

  auto* x = SharedMemory<float4>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank =
      first_rank + static_cast<int>(threadIdx.x) / 32 * kRanks;  // of the warp
  const bool works = rank < factors.rank;
  const int all_units = args.inputs / 8;
  const int splits = args.shares_splits ? 1 : LoraSplits(args.inputs);
  const int first = args.shares_splits ? static_cast<int>(blockIdx.z) : 0;
  float total = 0;
  for (int i = 0; i < splits; ++i) {
    const int first_unit = (first + i) * kSplitUnits;
    const int units = min(kSplitUnits, all_units - first_unit);
    if (i > 0) __syncthreads();  // the rows of the last one are read
    CopyRows(args, tile, first_unit, units, x);
    FactorUnit<kF32> a[kPasses][kRanks];
    if (works) {
      MILLRACE_UNROLL
      for (int pass = 0; pass < kPasses; ++pass) {
        if (32 * pass + lane >= units) continue;
        MILLRACE_UNROLL
        for (int k = 0; k < kRanks; ++k) {
          a[pass][k].Fetch(factors.a, int64_t{rank + k} * all_units +
                                          first_unit + 32 * pass + lane);
        }
      }
    }
    WaitCopies<0>();
    __syncthreads();
    if (!works) continue;
    const float sum = ShrinkSplit<kF32>(a, units, tile.count, x, lane);
    total = i == 0 ? sum : total + sum;
  }
  if (!works || lane % kRows >= tile.count) return;
  const int64_t place = tile.first + lane % kRows;
  const int64_t parts = args.shares_splits ? gridDim.z : 1;
  args.hidden[((place * args.num_targets + target) * parts + blockIdx.z) *
                  args.most_rank +
              rank + lane / kRows] = total;
}

// ---- expand ----

constexpr int kExpandThreads = 64;
constexpr int kExpandOutputs = 8 * kExpandThreads;

// Blocks: some outputs, a tile, a target. A thread has eight outputs of each
// row.
template <bool kF32>
__global__ void __launch_bounds__(kExpandThreads) ExpandKernel(LoraArgs args) {
  const LoraTile tile = args.tiles[blockIdx.y];
  if (tile.count == 0) return;
  const unsigned target = blockIdx.z;
  const LoraArgs::Target place = target == 0   ? args.targets[0]
                                 : target == 1 ? args.targets[1]
                                               : args.targets[2];
  const int block_output = static_cast<int>(blockIdx.x) * kExpandOutputs;
  const LoraFactors factors = tile.adapter[args.first_matrix + target];
  if (factors.rank == 0 || block_output >= place.outputs) return;

  auto* hidden = SharedMemory<float>();  // [rank][kRows]
  const int64_t parts = args.shares_splits ? LoraSplits(args.inputs) : 1;
  for (int i = static_cast<int>(threadIdx.x); i < factors.rank * kRows;
       i += kExpandThreads) {
    const int row = i % kRows;
    float sum = 0;
    if (row < tile.count) {
      const float* from =
          args.hidden +
          ((tile.first + row) * int64_t{args.num_targets} + target) * parts *
              args.most_rank +
          i / kRows;
      sum = *from;
      MILLRACE_UNROLL_BY(4)
      for (int64_t part = 1; part < parts; ++part) {
        sum += from[part * args.most_rank];
      }
    }
    hidden[i] = __fmul_rn(factors.scale, sum);
  }
  __syncthreads();

  const int output = block_output + 8 * static_cast<int>(threadIdx.x);
  if (output >= place.outputs) return;
  const int64_t row_units = (place.outputs + 7) / 8;
  float sums[kRows][8] = {};
  MILLRACE_UNROLL_BY(4)
  for (int k = 0; k < factors.rank; ++k) {
    FactorUnit<kF32> b;
    b.Fetch(factors.b, k * row_units + output / 8);
    float w[8];
    b.Decode(w);
    const auto* h = reinterpret_cast<const float4*>(hidden + k * kRows);
    const float4 low = h[0], high = h[1];
    const float values[kRows] = {low.x,  low.y,  low.z,  low.w,
                                 high.x, high.y, high.z, high.w};
    MILLRACE_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row >= tile.count) continue;
      MILLRACE_UNROLL
      for (int i = 0; i < 8; ++i) {
        sums[row][i] = fmaf(values[row], w[i], sums[row][i]);
      }
    }
  }
  float* const first = args.y + place.first_output;
  const bool aligned = IsAligned(first, args.out_pitch);
  MILLRACE_UNROLL
  for (int row = 0; row < kRows; ++row) {
    if (row >= tile.count) continue;
    float* y = first + args.order[tile.first + row] * args.out_pitch;
    MILLRACE_UNROLL
    for (int i = 0; i < 8; i += 4) {
      float4 v = LoadFour(y, output + i, place.outputs, aligned);
      v.x = fmaf(args.scale, sums[row][i], v.x);
      v.y = fmaf(args.scale, sums[row][i + 1], v.y);
      v.z = fmaf(args.scale, sums[row][i + 2], v.z);
      v.w = fmaf(args.scale, sums[row][i + 3], v.w);
      StoreFour(y, output + i, place.outputs, aligned, v);
    }
  }
}

template <bool kF32>
int LaunchLora(Stream stream, const LoraArgs& args) {
  const auto targets = static_cast<unsigned>(args.num_targets);
  const auto tiles = static_cast<unsigned>(args.num_tiles);
  const auto chunks = static_cast<unsigned>(args.most_rank / kLoraRanks);
  const auto splits =
      static_cast<unsigned>(args.shares_splits ? LoraSplits(args.inputs) : 1);
  const int error = Launch(
      ShrinkKernel<kF32>, dim3(chunks * targets, tiles, splits), kShrinkThreads,
      kRows * kLoraSplitInputs * sizeof(float), stream, args);
  if (error != 0) return error;
  int32_t outputs = 0;
  for (const LoraArgs::Target& target : args.targets) {
    outputs = outputs > target.outputs ? outputs : target.outputs;
  }
  return Launch(ExpandKernel<kF32>,
                dim3(CeilDiv(outputs, kExpandOutputs), tiles, targets),
                kExpandThreads,
                static_cast<size_t>(args.most_rank) * kRows * sizeof(float),
                stream, args);
}

}  // namespace

int AddLora(Stream stream, const LoraArgs& args) {
  if (args.num_tiles == 0 || args.num_targets == 0) return 0;
  if (args.num_targets > kMostLoraTargets || args.most_rank > kMostLoraRank ||
      args.most_rank % kLoraRanks != 0 || args.inputs % 8 != 0) {
    return kInvalidValue;
  }
  return args.f32 ? LaunchLora<true>(stream, args)
                  : LaunchLora<false>(stream, args);
}

}  // namespace millrace::cuda
