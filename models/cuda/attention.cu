// Paged attention in splits of 256 keys by absolute position. A block takes up
// to eight queries (rows of one sequence times the heads that share a kv head)
// through one split, or through all splits one after the other; a split's keys
// are read once for all of them.
//
//   scores   a thread has two keys and multiplies them with all queries
//   weights  exp(score - greatest of the split), and their sum
//   values   a thread has two dimensions and every n-th key; the n sums are
//            added in order
//
// Results of splits are joined in ascending order, by the same operations in a
// block that walks all of them and in the kernel that joins those worked on
// apart. So how a step's work is cut does not show in a row's bits.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
static_assert(kWarps * 2 == kQueries, "each warp finds maxima of two queries");
static_assert(kSplitKeys == 2 * kThreads, "a thread has two keys");

__device__ __forceinline__ float NegativeInfinity() { return -INFINITY; }

// Numbers that join a split's result to those before it: out = out * before +
// out_of_split * now.
struct Join {
  float before;
  float now;
};
__device__ __forceinline__ Join JoinSplit(float m, float& greatest, float l,
                                          float& sum) {
  const float joined = fmaxf(greatest, m);
  const Join join{expf(greatest - joined), expf(m - joined)};
  sum = fmaf(l, join.now, __fmul_rn(sum, join.before));
  greatest = joined;
  return join;
}
__device__ __forceinline__ float Joined(const Join& join, float out,
                                        float of_split) {
  return fmaf(of_split, join.now, __fmul_rn(out, join.before));
}

// Two neighbouring values of the cache.
template <bool kF32>
__device__ __forceinline__ float2 LoadPair(const std::byte* base, int64_t at) {
  if constexpr (kF32) {
    return *reinterpret_cast<const float2*>(base + 4 * at);
  } else {
    const auto bits = *reinterpret_cast<const uint32_t*>(base + 2 * at);
    float2 pair;
    pair.x = FromHalf(static_cast<uint16_t>(bits & 0xffff));
    pair.y = FromHalf(static_cast<uint16_t>(bits >> 16));
    return pair;
  }
}

struct Shared {
  float scores[kQueries][kSplitKeys];  // then weights
  float greatest[kQueries];            // of the split
  float sum[kQueries];
  float all_greatest[kQueries];  // of the splits so far
  float all_sum[kQueries];
  float before[kQueries], now[kQueries];
  // Then, each [kQueries][head_dim] at least:
  //   q, sums of values [groups of keys] with 2 * kThreads values a query, out
};

