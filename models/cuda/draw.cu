// Draws tokens: temperature, top-k, min-p, top-p and a draw, a block a row. It
// keeps the tokens that the sampler of the host keeps (models/llm/sampler.cc)
// and draws from the same weights, in the same order, by the same random
// number. Sums of weights are of integers here, multiples of 2^-44 of the
// greatest weight, so that they are the same in any order; there they are of
// f64. Weights from 2^-20 on are exact; the others are rounded, unbiased, so
// that it takes millions of draws until one differs.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostWarps = kMostThreads / 32;
// Bounds that are tried at once: the greatest of 1 to 7 times a power of eight.
constexpr int kBounds = 7;
// Bits of weights are below 2^30: a weight is 1 at most.
constexpr int kFirstShift = 27;
// Tokens that are looked at in shared memory, if no more can be kept.
constexpr int kMostListed = 4096;

struct Shared {
  unsigned long long parts[kBounds][kMostWarps];
  unsigned long long sums[kBounds];
  int32_t found;
  float list_weights[kMostListed];
  int32_t list_ids[kMostListed];
};

// Weights of tokens in ascending order of id.
struct Tokens {
  const float* weights;
  const int32_t* ids;  // null: 0, 1, ...
  int32_t count;
  __device__ __forceinline__ int32_t id(int i) const {
    return ids == nullptr ? i : ids[i];
  }
};

// e^x as on the host, to the bit: models/cpu/kernels/scalar/numbers.h.
__device__ __forceinline__ float Exp(float x) {
  if (x < -87.33654f) return 0.0f;
  constexpr float kRounder = 12582912.0f;
  const float shifted = __fmul_rn(x, 1.44269504f) + kRounder;
  const float n = shifted - kRounder;
  float r = fmaf(n, -0.693359375f, x);
  r = fmaf(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fmaf(p, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  p = fmaf(p, __fmul_rn(r, r), r) + 1.0f;
  return FloatOfBits(BitsOfFloat(p) + (BitsOfFloat(shifted) << 23));
}

__device__ __forceinline__ unsigned long long MassOf(float weight) {
  return static_cast<unsigned long long>(rintf(weight * 0x1p44f));
}

// Tokens that are kept: those of weights above the bound, and of those that are
// equal to it the ones up to an id.
struct Kept {
  uint32_t bound;
  int32_t last;
  __device__ __forceinline__ bool Has(uint32_t bits, int id) const {
    return bits > bound || (bits == bound && id <= last);
  }
};

// Sums over the block, in all threads.
template <int kCount>
__device__ __forceinline__ void BlockSums(Shared& shared,
                                          unsigned long long (&sums)[kCount]) {
  const int thread = static_cast<int>(threadIdx.x);
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    for (int step = 16; step > 0; step /= 2) {
      sums[i] += __shfl_xor_sync(kAllLanes, sums[i], step);
    }
    if (thread % 32 == 0) shared.parts[i][thread / 32] = sums[i];
  }
  __syncthreads();
  if (thread < kCount) {
    unsigned long long sum = 0;
    for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
      sum += shared.parts[thread][i];
    }
    shared.sums[thread] = sum;
  }
  __syncthreads();
  MILLRACE_UNROLL
  for (int i = 0; i < kCount; ++i) sums[i] = shared.sums[i];
  __syncthreads();
}

// The part [begin, end) of `count` things that a warp goes through.
struct Range {
  int begin;
  int end;
};
__device__ __forceinline__ Range RangeOfWarp(int count) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int size = ((count + warps - 1) / warps + 31) / 32 * 32;
  const int begin = static_cast<int>(threadIdx.x) / 32 * size;
  return {begin, min(begin + size, count)};
}

// The place of the first one with which the sum of `measure` over the places up
// to it is above target(sum of all); -1 where there is none.
template <class Measure, class Target>
__device__ __forceinline__ int32_t FindInOrder(Shared& shared, int count,
                                               const Measure& measure,
                                               const Target& target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const auto [begin, end] = RangeOfWarp(count);
  unsigned long long sum = 0;
  for (int id = begin + lane; id < end; id += 32) sum += measure(id);
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  if (lane == 0) shared.parts[0][warp] = sum;
  if (threadIdx.x == 0) shared.found = -1;
  __syncthreads();
  unsigned long long all = 0, before = 0;
  for (int i = 0; i < warps; ++i) {
    if (i == warp) before = all;
    all += shared.parts[0][i];
  }
  const unsigned long long wanted = target(all);
  if (wanted >= before && wanted < before + sum) {
    for (int first = begin; first < end; first += 32) {
      unsigned long long upto = first + lane < end ? measure(first + lane) : 0;
      for (int step = 1; step < 32; step *= 2) {
        const unsigned long long lower =
            __shfl_sync(kAllLanes, upto, lane >= step ? lane - step : lane);
        if (lane >= step) upto += lower;
      }
      const unsigned above = __ballot_sync(kAllLanes, before + upto > wanted);
      if (above != 0) {
        if (lane == 0)
          shared.found = first + __ffs(static_cast<int>(above)) - 1;
        break;
      }
      before += __shfl_sync(kAllLanes, upto, 31);
    }
  }
  __syncthreads();
  const int32_t found = shared.found;
  __syncthreads();
  return found;
}

