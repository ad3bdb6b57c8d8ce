// What the kernels of paged attention share.
//
// A row's keys are cut by absolute position: tiles of a page, and splits of
// several tiles. A block takes (row, head) pairs of one sequence that share a
// kv head, so keys and values are read once for all of them. Scores are kept in
// units of log2, so weights are powers of two.
//
// Results of splits are joined in ascending order by the same operations,
// whether one block walks all of them or a merge joins what several blocks
// left. So how a step's work is cut does not show in a row's bits.
#pragma once

#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {

inline constexpr float kLog2E = 1.44269504f;
// 1 and 1 as f16: weights times these are their sum.
inline constexpr uint32_t kOnes = 0x3c003c00;

__device__ __forceinline__ float NegativeInfinity() { return -INFINITY; }

// Numbers that join a split's result to those before it: out = out * before +
// out_of_split * now.
struct Join {
  float before;
  float now;
};
// `m` is finite, `greatest` -infinity before the first split.
__device__ __forceinline__ Join JoinSplit(float m, float& greatest, float l,
                                          float& sum) {
  const float joined = fmaxf(greatest, m);
  const Join join{exp2f(greatest - joined), exp2f(m - joined)};
  sum = fmaf(l, join.now, __fmul_rn(sum, join.before));
  greatest = joined;
  return join;
}
__device__ __forceinline__ float Joined(const Join& join, float out,
                                        float of_split) {
  return fmaf(of_split, join.now, __fmul_rn(out, join.before));
}

// What weighted values are divided by: the sum of all weights, the sink's too.
__device__ __forceinline__ float Divisor(const AttendArgs& args, int64_t head,
                                         float greatest, float sum) {
  if (args.sinks == nullptr) return sum;
  return sum + exp2f(fmaf(args.sinks[head], kLog2E, -greatest));
}

// The pairs of a block: rows of an item times heads of a group, heads first.
struct Pairs {
  int first_row;
  int first_head;
  int heads;  // of each row
  int count;
  __device__ int Row(int pair) const { return first_row + pair / heads; }
  __device__ int Head(int pair) const { return first_head + pair % heads; }
};
// `most` pairs of a block; a row with a larger group is that of several blocks,
// `part` 0, 1, ...
__device__ __forceinline__ Pairs PairsOf(const AttendArgs& args,
                                         const AttendItem& item, int kv_head,
                                         int part, int most) {
  const int group = args.heads / args.kv.kv_heads;
  const int first_in_group = part * most;
  const int heads = min(group - first_in_group, most);
  return {item.first_row, kv_head * group + first_in_group, heads,
          item.num_rows * heads};
}

// The first key that a row at this position sees.
__device__ __forceinline__ int FirstSeen(const AttendArgs& args, int position) {
  if (args.window == 0) return 0;
  if (args.chunked) return position - position % args.window;
  return max(0, position - args.window + 1);
}

// Positions that any row of the item sees, [first, last], and those that each
// one sees, [first_of_all, last_of_all]; rows stand in order of position.
struct Seen {
  int first;
  int last;
  int first_of_all;
  int last_of_all;
};
__device__ __forceinline__ Seen SeenBy(const AttendArgs& args,
                                       const AttendItem& item) {
  const int first = args.row_positions[item.first_row];
  const int last = args.row_positions[item.first_row + item.num_rows - 1];
  return {FirstSeen(args, first), last, FirstSeen(args, last), first};
}

// Of one layer and kv head, in bytes: where key 0 of a page is; values are
// `to_values` behind, and each one's d, if they are int8, `to_scales` behind
// its key 0.
struct HeadAt {
  int64_t page_bytes;
  int64_t keys;
  int64_t to_values;
  int64_t to_scales;
  __device__ int64_t Page(int page) const { return page * page_bytes + keys; }
};
__device__ __forceinline__ HeadAt HeadOf(const AttendArgs& args, int kv_head) {
  const int64_t of_head = args.kv.head_bytes;
  const int64_t half_layer = args.kv.kv_heads * of_head;
  return {args.kv.page_bytes, 2 * args.layer * half_layer + kv_head * of_head,
          half_layer, int64_t{kPageRows} * args.kv.row_bytes};
}

