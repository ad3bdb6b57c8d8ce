// Attention with pages of f32, all of it in f32. A block takes up to 8 (row,
// head) pairs through splits of 256 keys; each of its four warps has one tile
// of 64 keys, a page, of every split:
//
//   scores   eight lanes share a key, each has every eighth two values
//   weights  exp2(score - greatest of the tile), and their sum
//   values   a lane has every 32nd two values of all keys
//
// Then the four tiles are joined (attention.cuh).
#include "models/cuda/attention.cuh"

namespace millrace::cuda {
namespace {

constexpr int kPairs = 8;
constexpr int kWarps = 4;
constexpr int kKeyLanes = 8;           // that share a key
constexpr int kKeys = 32 / kKeyLanes;  // at a time
static_assert(kKeyLanes == kPairs, "each of a key's lanes ends one pair");
constexpr int kAhead = 4;  // keys whose values are loaded together

template <int kDim>
struct Shared {
  float2 queries[kPairs][kDim / 2];
  float weights[kWarps][kPageRows][kPairs];
  TileSums<kPairs, kDim> tiles;
};

template <int kDim>
__global__ void __launch_bounds__(kWarps * 32) F32Kernel(AttendArgs args) {
  constexpr int kOwn = (kDim / 2 + 31) / 32;  // twos of values, of a lane
  const AttendItem item = args.items[blockIdx.x];
  if (item.num_rows == 0) return;
  auto& shared = *SharedMemory<Shared<kDim>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int dim = args.kv.head_dim;
  const Pairs pairs =
      PairsOf(args, item, kv_head, static_cast<int>(blockIdx.z), kPairs);
  const Seen seen = SeenBy(args, item);
  const HeadAt head = HeadOf(args, kv_head);

  for (int pair = warp; pair < kPairs; pair += kWarps) {
    const bool there = pair < pairs.count;
    const float* q = args.q + (there ? pairs.Row(pair) * args.pitch +
                                           int64_t{pairs.Head(pair)} * dim
                                     : 0);
    for (int i = lane; i < kDim / 2; i += 32) {
      shared.queries[pair][i] =
          there && 2 * i < dim ? float2{q[2 * i], q[2 * i + 1]} : float2{0, 0};
    }
  }
  __syncthreads();
  // The pair whose scores this lane ends, of every fourth key.
  const int own_pair = lane % kKeyLanes;
  const int own =
      own_pair < pairs.count ? args.row_positions[pairs.Row(own_pair)] : -1;
  const int from = FirstSeen(args, max(own, 0));
  Total totals[kPairs / 4];
  for (Total& total : totals) total = {NegativeInfinity(), 0};

  for (int split = item.first_split; split < item.first_split + item.num_splits;
       ++split) {
    const int first = split * kSplitKeys + warp * kPageRows;
    float2 out[kPairs][kOwn] = {};
    float most = NegativeInfinity();
    float sum = 0;
    // Keys of the tile that anybody sees: [low, high).
    const int low = max(seen.first - first, 0);
    const int high = min(seen.last - first + 1, kPageRows);
    if (low < high) {
      const std::byte* page =
          args.kv.base +
          head.Page(args.pages[item.page_at + first / kPageRows]);
      float scores[kPageRows / kKeys];
      MILLRACE_UNROLL
      for (int n = 0; n < kPageRows / kKeys; ++n) {
        const int key = n * kKeys + lane / kKeyLanes;
        const bool there = key >= low && key < high;
        const auto* k =
            reinterpret_cast<const float*>(page + key * args.kv.row_bytes);
        float2 loaded[kDim / 16];
        MILLRACE_UNROLL
        for (int i = 0; i < kDim / 16; ++i) {
          const int d = 2 * (own_pair + i * kKeyLanes);
          loaded[i] = there && d < dim ? *reinterpret_cast<const float2*>(k + d)
                                       : float2{0, 0};
        }
        scores[n] = NegativeInfinity();
        MILLRACE_UNROLL
        for (int pair = 0; pair < kPairs; ++pair) {
          float product = 0;
          MILLRACE_UNROLL
          for (int i = 0; i < kDim / 16; ++i) {
            const float2 q = shared.queries[pair][own_pair + i * kKeyLanes];
            product = fmaf(q.x, loaded[i].x, product);
            product = fmaf(q.y, loaded[i].y, product);
          }
          for (int step = kKeyLanes / 2; step > 0; step /= 2) {
            product += __shfl_xor_sync(kAllLanes, product, step);
          }
          const int position = first + key;
          if (pair == own_pair && there && position <= own &&
              position >= from) {
            scores[n] = product * kLog2E;
            if (args.softcap > 0) {
              scores[n] = CappedLog2(scores[n], args.softcap);
            }
          }
        }
        most = fmaxf(most, scores[n]);
      }
      for (int step = 16; step >= kKeyLanes; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
      }
      const float base_score = isinf(most) ? 0.0f : most;
      MILLRACE_UNROLL
      for (int n = 0; n < kPageRows / kKeys; ++n) {
        const float weight = exp2f(scores[n] - base_score);
        shared.weights[warp][n * kKeys + lane / kKeyLanes][own_pair] = weight;
        sum += weight;
      }
      for (int step = 16; step >= kKeyLanes; step /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, step);
      }
      __syncwarp();

      const auto* v = reinterpret_cast<const float*>(page + head.to_values);
      for (int begin = low; begin < high; begin += kAhead) {
        float2 loaded[kAhead][kOwn];
        MILLRACE_UNROLL
        for (int n = 0; n < kAhead; ++n) {
          MILLRACE_UNROLL
          for (int i = 0; i < kOwn; ++i) {
            const int d = 2 * (lane + 32 * i);
            loaded[n][i] = begin + n < high && d < dim
                               ? *reinterpret_cast<const float2*>(
                                     v + int64_t{begin + n} * dim + d)
                               : float2{0, 0};
          }
        }
        MILLRACE_UNROLL
        for (int n = 0; n < kAhead; ++n) {
          if (begin + n >= high) break;
          const float* weights = shared.weights[warp][begin + n];
          MILLRACE_UNROLL
          for (int pair = 0; pair < kPairs; ++pair) {
            const float weight = weights[pair];
            MILLRACE_UNROLL
            for (int i = 0; i < kOwn; ++i) {
              out[pair][i].x = fmaf(weight, loaded[n][i].x, out[pair][i].x);
              out[pair][i].y = fmaf(weight, loaded[n][i].y, out[pair][i].y);
            }
          }
        }
      }
    }
    if (lane < kPairs) {
      shared.tiles.most[warp][lane] = most;
      shared.tiles.sum[warp][lane] = sum;
    }
    EndSplit(args, item, pairs, split, shared.tiles, totals,
             [&](const auto& factor_of, auto& to, bool is_first) {
               MILLRACE_UNROLL
               for (int pair = 0; pair < kPairs; ++pair) {
                 const float factor = factor_of(pair);
                 MILLRACE_UNROLL
                 for (int i = 0; i < kOwn; ++i) {
                   auto* at = reinterpret_cast<float2*>(
                       &to[pair][2 * (lane + 32 * i)]);
                   float2 joined = is_first ? float2{0, 0} : *at;
                   joined.x = fmaf(out[pair][i].x, factor, joined.x);
                   joined.y = fmaf(out[pair][i].y, factor, joined.y);
                   *at = joined;
                 }
               }
             });
  }
}

template <int kDim>
int LaunchF32(Stream stream, const AttendArgs& args) {
  const int group = args.heads / args.kv.kv_heads;
  return Launch(
      F32Kernel<kDim>,
      dim3(static_cast<unsigned>(args.num_items),
           static_cast<unsigned>(args.kv.kv_heads), CeilDiv(group, kPairs)),
      kWarps * 32, sizeof(Shared<kDim>), stream, args);
}

}  // namespace

int AttendF32(Stream stream, const AttendArgs& args) {
  const int dim = args.kv.head_dim;
  return dim <= 64    ? LaunchF32<64>(stream, args)
         : dim <= 128 ? LaunchF32<128>(stream, args)
                      : LaunchF32<256>(stream, args);
}

}  // namespace millrace::cuda