// Keeps the first ones in order of weight, of equals the lower id, as many as
// have `wanted` together; all where that is not reached.
template <class Measure>
__device__ __forceinline__ Kept Narrow(Shared& shared, const Tokens& tokens,
                                       const Kept& kept, const Measure& measure,
                                       unsigned long long wanted) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  uint32_t bound = 0;
  for (int shift = kFirstShift; shift >= 0; shift -= 3) {
    unsigned long long sums[kBounds] = {};
    MILLRACE_UNROLL_BY(2)
    for (int i = thread; i < tokens.count; i += threads) {
      const float weight = tokens.weights[i];
      const uint32_t bits = BitsOfFloat(weight);
      const unsigned long long mass =
          kept.Has(bits, tokens.id(i)) ? measure(weight) : 0;
      MILLRACE_UNROLL
      for (int n = 0; n < kBounds; ++n) {
        sums[n] +=
            bits >= bound + (static_cast<uint32_t>(n + 1) << shift) ? mass : 0;
      }
    }
    BlockSums(shared, sums);
    int digit = 0;
    MILLRACE_UNROLL
    for (int n = 0; n < kBounds; ++n) digit += sums[n] >= wanted ? 1 : 0;
    bound += static_cast<uint32_t>(digit) << shift;
  }
  if (bound < kept.bound) return kept;
  unsigned long long above[1] = {};
  for (int i = thread; i < tokens.count; i += threads) {
    const float weight = tokens.weights[i];
    const uint32_t bits = BitsOfFloat(weight);
    if (bits > bound && kept.Has(bits, tokens.id(i)))
      above[0] += measure(weight);
  }
  BlockSums(shared, above);
  const unsigned long long each = measure(FloatOfBits(bound));
  if (each == 0) return kept;
  const unsigned long long more = (wanted - above[0] + each - 1) / each;
  const int32_t last = FindInOrder(
      shared, tokens.count,
      [&](int i) {
        const uint32_t bits = BitsOfFloat(tokens.weights[i]);
        return bits == bound && kept.Has(bits, tokens.id(i)) ? 1ull : 0ull;
      },
      [&](unsigned long long) { return more - 1; });
  return last < 0 ? kept : Kept{bound, tokens.id(last)};
}

// The tokens whose weights are `least` at least: in shared memory, or all where
// they are too many for it.
__device__ __forceinline__ Tokens List(Shared& shared, const float* weights,
                                       int vocab, float least) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const auto [begin, end] = RangeOfWarp(vocab);
  unsigned long long count = 0;
  MILLRACE_UNROLL_BY(4)
  for (int id = begin + lane; id < end; id += 32) {
    count += weights[id] >= least ? 1 : 0;
  }
  for (int step = 16; step > 0; step /= 2) {
    count += __shfl_xor_sync(kAllLanes, count, step);
  }
  if (lane == 0) shared.parts[0][warp] = count;
  __syncthreads();
  unsigned long long all = 0, before = 0;
  for (int i = 0; i < warps; ++i) {
    if (i == warp) before = all;
    all += shared.parts[0][i];
  }
  __syncthreads();
  if (all > kMostListed) return {weights, nullptr, vocab};
  int at = static_cast<int>(before);
  for (int first = begin; first < end; first += 32) {
    const int id = first + lane;
    const float weight = id < end ? weights[id] : -1.0f;
    const unsigned listed = __ballot_sync(kAllLanes, weight >= least);
    if (weight >= least) {
      const int place = at + __popc(listed & ((1u << lane) - 1));
      shared.list_weights[place] = weight;
      shared.list_ids[place] = id;
    }
    at += __popc(listed);
  }
  __syncthreads();
  return {shared.list_weights, shared.list_ids, static_cast<int32_t>(all)};
}

