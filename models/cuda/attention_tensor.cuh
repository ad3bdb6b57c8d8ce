// What attention on tensor cores makes of pages of f16 or int8: rows of keys
// and values in shared memory, and fragments of them.
//
// int8 become f16 in registers. A key's 16 bytes are a fragment's row, so lane
// t of four gets neighbouring values 4 t to 4 t + 3, where of f16 it gets 2 t,
// 2 t
// + 1, 2 t + 8 and 2 t + 9. Queries are laid out likewise, and a sum does not
// mind. Of values two neighbours are turned over together, so one fragment has
// the even ones of 16 and the next one the odd ones; PairAt knows.
#pragma once

#include "models/cuda/async_copy.cuh"
#include "models/cuda/attention.cuh"
#include "models/cuda/tensor_core.cuh"

namespace millrace::cuda {

// Rows in shared memory. kDim: head_dim, rounded up to a multiple of 32.
template <int kDim_, bool kInt8_>
struct PageShape {
  static constexpr int kDim = kDim_;
  static constexpr bool kInt8 = kInt8_;
  static constexpr int kUnits = kDim / (kInt8 ? 16 : 8);  // of 16 bytes, a row
  // One more stands behind a row, so that the eight rows of a matrix are in
  // different banks.
  static constexpr int kPitch = kUnits + 1;
  static constexpr int kQueryPitch = kDim / 8 + 1;  // queries are f16
  // Steps of 16 values that LoadKeys gives, and fragments of 8 values that
  // LoadValues gives.
  static constexpr int kSteps = kInt8 ? 2 : 1;
  static constexpr int kOutputs = kInt8 ? 4 : 2;
};

// Starts the copying of kKeys rows of a page to shared memory by kThreads
// threads, of which this is number `thread`: those of positions from `position`
// on, which begin at `from`. Those that no row sees become zeros: 0 times what
// stands there may be NaN. kUnits: 16 bytes, in a row, rounded up.
template <int kKeys, int kUnits, int kThreads>
__device__ __forceinline__ void CopyRows(const std::byte* from, int row_bytes,
                                         int position, const Seen& seen,
                                         int thread,
                                         uint4 (&rows)[kKeys][kUnits + 1]) {
  const auto there = [&](int key) {
    return position + key <= seen.last && position + key >= seen.first;
  };
  if (row_bytes == 16 * kUnits) {
    // Threads that share a row.
    constexpr int kShare = kUnits % 8 == 0 ? 8 : kUnits % 4 == 0 ? 4 : 2;
    constexpr int kStep = kThreads / kShare;
    static_assert(kUnits % kShare == 0 && kKeys % kStep == 0);
    const int first_key = thread / kShare;
    uint4* to = &rows[first_key][thread % kShare];
    from += 16 * (first_key * kUnits + thread % kShare);
    MILLRACE_UNROLL
    for (int key = 0; key < kKeys; key += kStep) {
      MILLRACE_UNROLL
      for (int unit = 0; unit < kUnits; unit += kShare) {
        CopyAsync<16>(to + key * (kUnits + 1) + unit,
                      from + 16 * (key * kUnits + unit),
                      there(first_key + key));
      }
    }
  } else if (row_bytes % 16 == 0) {
    const int units = row_bytes / 16;
    MILLRACE_NO_UNROLL
    for (int i = thread; i < kKeys * units; i += kThreads) {
      const int key = i / units;
      CopyAsync<16>(&rows[key][i % units], from + 16 * i, there(key));
    }
  } else {
    const int words = row_bytes / 4;
    MILLRACE_NO_UNROLL
    for (int i = thread; i < kKeys * words; i += kThreads) {
      const int key = i / words;
      CopyAsync<4>(reinterpret_cast<uint32_t*>(rows[key]) + i % words,
                   from + 4 * i, there(key));
    }
  }
}

// The d of kKeys keys or values, likewise; 0 of those that no row sees.
template <int kKeys, int kThreads>
__device__ __forceinline__ void CopyScales(const std::byte* from, int position,
                                           const Seen& seen, int thread,
                                           float (&scales)[kKeys]) {
  MILLRACE_UNROLL
  for (int first = 0; first < kKeys; first += kThreads) {
    const int key = first + thread;
    if (kKeys % kThreads != 0 && key >= kKeys) break;
    CopyAsync<4>(&scales[key], from + 4 * key,
                 position + key <= seen.last && position + key >= seen.first);
  }
}

// Writes zeros where no copy writes, by kThreads threads: behind rows that are
// shorter than a fragment's. Whether it wrote any. int8 may stand there, as 0
// times any is 0.
template <class S, int kThreads>
__device__ __forceinline__ bool ClearRows(uint4* units, int count, int dim,
                                          int thread) {
  if constexpr (!S::kInt8) {
    if (dim != S::kDim) {
      for (int i = thread; i < count; i += kThreads) units[i] = {0, 0, 0, 0};
      return true;
    }
  }
  return false;
}

// A warp writes pair's query as f16 times a power of two, so that the greatest
// magnitude is in [2^13, 2^14), zeros behind it, and returns what undoes the
// power. Out of reach of that: 0 in f16, or infinite, which it stays.
template <class S>
__device__ __forceinline__ float RoundQuery(const float* q, int dim,
                                            uint16_t* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float greatest = 0;
  for (int d = lane; d < dim; d += 32) greatest = fmaxf(greatest, fabsf(q[d]));
  greatest = WarpMax(greatest);
  float scale = 1;
  float inverse = 1;
  const int exponent = static_cast<int>(BitsOfFloat(greatest) >> 23);
  if (exponent > 40 && exponent < 255) {
    scale = FloatOfBits(static_cast<uint32_t>(exponent - 13) << 23);
    inverse = FloatOfBits(static_cast<uint32_t>(254 - exponent + 13) << 23);
  }
  for (int i = lane; i < S::kDim; i += 32) {
    // Place 2 t + a of the first 8 of 16 has value 4 t + a, of the others value
    // 4 t + 2 + a.
    const int d =
        S::kInt8 ? (i & ~15) | (i & 6) << 1 | (i & 8) >> 2 | (i & 1) : i;
    out[i] = d < dim ? ToHalf(q[d] * inverse) : uint16_t{0};
  }
  return scale;
}

// Two f32 that are aligned to 8 bytes.
__device__ __forceinline__ void LoadPair(const float* from, float (&to)[2]) {
  const float2 both = *reinterpret_cast<const float2*>(from);
  to[0] = both.x;
  to[1] = both.y;
}

// Two bytes of four int8, which are 128 more here, as f16.
template <int kFirst, int kSecond>
__device__ __forceinline__ uint32_t HalvesOf(uint32_t biased) {
  // 0x6400 is 1024, so 0x6400 + x is 1024 + x.
  return SubtractHalves(
      __byte_perm(biased, 0x64646464, 0x4040 | kFirst | kSecond << 8),
      0x64806480);
}
inline constexpr uint32_t kInt8Bias = 0x80808080;

// Keys 0 to 7 (w[..][0], w[..][1]) and 8 to 15 for kSteps steps of 16 values,
// of which this is number `k`. `keys` is &row[lane % 8 + lane / 16 * 8][lane /
// 8 % 2] of the first of 16 rows.
template <class S>
__device__ __forceinline__ void LoadKeys(const uint4* keys, int k,
                                         uint32_t (&w)[S::kSteps][4]) {
  if constexpr (S::kInt8) {
    uint32_t bytes[4];
    LoadFragments<false>(keys + 2 * k, bytes);
    MILLRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t biased = bytes[i] ^ kInt8Bias;
      w[i % 2][i / 2 * 2] = HalvesOf<0, 1>(biased);
      w[i % 2][i / 2 * 2 + 1] = HalvesOf<2, 3>(biased);
    }
  } else {
    LoadFragments<false>(keys + 2 * k, w[0]);
  }
}

