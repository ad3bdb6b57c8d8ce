// Paged attention: which kernels a step's rows take, and the joining of partial
// results.
#include "models/cuda/attention.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kDims = 64;  // of a warp, two a lane

// What 32 partial results of a row and head are multiplied by.
struct Factors {
  Join join[32];
  float sum[32];
};

// A warp for each 64 values of a head of a row. Of 32 partial results at a time
// each lane finds the factors of one; then they are added in order.
__global__ void __launch_bounds__(kWarps * 32) MergeKernel(AttendArgs args) {
  const AttendMerge merge = args.merges[blockIdx.x];
  if (merge.num_partials == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Factors& factors = SharedMemory<Factors>()[warp];
  const int dim = args.kv.head_dim;
  const int parts = (dim + kDims - 1) / kDims;
  const int unit = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (unit >= args.heads * parts) return;  // whole warps only
  const int64_t head = unit / parts;
  const int d = unit % parts * kDims + 2 * lane;

  float greatest = NegativeInfinity();  // of those before
  float sum = 0;
  float2 out = {0, 0};
  for (int first = 0; first < merge.num_partials; first += 32) {
    const int count = min(32, merge.num_partials - first);
    const int64_t at =
        (merge.first_partial + int64_t{first}) * args.heads + head;
    // The greatest of those up to the lane's own, by doubling steps.
    const float own = lane < count ? args.partial_max[at + lane * args.heads]
                                   : NegativeInfinity();
    float up_to = own;
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_sync(kAllLanes, up_to, max(lane - step, 0));
      up_to = fmaxf(up_to, before);
    }
    up_to = fmaxf(up_to, greatest);
    const float below = __shfl_sync(kAllLanes, up_to, max(lane - 1, 0));
    float before_own = lane == 0 ? greatest : below;
    Join join{1, 0};  // the row sees nothing of this split
    float own_sum = 0;
    if (!isinf(own)) {
      own_sum = args.partial_sum[at + lane * args.heads];
      float unused = 0;
      join = JoinSplit(own, before_own, 0, unused);
    }
    __syncwarp();
    factors.join[lane] = join;
    factors.sum[lane] = own_sum;
    greatest = __shfl_sync(kAllLanes, up_to, 31);
    __syncwarp();
    const float* values = args.partial_out + at * dim + d;
    const int64_t pitch = int64_t{args.heads} * dim;
    const auto add = [&](int i, const float2& value) {
      const Join factor = factors.join[i];
      sum = fmaf(factors.sum[i], factor.now, __fmul_rn(sum, factor.before));
      out.x = Joined(factor, out.x, value.x);
      out.y = Joined(factor, out.y, value.y);
    };
    if (d >= dim) continue;
    constexpr int kLoads = 8;
    int i = 0;
    for (; i + kLoads <= count; i += kLoads) {
      float2 loaded[kLoads];
      MILLRACE_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        loaded[n] = *reinterpret_cast<const float2*>(values + (i + n) * pitch);
      }
      MILLRACE_UNROLL
      for (int n = 0; n < kLoads; ++n) add(i + n, loaded[n]);
    }
    for (; i < count; ++i) {
      add(i, *reinterpret_cast<const float2*>(values + i * pitch));
    }
  }
  if (d >= dim) return;
  const float divisor = Divisor(args, head, greatest, sum);
  *reinterpret_cast<float2*>(args.out + merge.row * args.out_pitch +
                             head * dim +
                             d) = {out.x / divisor, out.y / divisor};
}

}  // namespace

int Attend(Stream stream, const AttendArgs& args) {
  const bool f32 = args.kv.format == KvFormat::kF32;
  if (args.kv.head_dim > kMostHeadDim || args.kv.head_dim % 2 != 0 ||
      (f32 && args.num_prompt_items > 0)) {
    return kInvalidValue;
  }
  int fault = 0;
  if (args.num_prompt_items > 0) fault = AttendPrompts(stream, args);
  if (fault == 0 && args.num_items > 0) {
    fault = f32 ? AttendF32(stream, args) : AttendRows(stream, args);
  }
  if (fault != 0 || args.num_merges == 0) return fault;
  const int units = args.heads * ((args.kv.head_dim + kDims - 1) / kDims);
  return Launch(
      MergeKernel,
      dim3(static_cast<unsigned>(args.num_merges), CeilDiv(units, kWarps)),
      kWarps * 32, kWarps * sizeof(Factors), stream, args);
}

}  // namespace millrace::cuda
