// Attention of prompts, pages of f16, on tensor cores, as FlashAttention-2 (Dao
// 2023) does it: many rows of one sequence, so its speed is that of the
// products.
//
// A block takes up to 128 (row, head) pairs, 32 a warp, through tiles of 64
// keys (with heads of more than 128 values 64, 16 and 32); keys and values of a
// tile go through shared memory once for all of them:
//
//   wait for keys, start the copying of values       scores
//   wait for values, start that of the next keys     weights, sums
//
// Sums are those of weights from the greatest score so far; when a greater one
// comes they are scaled. That chain is of a row alone: a tile of which a row
// sees nothing changes nothing. It starts anew in every split of 4096 keys.
#include "models/cuda/attention.cuh"
#include "models/cuda/tensor_core.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;

// kDim: head_dim, rounded up.
template <int kDim_>
struct Shape {
  static constexpr int kDim = kDim_;
  static constexpr int kFragments = kDim <= 128 ? 2 : 1;  // of 16 pairs, a warp
  static constexpr int kPairs = 16 * kFragments * kWarps;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;  // of a tile
  static constexpr int kUnits = kDim / 8;              // of 16 bytes, in a row
  static constexpr int kPitch = kUnits + 1;            // see CopyRows
};

template <class S>
struct Shared {
  uint4 queries[S::kPairs][S::kPitch];
  uint4 keys[S::kKeys][S::kPitch];
  uint4 values[S::kKeys][S::kPitch];
  float scale[S::kPairs];  // undoes that of queries
  int own[S::kPairs];      // the last key that a pair sees, and the first
  int first[S::kPairs];
  Total totals[S::kPairs];
};

// What a warp has of its pairs since the split began.
template <class S>
struct Sums {
  float out[S::kFragments][S::kDim / 8][4];
  float weights[S::kFragments][4];  // [0] of a pair, [2] of the other
  float most[S::kFragments][2];
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
// first key, own[0] the last key that its first pair sees, first_own[0] the
// first one.
template <class S>
__device__ __forceinline__ void HideScores(
    int position, const int* own, const int* first_own,
    float (&scores)[S::kFragments][S::kKeys / 8][4]) {
  MILLRACE_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    MILLRACE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int last = own[16 * f + 8 * r];
      const int first = first_own[16 * f + 8 * r];
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

// Ends a split: its result is a partial one, or joined to `out`.
template <class S>
__device__ __forceinline__ void EndSplit(const AttendArgs& args,
                                         const AttendItem& item,
                                         const Pairs& pairs, int split,
                                         int first_pair, const Sums<S>& sums,
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
      const float sum = sums.weights[f][2 * r];
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
          const int d = 8 * j + 2 * (lane % 4);
          if (!there || d >= dim) continue;
          *reinterpret_cast<float2*>(args.partial_out + at * dim + d) = {
              sums.out[f][j][2 * r], sums.out[f][j][2 * r + 1]};
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
        const int d = 8 * j + 2 * (lane % 4);
        if (!there || d >= dim) continue;
        auto* at = reinterpret_cast<float2*>(out + d);
        float2 joined = first ? float2{0, 0} : *at;
        joined.x = Joined(join, joined.x, sums.out[f][j][2 * r]);
        joined.y = Joined(join, joined.y, sums.out[f][j][2 * r + 1]);
        if (last) {
          joined.x /= divisor;
          joined.y /= divisor;
        }
        *at = joined;
      }
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) PromptsKernel(AttendArgs args) {
  using S = Shape<kDim>;
  constexpr int kKeys = S::kKeys;
  constexpr int kFragments = S::kFragments;
  const AttendItem item = args.prompt_items[blockIdx.y];
  if (item.num_rows == 0) return;
  auto& shared = *SharedMemory<Shared<S>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.x);
  const int dim = args.kv.head_dim;
  const Pairs pairs =
      PairsOf(args, item, kv_head, static_cast<int>(blockIdx.z), S::kPairs);
  const Seen seen = SeenBy(args, item);
  const HeadAt head = HeadOf(args, kv_head);