// 2 to the x, within 2 ulp; 0 below 2^-126.
__device__ __forceinline__ float Exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// softcap * tanh(score / softcap), of and in units of log2.
__device__ __forceinline__ float CappedLog2(float score, float softcap) {
  const float cap = softcap * kLog2E;
  return cap * tanhf(score / cap);
}

// What the four warps of a block have of a split's four tiles, for the end of
// the split.
template <int kPairs, int kDim>
struct TileSums {
  // Two warps' pairs of a row's values are in different banks.
  static constexpr int kPitch = kDim + 8;
  float most[4][kPairs];
  float sum[4][kPairs];
  float values[kPairs][kPitch];
};

// A pair's result so far, of the splits that a block joins itself.
struct Total {
  float most;
  float sum;
};

// Joins the tiles of a split, which the four warps of a block have, and writes
// the split's result as a partial one, or joins it to `out`. Each warp has
// written its `most` (-infinity: it saw no key) and `sum`; add(factors_of, to,
// first) adds its values, times the factor of each pair, to `to`, or with
// `first` writes them there. Warp w ends pairs w, w + 4, ..., whose totals it
// keeps.
template <int kPairs, int kDim, class Add>
__device__ __forceinline__ void EndSplit(const AttendArgs& args,
                                         const AttendItem& item,
                                         const Pairs& pairs, int split,
                                         TileSums<kPairs, kDim>& tiles,
                                         Total (&totals)[kPairs / 4],
                                         const Add& add) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int dim = args.kv.head_dim;
  __syncthreads();
  const auto most_of = [&](int pair) {
    return fmaxf(fmaxf(tiles.most[0][pair], tiles.most[1][pair]),
                 fmaxf(tiles.most[2][pair], tiles.most[3][pair]));
  };
  const auto factor_of = [&](int tile, int pair, float most) {
    const float m = tiles.most[tile][pair];
    return isinf(m) ? 0.0f : exp2f(m - most);
  };
  for (int turn = 0; turn < 4; ++turn) {
    if (turn == warp) {
      add([&](int pair) { return factor_of(warp, pair, most_of(pair)); },
          tiles.values, turn == 0);
    }
    __syncthreads();
  }
  MILLRACE_UNROLL
  for (int n = 0; n < kPairs / 4; ++n) {
    const int pair = warp + 4 * n;
    if (pair >= pairs.count) continue;
    const float most = most_of(pair);
    float sum = 0;
    for (int tile = 0; tile < 4; ++tile) {
      sum = fmaf(tiles.sum[tile][pair], factor_of(tile, pair, most), sum);
    }
    const int64_t row = pairs.Row(pair);
    const int64_t head = pairs.Head(pair);
    if (item.partial >= 0) {
      const int64_t at =
          (item.partial + (row - item.first_row) * item.partial_step + split -
           item.first_split) *
              args.heads +
          head;
      for (int d = 2 * lane; d < dim; d += 64) {
        *reinterpret_cast<float2*>(args.partial_out + at * dim + d) =
            *reinterpret_cast<const float2*>(&tiles.values[pair][d]);
      }
      if (lane == 0) {
        args.partial_max[at] = most;
        args.partial_sum[at] = sum;
      }
      continue;
    }
    const bool first = isinf(totals[n].most);
    Join join{1, 0};  // a row that sees nothing of this split
    if (!isinf(most)) {
      join = JoinSplit(most, totals[n].most, sum, totals[n].sum);
    }
    const bool last = split == item.first_split + item.num_splits - 1;
    const float divisor = Divisor(args, head, totals[n].most, totals[n].sum);
    float* out = args.out + row * args.out_pitch + head * dim;
    for (int d = 2 * lane; d < dim; d += 64) {
      const float2 own =
          *reinterpret_cast<const float2*>(&tiles.values[pair][d]);
      float2* at = reinterpret_cast<float2*>(out + d);
      float2 joined = first ? float2{0, 0} : *at;
      joined.x = Joined(join, joined.x, own.x);
      joined.y = Joined(join, joined.y, own.y);
      if (last) {
        joined.x /= divisor;
        joined.y /= divisor;
      }
      *at = joined;
    }
  }
  __syncthreads();
}

// Each kernel's launch; Attend chooses.
int AttendF32(Stream stream, const AttendArgs& args);
int AttendRows(Stream stream, const AttendArgs& args);
int AttendPrompts(Stream stream, const AttendArgs& args);

}  // namespace millrace::cuda
