// Attention of a few rows behind many keys, pages of f16 or int8, on tensor
// cores: completions. Its speed is that of reading keys and values.
//
// A block takes up to 16 (row, head) pairs, the rows of a fragment, through
// splits of 256 keys. Each of its four warps has one tile of 64 keys, a page,
// of every split, and reads it for itself through a ring of chunks of 16 keys
// that are copied while others are multiplied:
//
//   keys     4 chunks   scores of 16 pairs x 64 keys
//            weights    exp2(score - greatest of the tile), as f16
//   values   4 chunks   sums of weights x values, and of weights
//
// d of int8 keys multiply scores. Those of values multiply weights before they
// become f16, by a power of two of the row, which the sums get back; weights
// are added in f32 then.
//
// Then the four tiles are joined (attention.cuh). A sum is one chain of `mma`,
// and whatever stands beside a pair in the fragment is not in it.
#include <type_traits>

#include "models/cuda/attention_tensor.cuh"

namespace millrace::cuda {
namespace {

constexpr int kPairs = 16;
constexpr int kWarps = 4;
constexpr int kChunkKeys = 16;
constexpr int kChunks = kPageRows / kChunkKeys;
static_assert(kSplitKeys == kWarps * kPageRows);

template <int kDim, bool kInt8>
struct Shape : PageShape<kDim, kInt8> {
  // Chunks of a ring. So much that loads of all blocks of a multiprocessor
  // cover the time that memory takes, in 99 KB.
  static constexpr int kSlots = (kDim <= 64    ? 4
                                 : kDim <= 128 ? 3
                                               : 2)
                                << (kInt8 ? 1 : 0);
  // Blocks of a multiprocessor that registers are kept for.
  static constexpr int kBlocks = kDim <= 64 ? 4 : kDim <= 128 ? 3 : 2;
};

// d of a warp's tile, and of the one behind it whose copying has begun.
struct TileScales {
  alignas(16) float keys[2][kPageRows];
  alignas(16) float values[2][kPageRows];
};
struct NoScales {};

template <class S>
struct Shared {
  uint4 queries[kPairs][S::kQueryPitch];
  uint4 ring[kWarps][S::kSlots][kChunkKeys][S::kPitch];
  TileSums<kPairs, S::kDim> tiles;
  float scale[kPairs];  // undoes that of queries
  std::conditional_t<S::kInt8, TileScales, NoScales> scales[kWarps];
};

// The chunks of a warp's tiles, one after the other into its ring: keys, then
// values. Tiles are those of splits [begin, end).
template <class S>
class Loader {
 public:
  using Ring = uint4[S::kSlots][kChunkKeys][S::kPitch];

  __device__ Loader(const AttendArgs& args, const AttendItem& item,
                    const Seen& seen, int kv_head, int warp, Shared<S>& shared)
      : args_(args),
        seen_(seen),
        head_(HeadOf(args, kv_head)),
        ring_(shared.ring[warp]),
        scales_(shared.scales[warp]) {
    const int first_page = seen.first / kPageRows;
    const int last_page = seen.last / kPageRows;
    begin = max(item.first_split, (first_page - warp + kWarps - 1) / kWarps);
    end = min(item.first_split + item.num_splits,
              (last_page - warp + kWarps) / kWarps);
    chunks_ = 2 * kChunks * max(0, end - begin);
    page_ = kWarps * begin + warp;
    pages_ = args.pages + item.page_at;
    if (chunks_ > 0) next_id_ = pages_[page_];
  }

