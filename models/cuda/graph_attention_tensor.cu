// Dense masked attention of graphs on tensor cores, as FlashAttention-2 (Dao
// 2023) does it. A block has 64 queries of a head, 16 a warp, and walks over
// tiles of keys, which go through shared memory once for all of them, rounded
// there to f16, bf16 or tf32. Scores, their greatest and sums stay f32.
//
// Sums are those of weights from the greatest score so far; when a greater one
// comes they are scaled. That chain is of a query alone: a tile of which it
// sees nothing changes nothing.
#include "models/cuda/graph_tensor.cuh"

namespace millrace::cuda {
namespace {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = 32 * kAttentionWarps;
constexpr int kQueries = 16 * kAttentionWarps;
constexpr float kLog2OfE = 1.44269504f;

// kDim: values of a head, rounded up.
template <GraphPrecision kPrecision_, int kDim_>
struct AttentionTile {
  static constexpr GraphPrecision kPrecision = kPrecision_;
  static constexpr bool kIsTf32 = kPrecision == GraphPrecision::kTf32;
  static constexpr int kDim = kDim_;
  static constexpr int kKeys = kIsTf32 && kDim > 64 ? 32 : 64;
  static constexpr int kPer = kPerUnit<kPrecision>;
  static constexpr int kUnits = kDim / kPer;  // of a row
  // Odd, so that rows that are read together lie in different banks.
  static constexpr int kPitch = kUnits + 1;
};
template <class T>
struct AttentionShared {
  uint4 queries[kQueries][T::kPitch];
  uint4 keys[T::kKeys][T::kPitch];
  uint4 values[T::kKeys][T::kPitch];
};

// Rows of tokens [first, count) of a head; what is not there is 0.
template <class T, int kRows>
__device__ __forceinline__ void CopyTokens(const ValuesIn& from,
                                           const HeadsAt& place, int64_t first,
                                           int64_t count, bool wide,
                                           uint4 (&to)[kRows][T::kPitch]) {
  MILLRACE_UNROLL_BY(4)
  for (int i = static_cast<int>(threadIdx.x); i < kRows * T::kUnits;
       i += kAttentionThreads) {
    const int row = i / T::kUnits;
    const int unit = i % T::kUnits;
    const int begin = unit * T::kPer;
    const int64_t at = (first + row) * place.token + begin;
    const bool there = first + row < count;
    const bool whole = wide && begin + T::kPer <= place.size;
    if (whole && AreFactors(T::kPrecision, from.format)) {
      uint4 factors = {0, 0, 0, 0};
      if (there) {
        factors = *reinterpret_cast<const uint4*>(
            static_cast<const uint16_t*>(from.data) + at);
      }
      to[row][unit] = factors;
      continue;
    }
    float values[T::kPer];
    if (whole) {
      LoadValues<T::kPer>(
          there ? static_cast<const float*>(from.data) + at : nullptr, values);
    } else {
      MILLRACE_UNROLL
      for (int j = 0; j < T::kPer; ++j) {
        values[j] =
            there && begin + j < place.size ? LoadValue(from, at + j) : 0.0f;
      }
    }
    to[row][unit] = ToUnit<T::kPrecision>(values);
  }
}

// scores += 16 queries of the warp times all keys of the tile.
template <class T>
__device__ __forceinline__ void ScoreKeys(const AttentionShared<T>& shared,
                                          float (&scores)[T::kKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * 16;
  const uint4* queries = &shared.queries[first + lane % 16][lane / 16];
  const uint4* keys = &shared.keys[lane % 8 + lane / 16 * 8][lane / 8 % 2];
  MILLRACE_UNROLL
  for (int unit = 0; unit < T::kUnits; unit += 2) {
    uint32_t q[4];
    LoadFragments<false>(queries + unit, q);
    MILLRACE_UNROLL
    for (int j = 0; j < T::kKeys / 16; ++j) {
      uint32_t w[4];
      LoadFragments<false>(keys + 16 * j * T::kPitch + unit, w);
      MultiplyUnits<T::kPrecision>(q, w, scores[2 * j]);
      MultiplyUnits<T::kPrecision>(q, w + 2, scores[2 * j + 1]);
    }
  }
}

// out += weights times values, and sums += weights. Of tf32 an `mma` takes the
// keys of a lane's scores in the order 0 2 4 6 1 3 5 7, in which each lane has
// what it multiplies.
template <class T>
__device__ __forceinline__ void AddValues(
    const AttentionShared<T>& shared, const float (&weights)[T::kKeys / 8][4],
    float (&sums)[4], float (&out)[T::kDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (T::kIsTf32) {
    const uint32_t one = ToTf32(1.0f);
    const uint32_t ones[2] = {one, one};
    const auto* values =
        reinterpret_cast<const uint32_t*>(&shared.values[lane % 4 * 2][0]) +
        lane / 4;
    constexpr int kPitch = 4 * T::kPitch;
    MILLRACE_UNROLL
    for (int j = 0; j < T::kKeys / 8; ++j) {
      const uint32_t x[4] = {ToTf32(weights[j][0]), ToTf32(weights[j][2]),
                             ToTf32(weights[j][1]), ToTf32(weights[j][3])};
      MultiplyUnits<T::kPrecision>(x, ones, sums);
      MILLRACE_UNROLL
      for (int d = 0; d < T::kDim / 8; ++d) {
        const uint32_t* at = values + 8 * j * kPitch + 8 * d;
        const uint32_t w[2] = {at[0], at[kPitch]};
        MultiplyUnits<T::kPrecision>(x, w, out[d]);
      }
    }
  } else {
    const uint32_t one = ToPair<T::kPrecision>(1.0f, 1.0f);
    const uint32_t ones[2] = {one, one};
    const uint4* values = &shared.values[lane % 16][lane / 16];
    MILLRACE_UNROLL
    for (int k = 0; k < T::kKeys / 16; ++k) {
      uint32_t x[4];
      MILLRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[2 * k + i / 2][i % 2 * 2];
        x[i] = ToPair<T::kPrecision>(pair[0], pair[1]);
      }
      MultiplyUnits<T::kPrecision>(x, ones, sums);
      MILLRACE_UNROLL
      for (int d = 0; d < T::kDim / 16; ++d) {
        uint32_t w[4];
        LoadFragments<true>(values + 16 * k * T::kPitch + 2 * d, w);
        MultiplyUnits<T::kPrecision>(x, w, out[2 * d]);
        MultiplyUnits<T::kPrecision>(x, w + 2, out[2 * d + 1]);
      }
    }
  }
}

// Products become scores in units of log2: times scale, with the mask, and
// -infinity where a query does not see a key. `query` is the lane's first one,
// `key` its first key of the tile.
template <class T>
__device__ __forceinline__ void MaskScores(const GraphAttentionArgs& args,
                                           const float* mask, int64_t query,
                                           int64_t key,
                                           float (&scores)[T::kKeys / 8][4]) {
  const bool has_mask = mask != nullptr;
  MILLRACE_UNROLL
  for (int r = 0; r < 2; ++r) {
    // Rows of the tile behind the last query read its mask; their results are
    // not stored.
    const int64_t own = Min64(query + 8 * r, args.queries - 1);
    const float* row = mask + (has_mask ? own * args.mask_strides[2] : 0);
    const int64_t end = args.causal ? own + 1 : args.keys;
    MILLRACE_UNROLL
    for (int j = 0; j < T::kKeys / 8; ++j) {
      MILLRACE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int64_t at = key + 8 * j + i;
        float& score = scores[j][2 * r + i];
        const bool seen = at < args.keys && at < end;
        float added = 0;
        if (has_mask && seen) added = row[at * args.mask_strides[3]];
        score = seen ? __fmul_rn(fmaf(score, args.scale, added), kLog2OfE)
                     : -INFINITY;
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    AttentionTensorKernel(GraphAttentionArgs args) {
  auto& shared = *SharedMemory<AttentionShared<T>>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t tiles = (args.queries + kQueries - 1) / kQueries;
  const int64_t first_query = blockIdx.x % tiles * kQueries;
  const int64_t head = blockIdx.x / tiles % args.heads;
  const int64_t item = blockIdx.x / tiles / args.heads;
  const int64_t key_head = head * args.key_heads / args.heads;
  const auto from = [&](const ValuesIn& x, const HeadsAt& at, int64_t own) {
    return x + (item * at.item + own * at.size);
  };
  const ValuesIn keys = from(args.k, args.k_at, key_head);
  const ValuesIn values = from(args.v, args.v_at, key_head);
  const float* mask = args.mask;
  if (mask != nullptr) {
    mask += item % args.mask_items * args.mask_strides[0] +
            head * args.mask_strides[1];
  }
  CopyTokens<T>(from(args.q, args.q_at, head), args.q_at, first_query,
                args.queries, args.wide, shared.queries);
  const int64_t query = first_query + warp * 16 + lane / 4;
  const int64_t end =
      args.causal ? Min64(args.keys, first_query + kQueries) : args.keys;
  float out[T::kDim / 8][4] = {};
  float sums[4] = {};  // [0] of the lane's first query, [2] of the other
  float most[2] = {-INFINITY, -INFINITY};
  MILLRACE_NO_UNROLL
  for (int64_t first = 0; first < end; first += T::kKeys) {
    __syncthreads();  // all have read the tile before
    CopyTokens<T>(keys, args.k_at, first, args.keys, args.wide, shared.keys);
    CopyTokens<T>(values, args.v_at, first, args.keys, args.wide,
                  shared.values);
    __syncthreads();
    float scores[T::kKeys / 8][4] = {};
    ScoreKeys<T>(shared, scores);
    MaskScores<T>(args, mask, query, first + lane % 4 * 2, scores);
    MILLRACE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float greatest = most[r];
      MILLRACE_UNROLL
      for (int j = 0; j < T::kKeys / 8; ++j) {
        greatest =
            fmaxf(greatest, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
      }
      greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, 1));
      greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, 2));
      // Nothing was seen yet: weights are 0 from any other number, too.
      const float origin = greatest == -INFINITY ? 0.0f : greatest;
      const float keep = exp2f(most[r] - origin);
      most[r] = greatest;
      sums[2 * r] = __fmul_rn(sums[2 * r], keep);
      sums[2 * r + 1] = __fmul_rn(sums[2 * r + 1], keep);
      MILLRACE_UNROLL
      for (int d = 0; d < T::kDim / 8; ++d) {
        out[d][2 * r] = __fmul_rn(out[d][2 * r], keep);
        out[d][2 * r + 1] = __fmul_rn(out[d][2 * r + 1], keep);
      }
      MILLRACE_UNROLL
      for (int j = 0; j < T::kKeys / 8; ++j) {
        scores[j][2 * r] = exp2f(scores[j][2 * r] - origin);
        scores[j][2 * r + 1] = exp2f(scores[j][2 * r + 1] - origin);
      }
    }
    AddValues<T>(shared, scores, sums, out);
  }
  MILLRACE_UNROLL
  for (int r = 0; r < 2; ++r) {
    if (query + 8 * r >= args.queries) continue;
    const bool hidden = most[r] == -INFINITY && sums[2 * r] == 0;
    const int64_t to = item * args.out_at.item +
                       (query + 8 * r) * args.out_at.token +
                       head * args.out_at.size;
    MILLRACE_UNROLL
    for (int d = 0; d < T::kDim / 8; ++d) {
      MILLRACE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int at = 8 * d + lane % 4 * 2 + i;
        if (at >= args.v_at.size) continue;
        StoreValue(args.out, to + at,
                   hidden && args.zero_if_hidden
                       ? 0.0f
                       : out[d][2 * r + i] / sums[2 * r]);
      }
    }
  }
}

template <GraphPrecision kPrecision, int kDim>
int LaunchAttention(Stream stream, const GraphAttentionArgs& args) {
  using T = AttentionTile<kPrecision, kDim>;
  const int64_t blocks =
      (args.queries + kQueries - 1) / kQueries * args.heads * args.items;
  return Launch(AttentionTensorKernel<T>, dim3(static_cast<unsigned>(blocks)),
                kAttentionThreads, sizeof(AttentionShared<T>), stream, args);
}

template <GraphPrecision kPrecision>
int AttendDense(Stream stream, const GraphAttentionArgs& args) {
  const int64_t dim =
      args.q_at.size > args.v_at.size ? args.q_at.size : args.v_at.size;
  return dim <= 32   ? LaunchAttention<kPrecision, 32>(stream, args)
         : dim <= 64 ? LaunchAttention<kPrecision, 64>(stream, args)
         : dim <= 96 ? LaunchAttention<kPrecision, 96>(stream, args)
                     : LaunchAttention<kPrecision, 128>(stream, args);
}

// Whether tokens of all heads lie at 16-byte addresses, as f32 or as factors.
bool IsWide(GraphPrecision precision, const ValuesIn& x, const HeadsAt& at) {
  const bool are_factors = AreFactors(precision, x.format);
  const int64_t at_once = are_factors ? 8 : 4;
  return (are_factors || x.format == GraphFormat::kF32) && IsAligned(x.data) &&
         at.item % at_once == 0 && at.token % at_once == 0 &&
         at.size % at_once == 0;
}

}  // namespace

int GraphAttentionOnTensors(Stream stream, const GraphAttentionArgs& args) {
  GraphAttentionArgs with = args;
  with.wide = IsWide(args.precision, args.q, args.q_at) &&
              IsWide(args.precision, args.k, args.k_at) &&
              IsWide(args.precision, args.v, args.v_at);
  switch (args.precision) {
    case GraphPrecision::kF32:
      break;
    case GraphPrecision::kTf32:
      return AttendDense<GraphPrecision::kTf32>(stream, with);
    case GraphPrecision::kF16:
      return AttendDense<GraphPrecision::kF16>(stream, with);
    case GraphPrecision::kBf16:
      return AttendDense<GraphPrecision::kBf16>(stream, with);
  }
  return kInvalidValue;
}

}  // namespace millrace::cuda
