// Mixtures of experts: which experts a row uses, its uses in the order of the
// experts, and the sum of what they gave. The products are those of linear.cu,
// linear_int8.cu and linear_tensor.cu, a tile of uses a block.
#include "models/cuda/product.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRouteWarps = 4;
constexpr int kOrderThreads = 256;
constexpr int kOrderWarps = kOrderThreads / 32;
constexpr int kOrderUses = 4;

struct Pick {
  float value;
  int expert;
};
// Whether a comes before b: the greater one, of equals the first.
__device__ __forceinline__ bool Before(const Pick& a, const Pick& b) {
  return a.value > b.value || (a.value == b.value && a.expert < b.expert);
}

// A warp a row. Picks follow one another in one order of all logits, so what
// was picked is known from the last one.
__global__ void __launch_bounds__(kRouteWarps * 32)
    RouteKernel(RouteArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kRouteWarps + threadIdx.x / 32;
  if (row >= args.rows) return;
  const float* logits = args.logits + RowOf(args.row_ids, row) * args.pitch;
  const float infinity = FloatOfBits(0x7f800000);
  Pick last = {infinity, -1};
  Pick mine = {0, 0};  // pick number `lane`
  for (int k = 0; k < args.used; ++k) {
    Pick best = {-infinity, args.experts};
    for (int e = lane; e < args.experts; e += 32) {
      const Pick pick = {logits[e], e};
      if (Before(last, pick) && Before(pick, best)) best = pick;
    }
    for (int step = 16; step > 0; step /= 2) {
      const Pick other = {__shfl_xor_sync(kAllLanes, best.value, step),
                          __shfl_xor_sync(kAllLanes, best.expert, step)};
      if (Before(other, best)) best = other;
    }
    // NaN is never picked; some expert is.
    if (best.expert == args.experts) best = {logits[k], k};
    if (lane == k) mine = best;
    last = best;
  }
  const float most = __shfl_sync(kAllLanes, mine.value, 0);
  float sum = 0;
  if (args.normalise) {
    sum = WarpSum(lane < args.used ? expf(mine.value - most) : 0.0f);
  } else {
    for (int e = lane; e < args.experts; e += 32) sum += expf(logits[e] - most);
    sum = WarpSum(sum);
  }
  int place = 0;  // among the chosen, in ascending order
  for (int k = 0; k < args.used; ++k) {
    const int other = __shfl_sync(kAllLanes, mine.expert, k);
    place += other < mine.expert || (other == mine.expert && k < lane) ? 1 : 0;
  }
  if (lane < args.used) {
    const int64_t at = row * args.used + place;
    args.chosen[at] = mine.expert;
    args.weights[at] = args.sigmoid ? 1 / (1 + expf(-mine.value))
                                    : expf(mine.value - most) / sum;
  }
}

__device__ __forceinline__ int WarpCount(int value) {
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}
// Of a block of kOrderThreads; `shared` has a place for each warp.
__device__ __forceinline__ int BlockCount(int value, int* shared) {
  value = WarpCount(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < kOrderWarps; ++i) sum += shared[i];
  return sum;
}

// A block an expert, which reads all choices twice: how many uses come before
// its own, then where its own are. A thread looks at kOrderUses at a time.
__global__ void __launch_bounds__(kOrderThreads)
    OrderKernel(OrderUsesArgs args) {
  int* shared = SharedMemory<int>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int expert = static_cast<int>(blockIdx.x);
  int before = 0, own = 0;
  MILLRACE_UNROLL_BY(4)
  for (int u = thread; u < args.uses; u += kOrderThreads) {
    const int chosen = args.chosen[u];
    before += chosen < expert ? 1 : 0;
    own += chosen == expert ? 1 : 0;
  }
  const int first = BlockCount(before, shared);
  const int count = BlockCount(own, shared + kOrderWarps);
  if (thread == 0) args.counts[expert] = count;
  shared += 2 * kOrderWarps;

  // Uses in the order of (round, part, warp, lane). Rounds take turns in two
  // halves of shared memory, so that one barrier each is enough.
  constexpr int kRoundUses = kOrderUses * kOrderThreads;
  constexpr int kHalf = kOrderUses * kOrderWarps;
  int found = 0;
  for (int round = 0; round * kRoundUses < args.uses && found < count;
       ++round) {
    int* counts = shared + round % 2 * kHalf;
    int chosen[kOrderUses];
    unsigned own_lanes[kOrderUses];
    MILLRACE_UNROLL
    for (int part = 0; part < kOrderUses; ++part) {
      const int u = round * kRoundUses + part * kOrderThreads + thread;
      chosen[part] = u < args.uses ? args.chosen[u] : -1;
    }
    MILLRACE_UNROLL
    for (int part = 0; part < kOrderUses; ++part) {
      own_lanes[part] =
          __ballot_sync(kAllLanes, chosen[part] == expert ? 1 : 0);
      if (lane == 0) {
        counts[part * kOrderWarps + warp] = __popc(own_lanes[part]);
      }
    }
    __syncthreads();
    MILLRACE_UNROLL
    for (int part = 0; part < kOrderUses; ++part) {
      int place = found;  // of this warp's first one
      for (int w = 0; w < kOrderWarps; ++w) {
        const int uses = counts[part * kOrderWarps + w];
        place += w < warp ? uses : 0;
        found += uses;
      }
      if ((own_lanes[part] >> lane & 1) == 0) continue;
      place += __popc(own_lanes[part] & ((1u << lane) - 1));
      args.order[first + place] =
          round * kRoundUses + part * kOrderThreads + thread;
    }
  }
}