// Values of 16 tokens for kOutputs fragments of 8 outputs, of which these are
// number kOutputs * d and so on. `values` is &row[lane % 16][lane / 16] of the
// first of 16 rows.
template <class S>
__device__ __forceinline__ void LoadValues(const uint4* values, int d,
                                           uint32_t (&w)[S::kOutputs][2]) {
  uint32_t all[4];
  LoadFragments<true>(values + 2 * d, all);
  MILLRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (S::kInt8) {
      const uint32_t biased = all[i] ^ kInt8Bias;
      w[i / 2 * 2][i % 2] = HalvesOf<0, 2>(biased);
      w[i / 2 * 2 + 1][i % 2] = HalvesOf<1, 3>(biased);
    } else {
      w[i / 2][i % 2] = all[i];
    }
  }
}

// Two neighbouring outputs of a lane's row r (0 or 1), and the first one's
// number.
template <class S>
__device__ __forceinline__ float2 PairAt(const float (&out)[S::kDim / 8][4],
                                         int j, int r) {
  if (!S::kInt8) return {out[j][2 * r], out[j][2 * r + 1]};
  return {out[j / 2 * 2][2 * r + j % 2], out[j / 2 * 2 + 1][2 * r + j % 2]};
}
template <class S>
__device__ __forceinline__ int NumberAt(int j, int lane) {
  return S::kInt8 ? j / 2 * 16 + lane % 4 * 4 + j % 2 * 2
                  : 8 * j + lane % 4 * 2;
}

// What weights times d are divided by before they become f16, so that the
// greatest is in [1, 2); 2^-86 at least.
__device__ __forceinline__ float PowerBelow(float greatest) {
  const uint32_t exponent = BitsOfFloat(greatest) >> 23;
  return FloatOfBits((exponent > 41 ? exponent : 41) << 23);
}
__device__ __forceinline__ float InverseOfPower(float power) {
  return FloatOfBits((254u << 23) - BitsOfFloat(power));
}

}  // namespace millrace::cuda
