// Attention of prompts, pages of f16 or int8, on tensor cores, as
// FlashAttention-2 (Dao 2023) does it: many rows of one sequence, so its speed
// is that of the products.
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
//
// d of int8 keys multiply scores. Those of values multiply weights before they
// become f16, by a power of two that grows with the greatest so far; weights
// are added in f32 then.
#include <type_traits>

#include "models/cuda/prompt_sums.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;

template <int kDim, bool kInt8>
struct Shape : PageShape<kDim, kInt8> {
  static constexpr int kFragments = kDim <= 128 ? 2 : 1;  // of 16 pairs, a warp
  static constexpr int kPairs = 16 * kFragments * kWarps;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;  // of a tile
};

// d of a tile.
template <int kKeys>
struct TileScales {
  alignas(16) float keys[kKeys];
  alignas(16) float values[kKeys];
};
struct NoScales {};

template <class S>
struct Shared {
  uint4 queries[S::kPairs][S::kQueryPitch];
  uint4 keys[S::kKeys][S::kPitch];
  uint4 values[S::kKeys][S::kPitch];
  float scale[S::kPairs];  // undoes that of queries
  int own[S::kPairs];      // the last key that a pair sees
  Total totals[S::kPairs];
  std::conditional_t<S::kInt8, TileScales<S::kKeys>, NoScales> scales;
};