template <bool kF32>
__global__ void __launch_bounds__(kThreads) AttendKernel(AttendArgs args) {
  Shared& shared = *SharedMemory<Shared>();
  const int dim = args.kv.head_dim;
  float* q = reinterpret_cast<float*>(&shared + 1);
  float* values = q + kQueries * dim;
  float* out = values + kQueries * 2 * kThreads;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const AttendItem item = args.items[blockIdx.x];
  if (item.num_rows == 0) return;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = args.heads / args.kv.kv_heads;
  // Heads of this block, from its first one on: all of the group, or of one row
  // some.
  const int first_in_group = static_cast<int>(blockIdx.z) * kQueries;
  const int heads = min(group - first_in_group, kQueries);
  const int first_head = kv_head * group + first_in_group;
  const int queries = item.num_rows * heads;
  const auto row_of = [&](int query) { return item.first_row + query / heads; };

  for (int i = thread; i < kQueries * dim; i += kThreads) {
    const int query = i / dim;
    q[i] = query < queries
               ? args.q[row_of(query) * args.pitch +
                        (first_head + query % heads) * dim + i % dim]
               : 0.0f;
    out[i] = 0;
  }
  if (thread < kQueries) {
    shared.all_greatest[thread] = NegativeInfinity();
    shared.all_sum[thread] = 0;
  }
  __syncthreads();

  const int last_position =
      args.row_positions[item.first_row + item.num_rows - 1];
  const int64_t half_layer = int64_t{args.kv.kv_heads} * kPageRows * dim;
  const int64_t head_at =
      2 * int64_t{args.layer} * half_layer + int64_t{kv_head} * kPageRows * dim;
  // Of the key at a position; a page that no row sees is -1 and never asked
  // for.
  const auto key_at = [&](int position) {
    return args.pages[item.page_at + position / kPageRows] *
               args.kv.page_values +
           head_at + int64_t{position % kPageRows} * dim;
  };
  const auto sees = [&](int query, int position) {
    const int own = args.row_positions[row_of(query)];
    return position <= own &&
           (args.window == 0 || position > own - args.window);
  };
  const int first_seen =
      args.window == 0
          ? 0
          : max(0, args.row_positions[item.first_row] - args.window + 1);

  for (int split = item.first_split; split < item.first_split + item.num_splits;
       ++split) {
    const int begin = split * kSplitKeys;
    for (int n = 0; n < 2; ++n) {
      const int key = thread + n * kThreads;
      const int position = begin + key;
      float sums[kQueries] = {};
      const bool seen = position <= last_position && position >= first_seen;
      if (seen) {
        const int64_t at = key_at(position);
        for (int d = 0; d < dim; d += 2) {
          const float2 k = LoadPair<kF32>(args.kv.base, at + d);
          for (int i = 0; i < kQueries; ++i) {
            sums[i] = fmaf(q[i * dim + d], k.x, sums[i]);
            sums[i] = fmaf(q[i * dim + d + 1], k.y, sums[i]);
          }
        }
      }
      for (int i = 0; i < kQueries; ++i) {
        float score = sums[i];
        if (args.softcap > 0)
          score = args.softcap * tanhf(score / args.softcap);
        const bool visible = seen && i < queries && sees(i, position);
        shared.scores[i][key] = visible ? score : NegativeInfinity();
      }
    }
    __syncthreads();
    for (int i = warp; i < kQueries; i += kWarps) {
      float m = NegativeInfinity();
      for (int key = lane; key < kSplitKeys; key += 32) {
        m = fmaxf(m, shared.scores[i][key]);
      }
      m = WarpMax(m);
      float l = 0;
      for (int key = lane; key < kSplitKeys; key += 32) {
        const float score = shared.scores[i][key];
        const float weight = isinf(score) ? 0.0f : expf(score - m);
        shared.scores[i][key] = weight;
        l += weight;
      }
      l = WarpSum(l);
      if (lane == 0) {
        shared.greatest[i] = m;
        shared.sum[i] = l;
        Join join{1, 0};  // a row that sees nothing of this split
        if (!isinf(m)) {
          join = JoinSplit(m, shared.all_greatest[i], l, shared.all_sum[i]);
        }
        shared.before[i] = join.before;
        shared.now[i] = join.now;
      }
    }
    __syncthreads();

    const int pairs = dim / 2;
    const int groups = kThreads / pairs;
    const int end = min(kSplitKeys, last_position - begin + 1);
    if (thread < groups * pairs) {
      const int d = 2 * (thread % pairs);
      const int key_group = thread / pairs;
      float2 sums[kQueries] = {};
      for (int key = key_group; key < end; key += groups) {
        if (begin + key < first_seen) continue;
        const float2 v =
            LoadPair<kF32>(args.kv.base, key_at(begin + key) + half_layer + d);
        for (int i = 0; i < kQueries; ++i) {
          const float weight = shared.scores[i][key];
          sums[i].x = fmaf(weight, v.x, sums[i].x);
          sums[i].y = fmaf(weight, v.y, sums[i].y);
        }
      }
      for (int i = 0; i < kQueries; ++i) {
        float* at = values + (key_group * kQueries + i) * dim + d;
        at[0] = sums[i].x;
        at[1] = sums[i].y;
      }
    }
    __syncthreads();
    for (int i = thread; i < queries * dim; i += kThreads) {
      const int query = i / dim;
      float sum = 0;
      for (int n = 0; n < groups; ++n) sum += values[n * kQueries * dim + i];
      if (item.partial >= 0) {
        out[i] = sum;
      } else {
        out[i] = Joined({shared.before[query], shared.now[query]}, out[i], sum);
      }
    }
    __syncthreads();
  }

  for (int i = thread; i < queries * dim; i += kThreads) {
    const int query = i / dim;
    const int64_t head = first_head + query % heads;
    if (item.partial >= 0) {
      const int64_t at = int64_t{item.partial} * args.heads + head;
      args.partial_out[at * dim + i % dim] = out[i];
      if (i % dim == 0) {
        args.partial_max[at] = shared.greatest[query];
        args.partial_sum[at] = shared.sum[query];
      }
    } else {
      args.out[row_of(query) * args.out_pitch + head * dim + i % dim] =
          out[i] / shared.all_sum[query];
    }
  }
}

// A block for each head of a row; a thread for each two values.
__global__ void __launch_bounds__(kThreads) MergeKernel(AttendArgs args) {
  const AttendMerge merge = args.merges[blockIdx.x];
  if (merge.num_partials == 0) return;
  const int dim = args.kv.head_dim;
  const int64_t head = blockIdx.y;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    float greatest = NegativeInfinity();
    float sum = 0;
    float out = 0;
    for (int i = 0; i < merge.num_partials; ++i) {
      const int64_t at = (merge.first_partial + int64_t{i}) * args.heads + head;
      const float m = args.partial_max[at];
      if (isinf(m)) continue;
      const Join join = JoinSplit(m, greatest, args.partial_sum[at], sum);
      out = Joined(join, out, args.partial_out[at * dim + d]);
    }
    args.out[merge.row * args.out_pitch + head * dim + d] = out / sum;
  }
}

}  // namespace

int Attend(Stream stream, const AttendArgs& args) {
  if (args.num_items == 0) return 0;
  const int group = args.heads / args.kv.kv_heads;
  const dim3 grid(static_cast<unsigned>(args.num_items),
                  static_cast<unsigned>(args.kv.kv_heads),
                  CeilDiv(group, kQueries));
  const size_t bytes =
      sizeof(Shared) +
      sizeof(float) * kQueries *
          (2 * static_cast<size_t>(args.kv.head_dim) + 2 * kThreads);
  const int fault =
      args.kv.f32
          ? Launch(AttendKernel<true>, grid, kThreads, bytes, stream, args)
          : Launch(AttendKernel<false>, grid, kThreads, bytes, stream, args);
  if (fault != 0 || args.num_merges == 0) return fault;
  return Launch(MergeKernel,
                dim3(static_cast<unsigned>(args.num_merges),
                     static_cast<unsigned>(args.heads)),
                kThreads, 0, stream, args);
}

}  // namespace millrace::cuda