__global__ void __launch_bounds__(kMostThreads) DrawKernel(DrawArgs args) {
  Shared& shared = *SharedMemory<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int64_t row = blockIdx.x;
  const DrawRow draw = args.draws[row];
  if (draw.inverse_temperature == 0) return;  // the greatest, whose id is there
  float* weights = args.logits + row * args.pitch;
  const float greatest = weights[args.ids[row]];
  if (isnan(greatest) || isinf(greatest)) return;
  __syncthreads();
  float most = 0;  // of this thread's tokens
  unsigned long long all[1] = {};
  MILLRACE_UNROLL_BY(4)
  for (int id = thread; id < args.vocab; id += threads) {
    const float weight =
        Exp(__fmul_rn(weights[id] - greatest, draw.inverse_temperature));
    weights[id] = weight;
    most = fmaxf(most, weight);
    all[0] += MassOf(weight);
  }
  BlockSums(shared, all);

  // A weight below which no token can be kept, as on the host: k threads have a
  // token of at least the k-th of their greatest, and n tokens below (1 - p) /
  // n of the mass hold less than 1 - p.
  const bool has_top_k = draw.top_k > 0 && draw.top_k < args.vocab;
  const bool cut = has_top_k || draw.min_p > 0 || draw.top_p < 1;
  float least = fmaxf(draw.min_p, 0x1p-126f);
  const auto one = [](float) { return 1ull; };
  if (has_top_k && draw.top_k < threads) {
    shared.list_weights[thread] = most;
    __syncthreads();
    const Kept greatest_ones =
        Narrow(shared, {shared.list_weights, nullptr, threads}, {0, threads},
               one, static_cast<unsigned long long>(draw.top_k));
    least = fmaxf(least, FloatOfBits(greatest_ones.bound));
  } else if (!has_top_k && draw.min_p <= 0) {
    const double mass = static_cast<double>(all[0]) * 0x1p-44;
    least = fmaxf(
        least, static_cast<float>(0.5 * (1 - draw.top_p) * mass / args.vocab));
  }
  const Tokens tokens = cut ? List(shared, weights, args.vocab, least)
                            : Tokens{weights, nullptr, args.vocab};

  Kept kept = {BitsOfFloat(least), args.vocab};
  if (has_top_k) {
    kept = Narrow(shared, tokens, kept, one,
                  static_cast<unsigned long long>(draw.top_k));
  }
  const auto mass_of = [&](int i) {
    const float weight = tokens.weights[i];
    return kept.Has(BitsOfFloat(weight), tokens.id(i)) ? MassOf(weight) : 0ull;
  };
  // The lower bits are left out, as on the host.
  const unsigned long long random =
      static_cast<unsigned long long>(draw.random_high) << 32 |
      (draw.random_low & ~0x7ffu);
  int32_t id = -1;
  if (draw.top_p < 1) {
    const auto mass = [](float weight) { return MassOf(weight); };
    const auto mass_of_kept = [&] {
      unsigned long long sum[1] = {};
      for (int i = thread; i < tokens.count; i += threads) sum[0] += mass_of(i);
      BlockSums(shared, sum);
      return sum[0];
    };
    const unsigned long long left =
        has_top_k || draw.min_p > 0 ? mass_of_kept() : all[0];
    const auto wanted = static_cast<unsigned long long>(
        ceil(static_cast<double>(draw.top_p) * static_cast<double>(left)));
    kept = Narrow(shared, tokens, kept, mass, wanted > 0 ? wanted : 1);
    // Here the host goes through them in order of weight.
    const unsigned long long drawn = __umul64hi(random, mass_of_kept());
    id = Narrow(shared, tokens, kept, mass, drawn + 1).last;
  } else {
    const int32_t place = FindInOrder(
        shared, tokens.count, mass_of,
        [&](unsigned long long sum) { return __umul64hi(random, sum); });
    if (place >= 0) id = tokens.id(place);
  }
  if (thread == 0 && id >= 0 && id < args.vocab) args.ids[row] = id;
}

}  // namespace

int DrawTokens(Stream stream, const DrawArgs& args) {
  if (args.rows == 0) return 0;
  if (args.vocab > 1 << 19) return kInvalidValue;  // sums of masses overflow
  const int threads = min(kMostThreads, (args.vocab + 31) / 32 * 32);
  return Launch(DrawKernel, dim3(static_cast<unsigned>(args.rows)), threads,
                sizeof(Shared), stream, args);
}

}  // namespace millrace::cuda