  if (dim != kDim) {
    // What no copy writes. Keys and values are one array, so to say.
    uint4* units = &shared.keys[0][0];
    for (int i = thread; i < 2 * kKeys * S::kPitch; i += kThreads) {
      units[i] = {0, 0, 0, 0};
    }
    __syncthreads();
  }
  const int tiles_of_split = kPromptSplitKeys / kKeys;
  const int begin = max(seen.first / kKeys, item.first_split * tiles_of_split);
  const int end = min(seen.last / kKeys + 1,
                      (item.first_split + item.num_splits) * tiles_of_split);
  const auto page_of = [&](int tile) {
    return args.pages[item.page_at + tile * kKeys / kPageRows];
  };
  const auto copy = [&](int64_t from, int position, auto& rows) {
    CopyRows<kKeys, S::kUnits, kThreads>(args.kv.base + 2 * from, dim, position,
                                         seen, thread, rows);
  };
  // Of the tile whose keys are copied, or are there.
  int64_t at = 0;
  const auto start_keys = [&](int tile, int page) {
    at = head.Page(page) + int64_t{tile * kKeys % kPageRows} * dim;
    copy(at, tile * kKeys, shared.keys);
  };
  int next_page = 0;  // of the tile behind, known before it is needed
  if (begin < end) {
    start_keys(begin, page_of(begin));
    if (begin + 1 < end) next_page = page_of(begin + 1);
  }
  CommitCopies();

  for (int pair = warp; pair < S::kPairs; pair += kWarps) {
    auto* out = reinterpret_cast<uint16_t*>(shared.queries[pair]);
    float scale = 1;
    if (pair < pairs.count) {
      scale = RoundQuery(args.q + pairs.Row(pair) * args.pitch +
                             int64_t{pairs.Head(pair)} * dim,
                         dim, kDim, out);
    } else {
      for (int d = lane; d < kDim; d += 32) out[d] = 0;
    }
    if (lane == 0) {
      shared.scale[pair] = scale;
      const int own =
          pair < pairs.count ? args.row_positions[pairs.Row(pair)] : -1;
      shared.own[pair] = own;
      shared.first[pair] = FirstSeen(args, max(own, 0));
      shared.totals[pair] = {NegativeInfinity(), 0};
    }
  }
  __syncthreads();

  const int first_pair = warp * 16 * kFragments;
  // What the warp's rows see: any of them [first_seen, last_seen], all of them
  // [first_of_all, last_of_all].
  int last_seen = -1, first_seen = 0, first_of_all = 0, last_of_all = 0;
  if (first_pair < pairs.count) {
    const int last_pair = min(first_pair + 16 * kFragments, pairs.count) - 1;
    last_of_all = args.row_positions[pairs.Row(first_pair)];
    last_seen = args.row_positions[pairs.Row(last_pair)];
    first_seen = FirstSeen(args, last_of_all);
    first_of_all = FirstSeen(args, last_seen);
  }

  Sums<S> sums;
  sums.Clear();
  for (int tile = begin; tile < end; ++tile) {
    const int first = tile * kKeys;
    const bool seen_by_warp = first <= last_seen && first + kKeys > first_seen;
    WaitCopies<0>();
    __syncthreads();  // keys are there; all have read the values before
    copy(at + head.to_values, first, shared.values);
    CommitCopies();
    float scores[kFragments][kKeys / 8][4] = {};
    if (seen_by_warp) {
      const uint4* queries = &shared.queries[first_pair + lane % 16][lane / 16];
      const uint4* keys = &shared.keys[lane % 8 + lane / 16 * 8][lane / 8 % 2];
      MILLRACE_UNROLL
      for (int k = 0; k < kDim / 16; ++k) {
        uint32_t q[kFragments][4];
        MILLRACE_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          LoadFragments<false>(queries + 16 * f * S::kPitch + 2 * k, q[f]);
        }
        MILLRACE_UNROLL
        for (int j = 0; j < kKeys / 16; ++j) {
          uint32_t w[4];
          LoadFragments<false>(keys + 16 * j * S::kPitch + 2 * k, w);
          MILLRACE_UNROLL
          for (int f = 0; f < kFragments; ++f) {
            MultiplyFragment<false>(q[f], w, scores[f][2 * j]);
            MultiplyFragment<false>(q[f], w + 2, scores[f][2 * j + 1]);
          }
        }
      }
    }
    WaitCopies<0>();
    __syncthreads();  // values are there; all have read these keys
    if (tile + 1 < end) {
      start_keys(tile + 1, next_page);
      if (tile + 2 < end) next_page = page_of(tile + 2);
    }
    CommitCopies();

