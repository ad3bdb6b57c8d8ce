// Mixtures of experts: which experts a row uses, its uses in the order of the
// experts, and the sum of what they gave. The products are those of linear.cu
// and linear_int8.cu, a tile of uses a block.
#include "models/cuda/product.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRouteWarps = 4;

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
  const float* logits = args.logits + row * args.pitch;
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

// One block. Each expert is one thread's, which finds its uses one after the
// other.
__global__ void __launch_bounds__(kThreads) OrderKernel(OrderUsesArgs args) {
  int* uses = SharedMemory<int>();   // before each expert
  int* tiles = uses + args.experts;  // likewise
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.experts; e += kThreads) {
    int count = 0;
    for (int u = 0; u < args.uses; ++u) count += args.chosen[u] == e ? 1 : 0;
    uses[e] = count;
  }
  __syncthreads();
  if (thread == 0) {
    int use = 0, tile = 0;
    for (int e = 0; e < args.experts; ++e) {
      const int count = uses[e];
      uses[e] = use;
      tiles[e] = tile;
      use += count;
      tile += (count + args.tile_rows - 1) / args.tile_rows;
    }
    for (; tile < args.num_tiles; ++tile) args.tiles[tile] = {0, 0, 0};
  }
  __syncthreads();
  for (int e = thread; e < args.experts; e += kThreads) {
    int at = uses[e];
    for (int u = 0; u < args.uses; ++u) {
      if (args.chosen[u] == e) args.order[at++] = u;
    }
    int tile = tiles[e];
    for (int first = uses[e]; first < at; first += args.tile_rows) {
      const int left = at - first;
      args.tiles[tile++] = {e, first,
                            left < args.tile_rows ? left : args.tile_rows};
    }
  }
}

__global__ void __launch_bounds__(kThreads) CombineKernel(CombineArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (i >= args.width) return;
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
      weight = 1 / (1 + expf(-args.shared_logits[row * args.logits_pitch]));
    }
    sum = fmaf(weight, args.shared[row * args.shared_pitch + i], sum);
  }
  float* out = args.out + row * args.out_pitch + i;
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
  return Launch(OrderKernel, dim3(1), kThreads,
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
