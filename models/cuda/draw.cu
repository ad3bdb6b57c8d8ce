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

struct Shared {
  unsigned long long parts[kBounds][kMostWarps];
  unsigned long long sums[kBounds];
  int32_t found;
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

// The first id with which the sum of `measure` over the ids up to it is above
// target(sum of all); -1 where there is none.
template <class Measure, class Target>
__device__ __forceinline__ int32_t FindInOrder(Shared& shared, int vocab,
                                               const Measure& measure,
                                               const Target& target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int range = ((vocab + warps - 1) / warps + 31) / 32 * 32;
  const int begin = warp * range;
  const int end = min(begin + range, vocab);
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
__device__ __forceinline__ Kept Narrow(Shared& shared, const float* weights,
                                       int vocab, const Kept& kept,
                                       const Measure& measure,
                                       unsigned long long wanted) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  uint32_t bound = 0;
  for (int shift = kFirstShift; shift >= 0; shift -= 3) {
    unsigned long long sums[kBounds] = {};
    MILLRACE_UNROLL_BY(4)
    for (int id = thread; id < vocab; id += threads) {
      const float weight = weights[id];
      const uint32_t bits = BitsOfFloat(weight);
      const unsigned long long mass = kept.Has(bits, id) ? measure(weight) : 0;
      MILLRACE_UNROLL
      for (int i = 0; i < kBounds; ++i) {
        sums[i] +=
            bits >= bound + (static_cast<uint32_t>(i + 1) << shift) ? mass : 0;
      }
    }
    BlockSums(shared, sums);
    int digit = 0;
    MILLRACE_UNROLL
    for (int i = 0; i < kBounds; ++i) digit += sums[i] >= wanted ? 1 : 0;
    bound += static_cast<uint32_t>(digit) << shift;
  }
  if (bound < kept.bound) return kept;
  unsigned long long above[1] = {};
  for (int id = thread; id < vocab; id += threads) {
    const uint32_t bits = BitsOfFloat(weights[id]);
    if (bits > bound && kept.Has(bits, id)) above[0] += measure(weights[id]);
  }
  BlockSums(shared, above);
  const unsigned long long each = measure(FloatOfBits(bound));
  const unsigned long long more = (wanted - above[0] + each - 1) / each;
  const int32_t last = FindInOrder(
      shared, vocab,
      [&](int id) {
        const uint32_t bits = BitsOfFloat(weights[id]);
        return bits == bound && kept.Has(bits, id) ? 1ull : 0ull;
      },
      [&](unsigned long long) { return more - 1; });
  return last < 0 ? kept : Kept{bound, last};
}

__global__ void __launch_bounds__(kMostThreads) DrawKernel(DrawArgs args) {
  Shared& shared = *SharedMemory<Shared>();
  const int64_t row = blockIdx.x;
  const DrawRow draw = args.draws[row];
  if (draw.inverse_temperature == 0) return;  // the greatest, whose id is there
  float* weights = args.logits + row * args.pitch;
  const float greatest = weights[args.ids[row]];
  if (isnan(greatest) || isinf(greatest)) return;
  __syncthreads();
  for (int id = static_cast<int>(threadIdx.x); id < args.vocab;
       id += static_cast<int>(blockDim.x)) {
    weights[id] =
        Exp(__fmul_rn(weights[id] - greatest, draw.inverse_temperature));
  }
  __syncthreads();
  constexpr float kLeast = 0x1p-126f;
  Kept kept = {BitsOfFloat(fmaxf(draw.min_p, kLeast)), args.vocab};
  if (draw.top_k > 0 && draw.top_k < args.vocab) {
    kept = Narrow(
        shared, weights, args.vocab, kept, [](float) { return 1ull; },
        static_cast<unsigned long long>(draw.top_k));
  }
  const auto mass_of = [&](int id) {
    const float weight = weights[id];
    return kept.Has(BitsOfFloat(weight), id) ? MassOf(weight) : 0ull;
  };
  // The lower bits are left out, as on the host.
  const unsigned long long random =
      static_cast<unsigned long long>(draw.random_high) << 32 |
      (draw.random_low & ~0x7ffu);
  int32_t id = -1;
  if (draw.top_p < 1) {
    const auto mass = [](float weight) { return MassOf(weight); };
    const auto mass_of_all = [&] {
      unsigned long long all[1] = {};
      for (int i = static_cast<int>(threadIdx.x); i < args.vocab;
           i += static_cast<int>(blockDim.x)) {
        all[0] += mass_of(i);
      }
      BlockSums(shared, all);
      return all[0];
    };
    const auto wanted = static_cast<unsigned long long>(ceil(
        static_cast<double>(draw.top_p) * static_cast<double>(mass_of_all())));
    kept = Narrow(shared, weights, args.vocab, kept, mass,
                  wanted > 0 ? wanted : 1);
    // Here the host goes through them in order of weight.
    const unsigned long long drawn = __umul64hi(random, mass_of_all());
    id = Narrow(shared, weights, args.vocab, kept, mass, drawn + 1).last;
  } else {
    id = FindInOrder(shared, args.vocab, mass_of, [&](unsigned long long all) {
      return __umul64hi(random, all);
    });
  }
  if (threadIdx.x == 0 && id >= 0 && id < args.vocab) args.ids[row] = id;
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