// One block. Each expert is one thread's, which cuts its uses into tiles.
__global__ void __launch_bounds__(kThreads) TileKernel(OrderUsesArgs args) {
  int* uses = SharedMemory<int>();   // of each expert
  int* tiles = uses + args.experts;  // likewise
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.experts; e += kThreads) {
    uses[e] = args.counts[e];
    tiles[e] = (uses[e] + args.tile_rows - 1) / args.tile_rows;
  }
  __syncthreads();
  int all_tiles = 0, read = 0;
  for (int e = thread; e < args.experts; e += kThreads) {
    int first = 0, tile = 0;
    for (int other = 0; other < e; ++other) {
      first += uses[other];
      tile += tiles[other];
    }
    for (int left = uses[e]; left > 0; left -= args.tile_rows) {
      args.tiles[tile++] = {e, first,
                            left < args.tile_rows ? left : args.tile_rows};
      first += args.tile_rows;
    }
  }
  for (int e = 0; e < args.experts; ++e) {
    all_tiles += tiles[e];
    read += uses[e] > 0 ? 1 : 0;
  }
  if (thread == 0) *args.num_read = read;
  for (int tile = all_tiles + thread; tile < args.num_tiles; tile += kThreads) {
    args.tiles[tile] = {0, 0, 0};
  }
}

__global__ void __launch_bounds__(kThreads) CombineKernel(CombineArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;  // of y
  if (i >= args.width) return;
  const int64_t to = RowOf(args.row_ids, row);
  float sum = 0;
  for (int k = 0; k < args.used; ++k) {
    const int64_t use = row * args.used + k;
    float y = args.y[use * args.pitch + i];
    if (args.bias != nullptr) {
      y += args.bias[int64_t{args.chosen[use]} * args.width + i];
    }
    sum = fmaf(args.weights != nullptr ? args.weights[use] : 1.0f, y, sum);
  }
  if (args.shared != nullptr) {
    float weight = 1;
    if (args.shared_logits != nullptr) {
      weight = 1 / (1 + expf(-args.shared_logits[to * args.logits_pitch]));
    }
    sum = fmaf(weight, args.shared[to * args.shared_pitch + i], sum);
  }
  float* out = args.out + to * args.out_pitch + i;
  *out = args.adds ? fmaf(args.scale, sum, *out) : sum;
}

}  // namespace

int RouteRows(Stream stream, const RouteArgs& args) {
  if (args.rows == 0) return 0;
  if (args.used > kMostExpertsUsed) return kInvalidValue;
  return Launch(RouteKernel, dim3(CeilDiv(args.rows, kRouteWarps)),
                kRouteWarps * 32, 0, stream, args);
}

int OrderUses(Stream stream, const OrderUsesArgs& args) {
  if (args.uses == 0) return 0;
  if (args.experts > kMostExperts) return kInvalidValue;
  const int error = Launch(
      OrderKernel, dim3(static_cast<unsigned>(args.experts)), kOrderThreads,
      2 * kOrderWarps * (1 + kOrderUses) * sizeof(int), stream, args);
  if (error != 0) return error;
  return Launch(TileKernel, dim3(1), kThreads,
                2 * sizeof(int) * static_cast<size_t>(args.experts), stream,
                args);
}

int CombineExperts(Stream stream, const CombineArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(
      CombineKernel,
      dim3(CeilDiv(args.width, kThreads), static_cast<unsigned>(args.rows)),
      kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
