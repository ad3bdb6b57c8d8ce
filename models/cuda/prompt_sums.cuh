// What a warp does with scores of prompts, and the sums it has of its pairs.
// S: the shape of attention_prompts.cu.
#pragma once

#include "models/cuda/attention_tensor.cuh"

namespace millrace::cuda {

// What a warp has of its pairs since the split began.
template <class S>
struct PromptSums {
  float out[S::kFragments][S::kDim / 8][4];
  // [0] of a pair, [2] of the other. With int8 of the lane's own keys.
  float weights[S::kFragments][4];
  float most[S::kFragments][2];
  float unit[S::kFragments][2];  // with int8 `out` is so much less
  __device__ __forceinline__ void Clear() {
    MILLRACE_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      MILLRACE_UNROLL
      for (int j = 0; j < S::kDim / 8; ++j) {
        MILLRACE_UNROLL
        for (int i = 0; i < 4; ++i) out[f][j][i] = 0;
      }
      MILLRACE_UNROLL
      for (int i = 0; i < 4; ++i) weights[f][i] = 0;
      most[f][0] = most[f][1] = NegativeInfinity();
      unit[f][0] = unit[f][1] = 0;
    }
  }
};

// -infinity, of a row that has seen no key yet, as 0.
__device__ __forceinline__ float Finite(float most) {
  return isinf(most) ? 0.0f : most;
}

// scores = softcap of scores, which are so many units of log2 then. Not in the
// loop of those without.
template <class S>
__device__ __forceinline__ void CapScores(
    float softcap, float (&factor)[S::kFragments][2],
    float (&scores)[S::kFragments][S::kKeys / 8][4]) {
  MILLRACE_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    MILLRACE_UNROLL
    for (int j = 0; j < S::kKeys / 8; ++j) {
      MILLRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[f][j][i] =
            CappedLog2(scores[f][j][i] * factor[f][i / 2], softcap);
      }
    }
    factor[f][0] = factor[f][1] = 1;
  }
}

// -infinity where a pair does not see a key. `position` is that of the lane's
// first key, own[0] the last key that its first pair sees.
template <class S>
__device__ __forceinline__ void HideScores(
    const AttendArgs& args, int position, const int* own,
    float (&scores)[S::kFragments][S::kKeys / 8][4]) {
  MILLRACE_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    MILLRACE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int last = own[16 * f + 8 * r];
      const int first = FirstSeen(args, max(last, 0));
      MILLRACE_UNROLL
      for (int j = 0; j < S::kKeys / 8; ++j) {
        MILLRACE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int key = position + 8 * j + i;
          if (key > last || key < first) {
            scores[f][j][2 * r + i] = NegativeInfinity();
          }
        }
      }
    }
  }
}

// Scores become weights times d of their values. What comes to the sums is
// scaled by: weights in `before`, which there is of the greatest score, and
// `out` in `rescale`.
template <class S>
__device__ __forceinline__ void WeighValues(
    const float* of_tile, const float (&factor)[S::kFragments][2],
    const float (&before)[S::kFragments][2], PromptSums<S>& sums,
    float (&scores)[S::kFragments][S::kKeys / 8][4],
    float (&rescale)[S::kFragments][2]) {
  MILLRACE_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    float added[2] = {};
    float greatest[2] = {};
    MILLRACE_UNROLL
    for (int j = 0; j < S::kKeys / 8; ++j) {
      float of_values[2];
      LoadPair(of_tile + 8 * j, of_values);
      MILLRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float weight = Exp2(fmaf(scores[f][j][i], factor[f][i / 2],
                                       -Finite(sums.most[f][i / 2])));
        added[i / 2] += weight;
        scores[f][j][i] = __fmul_rn(weight, of_values[i % 2]);
        greatest[i / 2] = fmaxf(greatest[i / 2], scores[f][j][i]);
      }
    }
    MILLRACE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = greatest[r];
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      const float unit = fmaxf(sums.unit[f][r], PowerBelow(most));
      const float inverse = InverseOfPower(unit);
      rescale[f][r] = before[f][r] * (sums.unit[f][r] * inverse);
      sums.unit[f][r] = unit;
      sums.weights[f][2 * r] =
          fmaf(sums.weights[f][2 * r], before[f][r], added[r]);
      MILLRACE_UNROLL
      for (int j = 0; j < S::kKeys / 8; ++j) {
        scores[f][j][2 * r] *= inverse;
        scores[f][j][2 * r + 1] *= inverse;
      }
    }
  }
}

// Ends a split: its result is a partial one, or joined to `out`.
template <class S>
__device__ __forceinline__ void EndPromptSplit(const AttendArgs& args,
                                               const AttendItem& item,
                                               const Pairs& pairs, int split,
                                               int first_pair,
                                               const PromptSums<S>& sums,
                                               Total (&totals)[S::kPairs]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = args.kv.head_dim;
  const bool last = split == item.first_split + item.num_splits - 1;
  MILLRACE_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    MILLRACE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int pair = first_pair + 16 * f + 8 * r + lane / 4;
      const bool there = pair < pairs.count;
      const int64_t row = there ? pairs.Row(pair) : 0;
      const int64_t head = there ? pairs.Head(pair) : 0;
      const float most = sums.most[f][r];
      float sum = sums.weights[f][2 * r];
      float unit = 1;
      if (S::kInt8) {
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        unit = sums.unit[f][r];
      }
      const auto pair_at = [&](int j) {
        float2 both = PairAt<S>(sums.out[f], j, r);
        if (S::kInt8) both = {both.x * unit, both.y * unit};
        return both;
      };
      if (item.partial >= 0) {
        const int64_t at =
            (item.partial + (row - item.first_row) * item.partial_step + split -
             item.first_split) *
                args.heads +
            head;
        if (there && lane % 4 == 0) {
          args.partial_max[at] = most;
          args.partial_sum[at] = sum;
        }
        MILLRACE_UNROLL
        for (int j = 0; j < S::kDim / 8; ++j) {
          const int d = NumberAt<S>(j, lane);
          if (!there || d >= dim) continue;
          *reinterpret_cast<float2*>(args.partial_out + at * dim + d) =
              pair_at(j);
        }
        continue;
      }
      Total total = totals[pair];
      const bool first = isinf(total.most);
      Join join{1, 0};  // a row that sees nothing of this split
      if (!isinf(most)) join = JoinSplit(most, total.most, sum, total.sum);
      __syncwarp();
      if (lane % 4 == 0) totals[pair] = total;
      __syncwarp();
      const float divisor = Divisor(args, head, total.most, total.sum);
      float* out = args.out + row * args.out_pitch + head * dim;
      MILLRACE_UNROLL
      for (int j = 0; j < S::kDim / 8; ++j) {
        const int d = NumberAt<S>(j, lane);
        if (!there || d >= dim) continue;
        auto* at = reinterpret_cast<float2*>(out + d);
        float2 joined = first ? float2{0, 0} : *at;
        const float2 own = pair_at(j);
        joined.x = Joined(join, joined.x, own.x);
        joined.y = Joined(join, joined.y, own.y);
        if (last) {
          joined.x /= divisor;
          joined.y /= divisor;
        }
        *at = joined;
      }
    }
  }
}

}  // namespace millrace::cuda