    if (seen_by_warp) {
      const bool all_see =
          first >= first_of_all && first + kKeys - 1 <= last_of_all;
      // Of the lane's pairs: scores as they are used, and of which they are so
      // many units of log2.
      const int lane_pair = first_pair + lane / 4;
      float factor[kFragments][2];
      MILLRACE_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        MILLRACE_UNROLL
        for (int r = 0; r < 2; ++r) {
          factor[f][r] = shared.scale[lane_pair + 16 * f + 8 * r] * kLog2E;
        }
      }
      if (args.softcap > 0) {
        CapScores<S>(args.softcap, factor, scores);
      }
      if (!all_see) {
        HideScores<S>(first + 2 * (lane % 4), &shared.own[lane_pair],
                      &shared.first[lane_pair], scores);
      }
      float before[kFragments][2];  // of the sums so far
      bool scales = false;
      MILLRACE_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        MILLRACE_UNROLL
        for (int r = 0; r < 2; ++r) {
          float most = NegativeInfinity();
          MILLRACE_UNROLL
          for (int j = 0; j < kKeys / 8; ++j) {
            most = fmaxf(most,
                         fmaxf(scores[f][j][2 * r], scores[f][j][2 * r + 1]));
          }
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
          most = fmaxf(__fmul_rn(most, factor[f][r]), sums.most[f][r]);
          before[f][r] = Exp2(sums.most[f][r] - Finite(most));
          scales = scales || before[f][r] != 1;
          sums.most[f][r] = most;
        }
      }
      // Times 1 is nothing, so it does not show whether a row's neighbours need
      // it.
      if (__ballot_sync(kAllLanes, scales ? 1 : 0) != 0) {
        MILLRACE_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            sums.weights[f][i] =
                __fmul_rn(sums.weights[f][i], before[f][i / 2]);
            MILLRACE_UNROLL
            for (int j = 0; j < kDim / 8; ++j) {
              sums.out[f][j][i] =
                  __fmul_rn(sums.out[f][j][i], before[f][i / 2]);
            }
          }
        }
      }
      const uint4* values = &shared.values[lane % 16][lane / 16];
      MILLRACE_UNROLL
      for (int k = 0; k < kKeys / 16; ++k) {
        uint32_t weights[kFragments][4];
        MILLRACE_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            const float* pair = &scores[f][2 * k + i / 2][i % 2 * 2];
            const float from = -Finite(sums.most[f][i % 2]);
            weights[f][i] =
                HalfPair(Exp2(fmaf(pair[0], factor[f][i % 2], from)),
                         Exp2(fmaf(pair[1], factor[f][i % 2], from)));
          }
          const uint32_t ones[2] = {kOnes, kOnes};
          MultiplyFragment<false>(weights[f], ones, sums.weights[f]);
        }
        MILLRACE_UNROLL
        for (int d = 0; d < kDim / 16; ++d) {
          uint32_t w[4];
          LoadFragments<true>(values + 16 * k * S::kPitch + 2 * d, w);
          MILLRACE_UNROLL
          for (int f = 0; f < kFragments; ++f) {
            MultiplyFragment<false>(weights[f], w, sums.out[f][2 * d]);
            MultiplyFragment<false>(weights[f], w + 2, sums.out[f][2 * d + 1]);
          }
        }
      }
    }
    if (tile + 1 == end || (tile + 1) % tiles_of_split == 0) {
      EndSplit<S>(args, item, pairs, tile / tiles_of_split, first_pair, sums,
                  shared.totals);
      sums.Clear();
    }
  }
}

template <int kDim>
int LaunchPrompts(Stream stream, const AttendArgs& args) {
  const int group = args.heads / args.kv.kv_heads;
  return Launch(PromptsKernel<kDim>,
                dim3(static_cast<unsigned>(args.kv.kv_heads),
                     static_cast<unsigned>(args.num_prompt_items),
                     CeilDiv(group, Shape<kDim>::kPairs)),
                kThreads, sizeof(Shared<Shape<kDim>>), stream, args);
}

}  // namespace

int AttendPrompts(Stream stream, const AttendArgs& args) {
  const int dim = args.kv.head_dim;
  return dim <= 64    ? LaunchPrompts<64>(stream, args)
         : dim <= 96  ? LaunchPrompts<96>(stream, args)
         : dim <= 128 ? LaunchPrompts<128>(stream, args)
                      : LaunchPrompts<256>(stream, args);
}

}  // namespace millrace::cuda