  // Starts the copying of the next chunk; behind the last one of nothing.
  __device__ void Start() {
    if (at_ < chunks_) {
      const int part = at_ % (2 * kChunks);
      if (part == 0) {
        if (at_ > 0) page_ += kWarps;
        keys_ = head_.Page(next_id_);
        // Known long before it is needed.
        if (at_ + 2 * kChunks < chunks_) next_id_ = pages_[page_ + kWarps];
        if constexpr (S::kInt8) StartScales(at_ / (2 * kChunks) % 2);
      }
      const int first = part % kChunks * kChunkKeys;
      const int position = page_ * kPageRows + first;
      if (position <= seen_.last && position + kChunkKeys > seen_.first) {
        const int64_t from = keys_ + (part >= kChunks ? head_.to_values : 0) +
                             int64_t{first} * args_.kv.row_bytes;
        CopyRows<kChunkKeys, S::kUnits, 32>(
            args_.kv.base + from, args_.kv.row_bytes, position, seen_,
            static_cast<int>(threadIdx.x) % 32, ring_[slot_]);
      }
      slot_ = slot_ + 1 == S::kSlots ? 0 : slot_ + 1;
    }
    CommitCopies();
    ++at_;
  }

  int begin;
  int end;

 private:
  // With the first chunk of a tile. The tile before the last one has been
  // multiplied by then.
  __device__ void StartScales(int buffer) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::byte* keys = args_.kv.base + keys_ + head_.to_scales;
    CopyScales<kPageRows, 32>(keys, page_ * kPageRows, seen_, lane,
                              scales_.keys[buffer]);
    CopyScales<kPageRows, 32>(keys + head_.to_values, page_ * kPageRows, seen_,
                              lane, scales_.values[buffer]);
  }