template <int kDim, bool kInt8>
__global__ void __launch_bounds__(kThreads, 2) PromptsKernel(AttendArgs args) {
  using S = Shape<kDim, kInt8>;
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

  // Keys and values are one array, so to say.
  if (ClearRows<S, kThreads>(&shared.keys[0][0], 2 * kKeys * S::kPitch, dim,
                             thread)) {
    __syncthreads();
  }
  const int tiles_of_split = kPromptSplitKeys / kKeys;
  const int begin = max(seen.first / kKeys, item.first_split * tiles_of_split);
  const int end = min(seen.last / kKeys + 1,
                      (item.first_split + item.num_splits) * tiles_of_split);
  const auto page_of = [&](int tile) {
    return args.pages[item.page_at + tile * kKeys / kPageRows];
  };
  // Of the tile whose keys are copied, or are there: its page, of values
  // `to_values` behind it.
  int64_t at = 0;
  const auto copy = [&](int64_t page, int tile, auto& rows) {
    const int first = tile * kKeys % kPageRows;
    CopyRows<kKeys, S::kUnits, kThreads>(
        args.kv.base + page + int64_t{first} * args.kv.row_bytes,
        args.kv.row_bytes, tile * kKeys, seen, thread, rows);
  };
  const auto copy_scales = [&](int64_t page, int tile, auto& scales) {
    const int first = tile * kKeys % kPageRows;
    CopyScales<kKeys, kThreads>(
        args.kv.base + page + head.to_scales + 4 * first, tile * kKeys, seen,
        thread, scales);
  };
  const auto start_keys = [&](int tile, int page) {
    at = head.Page(page);
    copy(at, tile, shared.keys);
    if constexpr (kInt8) copy_scales(at, tile, shared.scales.keys);
  };
  const auto start_values = [&](int tile) {
    copy(at + head.to_values, tile, shared.values);
    if constexpr (kInt8) {
      copy_scales(at + head.to_values, tile, shared.scales.values);
    }
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
      scale = RoundQuery<S>(args.q + pairs.Row(pair) * args.pitch +
                                int64_t{pairs.Head(pair)} * dim,
                            dim, out);
    } else {
      for (int d = lane; d < kDim; d += 32) out[d] = 0;
    }
    if (lane == 0) {
      shared.scale[pair] = scale;
      shared.own[pair] =
          pair < pairs.count ? args.row_positions[pairs.Row(pair)] : -1;
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

  PromptSums<S> sums;
  sums.Clear();
  for (int tile = begin; tile < end; ++tile) {
    const int first = tile * kKeys;
    const bool seen_by_warp = first <= last_seen && first + kKeys > first_seen;
    WaitCopies<0>();
    __syncthreads();  // keys are there; all have read the values before
    start_values(tile);
    CommitCopies();
    float scores[kFragments][kKeys / 8][4] = {};
    if (seen_by_warp) {
      const uint4* queries = &shared.queries[first_pair + lane % 16][lane / 16];
      const uint4* keys = &shared.keys[lane % 8 + lane / 16 * 8][lane / 8 % 2];
      MILLRACE_UNROLL
      for (int k = 0; k < kDim / 16 / S::kSteps; ++k) {
        uint32_t q[S::kSteps][kFragments][4];
        MILLRACE_UNROLL
        for (int step = 0; step < S::kSteps; ++step) {
          MILLRACE_UNROLL
          for (int f = 0; f < kFragments; ++f) {
            LoadFragments<false>(
                queries + 16 * f * S::kQueryPitch + 2 * (S::kSteps * k + step),
                q[step][f]);
          }
        }
        MILLRACE_UNROLL
        for (int j = 0; j < kKeys / 16; ++j) {
          uint32_t w[S::kSteps][4];
          LoadKeys<S>(keys + 16 * j * S::kPitch, k, w);
          MILLRACE_UNROLL
          for (int step = 0; step < S::kSteps; ++step) {
            MILLRACE_UNROLL
            for (int f = 0; f < kFragments; ++f) {
              MultiplyFragment<false>(q[step][f], w[step], scores[f][2 * j]);
              MultiplyFragment<false>(q[step][f], w[step] + 2,
                                      scores[f][2 * j + 1]);
            }
          }
        }
      }
      if constexpr (kInt8) {
        MILLRACE_UNROLL
        for (int j = 0; j < kKeys / 8; ++j) {
          float of_keys[2];
          LoadPair(&shared.scales.keys[8 * j + 2 * (lane % 4)], of_keys);
          MILLRACE_UNROLL
          for (int f = 0; f < kFragments; ++f) {
            MILLRACE_UNROLL
            for (int i = 0; i < 4; ++i) scores[f][j][i] *= of_keys[i % 2];
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
        HideScores<S>(args, first + 2 * (lane % 4), &shared.own[lane_pair],
                      scores);
      }
      float before[kFragments][2];  // of the sums so far
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
          sums.most[f][r] = most;
        }
      }
      float rescale[kFragments][2];  // of `out`
      MILLRACE_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        rescale[f][0] = before[f][0];
        rescale[f][1] = before[f][1];
      }
      if constexpr (kInt8) {
        WeighValues<S>(&shared.scales.values[2 * (lane % 4)], factor, before,
                       sums, scores, rescale);
      }
      bool scales = false;
      MILLRACE_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        scales = scales || rescale[f][0] != 1 || rescale[f][1] != 1;
      }
      // Times 1 is nothing, so it does not show whether a row's neighbours need
      // it.
      if (__ballot_sync(kAllLanes, scales ? 1 : 0) != 0) {
        MILLRACE_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            if (!kInt8) {
              sums.weights[f][i] =
                  __fmul_rn(sums.weights[f][i], before[f][i / 2]);
            }
            MILLRACE_UNROLL
            for (int j = 0; j < kDim / 8; ++j) {
              sums.out[f][j][i] =
                  __fmul_rn(sums.out[f][j][i], rescale[f][i / 2]);
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
                kInt8 ? HalfPair(pair[0], pair[1])
                      : HalfPair(Exp2(fmaf(pair[0], factor[f][i % 2], from)),
                                 Exp2(fmaf(pair[1], factor[f][i % 2], from)));
          }
          const uint32_t ones[2] = {kOnes, kOnes};
          if (!kInt8) {
            MultiplyFragment<false>(weights[f], ones, sums.weights[f]);
          }
        }
        MILLRACE_UNROLL
        for (int d = 0; d < kDim / 8 / S::kOutputs; ++d) {
          uint32_t w[S::kOutputs][2];
          LoadValues<S>(values + 16 * k * S::kPitch, d, w);
          MILLRACE_UNROLL
          for (int n = 0; n < S::kOutputs; ++n) {
            MILLRACE_UNROLL
            for (int f = 0; f < kFragments; ++f) {
              MultiplyFragment<false>(weights[f], w[n],
                                      sums.out[f][S::kOutputs * d + n]);
            }
          }
        }
      }
    }
    if (tile + 1 == end || (tile + 1) % tiles_of_split == 0) {
      EndPromptSplit<S>(args, item, pairs, tile / tiles_of_split, first_pair,
                        sums, shared.totals);
      sums.Clear();
    }
  }
}

template <int kDim, bool kInt8>
int LaunchPrompts(Stream stream, const AttendArgs& args) {
  const int group = args.heads / args.kv.kv_heads;
  return Launch(PromptsKernel<kDim, kInt8>,
                dim3(static_cast<unsigned>(args.kv.kv_heads),
                     static_cast<unsigned>(args.num_prompt_items),
                     CeilDiv(group, Shape<kDim, kInt8>::kPairs)),
                kThreads, sizeof(Shared<Shape<kDim, kInt8>>), stream, args);
}

template <bool kInt8>
int LaunchPrompts(Stream stream, const AttendArgs& args) {
  const int dim = args.kv.head_dim;
  return dim <= 64    ? LaunchPrompts<64, kInt8>(stream, args)
         : dim <= 96  ? LaunchPrompts<96, kInt8>(stream, args)
         : dim <= 128 ? LaunchPrompts<128, kInt8>(stream, args)
                      : LaunchPrompts<256, kInt8>(stream, args);
}

}  // namespace

int AttendPrompts(Stream stream, const AttendArgs& args) {
  return args.kv.format == KvFormat::kInt8 ? LaunchPrompts<true>(stream, args)
                                           : LaunchPrompts<false>(stream, args);
}

}  // namespace millrace::cuda