  const AttendArgs& args_;
  const Seen& seen_;
  const HeadAt head_;
  Ring& ring_;
  std::conditional_t<S::kInt8, TileScales, NoScales>& scales_;
  const int32_t* pages_;
  int chunks_;
  int at_ = 0;
  int slot_ = 0;
  int page_;  // of the tile that is copied
  int next_id_ = 0;
  int64_t keys_ = 0;
};

template <int kDim, bool kInt8>
__global__ void __launch_bounds__(kWarps * 32, Shape<kDim, kInt8>::kBlocks)
    RowsKernel(AttendArgs args) {
  using S = Shape<kDim, kInt8>;
  constexpr int kPitch = S::kPitch;
  constexpr int kSlots = S::kSlots;
  const AttendItem item = args.items[blockIdx.x];
  if (item.num_rows == 0) return;
  auto& shared = *SharedMemory<Shared<S>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int dim = args.kv.head_dim;
  const Pairs pairs =
      PairsOf(args, item, kv_head, static_cast<int>(blockIdx.z), kPairs);
  const Seen seen = SeenBy(args, item);

  auto& ring = shared.ring[warp];
  if (ClearRows<S, 32>(&ring[0][0][0], kSlots * kChunkKeys * kPitch, dim,
                       lane)) {
    __syncwarp();
  }
  Loader<S> loader(args, item, seen, kv_head, warp, shared);
  for (int i = 0; i + 1 < kSlots; ++i) loader.Start();

  for (int pair = warp; pair < kPairs; pair += kWarps) {
    auto* out = reinterpret_cast<uint16_t*>(shared.queries[pair]);
    float scale = 1;
    if (pair < pairs.count) {
      scale = RoundQuery<S>(args.q + pairs.Row(pair) * args.pitch +
                                int64_t{pairs.Head(pair)} * dim,
                            dim, out);
    } else {
      for (int d = lane; d < kDim; d += 32) out[d] = 0;
    }
    if (lane == 0) shared.scale[pair] = scale;
  }
  __syncthreads();

  // Of the lane's two pairs, as rows of fragments.
  const int own_pairs[2] = {lane / 4, lane / 4 + 8};
  float scale[2];  // of scores, to units of log2
  int own[2];      // the last key that it sees, and the first
  int from[2];
  for (int r = 0; r < 2; ++r) {
    const int pair = own_pairs[r];
    scale[r] = shared.scale[pair] * kLog2E;
    own[r] = pair < pairs.count ? args.row_positions[pairs.Row(pair)] : -1;
    from[r] = FirstSeen(args, max(own[r], 0));
  }
  const auto sees = [&](int r, int position) {
    return position <= own[r] && position >= from[r];
  };
  Total totals[kPairs / 4];
  for (Total& total : totals) total = {NegativeInfinity(), 0};

  int slot = 0;
  // Waits for the next chunk and starts another; where it is.
  const auto next = [&] {
    WaitCopies<kSlots - 2>();
    __syncwarp();
    loader.Start();
    const uint4* at = &ring[slot][0][0];
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    return at;
  };

  for (int split = item.first_split; split < item.first_split + item.num_splits;
       ++split) {
    const int first = split * kSplitKeys + warp * kPageRows;
    float out[kDim / 8][4] = {};
    float most[2] = {NegativeInfinity(), NegativeInfinity()};
    float sums[4] = {};      // of weights: [0] of one pair, [2] of the other
    float unit[2] = {1, 1};  // `out` is so much less
    if (split >= loader.begin && split < loader.end) {
      const auto any_sees = [&](int chunk) {
        const int position = first + chunk * kChunkKeys;
        return position <= seen.last && position + kChunkKeys > seen.first;
      };
      float scores[kPageRows / 8][4] = {};
      MILLRACE_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const uint4* keys = next();
        if (!any_sees(chunk)) continue;
        keys += (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2;
        const uint4* queries =
            &shared.queries[0][0] + lane % 16 * S::kQueryPitch + lane / 16;
        MILLRACE_UNROLL
        for (int k = 0; k < kDim / 16 / S::kSteps; ++k) {
          uint32_t w[S::kSteps][4];
          LoadKeys<S>(keys, k, w);
          MILLRACE_UNROLL
          for (int step = 0; step < S::kSteps; ++step) {
            uint32_t q[4];
            LoadFragments<false>(queries + 2 * (S::kSteps * k + step), q);
            MultiplyFragment<false>(q, w[step], scores[2 * chunk]);
            MultiplyFragment<false>(q, w[step] + 2, scores[2 * chunk + 1]);
          }
        }
      }

      const bool all_see = first >= seen.first_of_all &&
                           first + kPageRows - 1 <= seen.last_of_all;
      const int buffer = (split - loader.begin) % 2;
      MILLRACE_UNROLL
      for (int j = 0; j < kPageRows / 8; ++j) {
        float of_keys[2] = {1, 1};
        if constexpr (kInt8) {
          LoadPair(&shared.scales[warp].keys[buffer][8 * j + 2 * (lane % 4)],
                   of_keys);
        }
        MILLRACE_UNROLL
        for (int i = 0; i < 4; ++i) {
          scores[j][i] *= scale[i / 2] * of_keys[i % 2];
        }
      }
      if (args.softcap > 0) {
        MILLRACE_UNROLL
        for (int j = 0; j < kPageRows / 8; ++j) {
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            scores[j][i] = CappedLog2(scores[j][i], args.softcap);
          }
        }
      }
      if (!all_see) {
        MILLRACE_UNROLL
        for (int j = 0; j < kPageRows / 8; ++j) {
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int position = first + 8 * j + 2 * (lane % 4) + i % 2;
            if (!sees(i / 2, position)) scores[j][i] = NegativeInfinity();
          }
        }
      }
      MILLRACE_UNROLL
      for (int j = 0; j < kPageRows / 8; ++j) {
        MILLRACE_UNROLL
        for (int i = 0; i < 4; ++i) {
          most[i / 2] = fmaxf(most[i / 2], scores[j][i]);
        }
      }
      float base[2];
      for (int r = 0; r < 2; ++r) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(kAllLanes, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(kAllLanes, most[r], 2));
        base[r] = isinf(most[r]) ? 0.0f : most[r];
      }
      if constexpr (kInt8) {
        float greatest[2] = {0, 0};
        MILLRACE_UNROLL
        for (int j = 0; j < kPageRows / 8; ++j) {
          float of_values[2];
          LoadPair(&shared.scales[warp].values[buffer][8 * j + 2 * (lane % 4)],
                   of_values);
          MILLRACE_UNROLL
          for (int i = 0; i < 4; ++i) {
            const float weight = Exp2(scores[j][i] - base[i / 2]);
            sums[i / 2 * 2] += weight;
            scores[j][i] = __fmul_rn(weight, of_values[i % 2]);
            greatest[i / 2] = fmaxf(greatest[i / 2], scores[j][i]);
          }
        }
        MILLRACE_UNROLL
        for (int r = 0; r < 2; ++r) {
          sums[2 * r] += __shfl_xor_sync(kAllLanes, sums[2 * r], 1);
          sums[2 * r] += __shfl_xor_sync(kAllLanes, sums[2 * r], 2);
          greatest[r] =
              fmaxf(greatest[r], __shfl_xor_sync(kAllLanes, greatest[r], 1));
          greatest[r] =
              fmaxf(greatest[r], __shfl_xor_sync(kAllLanes, greatest[r], 2));
          unit[r] = PowerBelow(greatest[r]);
        }
      }
      const float inverse[2] = {InverseOfPower(unit[0]),
                                InverseOfPower(unit[1])};

      MILLRACE_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        uint32_t weights[4];
        MILLRACE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* pair = &scores[2 * chunk + i / 2][i % 2 * 2];
          weights[i] = kInt8 ? HalfPair(pair[0] * inverse[i % 2],
                                        pair[1] * inverse[i % 2])
                             : HalfPair(Exp2(pair[0] - base[i % 2]),
                                        Exp2(pair[1] - base[i % 2]));
        }
        const uint4* values = next();
        if (!any_sees(chunk)) continue;
        values += lane % 16 * kPitch + lane / 16;
        const uint32_t ones[2] = {kOnes, kOnes};
        if (!kInt8) MultiplyFragment<false>(weights, ones, sums);
        MILLRACE_UNROLL
        for (int d = 0; d < kDim / 8 / S::kOutputs; ++d) {
          uint32_t w[S::kOutputs][2];
          LoadValues<S>(values, d, w);
          MILLRACE_UNROLL
          for (int n = 0; n < S::kOutputs; ++n) {
            MultiplyFragment<false>(weights, w[n], out[S::kOutputs * d + n]);
          }
        }
      }
    }
    if (lane % 4 == 0) {
      for (int r = 0; r < 2; ++r) {
        shared.tiles.most[warp][own_pairs[r]] = most[r];
        shared.tiles.sum[warp][own_pairs[r]] = sums[2 * r];
      }
    }
    EndSplit(args, item, pairs, split, shared.tiles, totals,
             [&](const auto& factor_of, auto& to, bool is_first) {
               MILLRACE_UNROLL
               for (int r = 0; r < 2; ++r) {
                 const float factor = factor_of(own_pairs[r]) * unit[r];
                 MILLRACE_UNROLL
                 for (int j = 0; j < kDim / 8; ++j) {
                   auto* at = reinterpret_cast<float2*>(
                       &to[own_pairs[r]][NumberAt<S>(j, lane)]);
                   const float2 both = PairAt<S>(out, j, r);
                   float2 sum = is_first ? float2{0, 0} : *at;
                   sum.x = fmaf(both.x, factor, sum.x);
                   sum.y = fmaf(both.y, factor, sum.y);
                   *at = sum;
                 }
               }
             });
  }
}

template <int kDim, bool kInt8>
int LaunchRows(Stream stream, const AttendArgs& args) {
  const int group = args.heads / args.kv.kv_heads;
  return Launch(
      RowsKernel<kDim, kInt8>,
      dim3(static_cast<unsigned>(args.num_items),
           static_cast<unsigned>(args.kv.kv_heads), CeilDiv(group, kPairs)),
      kWarps * 32, sizeof(Shared<Shape<kDim, kInt8>>), stream, args);
}

template <bool kInt8>
int LaunchRows(Stream stream, const AttendArgs& args) {
  const int dim = args.kv.head_dim;
  return dim <= 64    ? LaunchRows<64, kInt8>(stream, args)
         : dim <= 96  ? LaunchRows<96, kInt8>(stream, args)
         : dim <= 128 ? LaunchRows<128, kInt8>(stream, args)
                      : LaunchRows<256, kInt8>(stream, args);
}

}  // namespace

int AttendRows(Stream stream, const AttendArgs& args) {
  return args.kv.format == KvFormat::kInt8 ? LaunchRows<true>(stream, args)
                                           : LaunchRows<false>(stream, args);
}

}  // namespace millrace::cuda
