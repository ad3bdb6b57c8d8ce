#include "models/cpu/read_rate.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kStep = 256;    // bytes of one turn of a loop
constexpr int64_t kAhead = 4096;  // bytes from a load to what is asked for
constexpr int64_t kMostBytes = int64_t{2} << 30;
constexpr int kWarmUps = 2;
constexpr int kPasses = 5;
constexpr double kEnoughSeconds = 0.06;
// What is shorter is read several times in one pass: barriers and clocks cost
// a microsecond.
constexpr int64_t kLeastPassBytes = int64_t{16} << 20;

double Since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Behind the end nothing happens: asking never faults.
inline void Ask(const std::byte* data) {
  for (int64_t line = 0; line < kStep; line += 64) {
    __builtin_prefetch(data + kAhead + line, 0, 3);
  }
}

void Read8(const std::byte* data, int64_t bytes) {
  uint64_t sum[4] = {};
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
    Ask(data + i);
    uint64_t words[kStep / 8];
    std::memcpy(words, data + i, kStep);
    for (size_t j = 0; j < kStep / 8; ++j) sum[j % 4] ^= words[j];
  }
  asm volatile("" : : "r"(sum[0] ^ sum[1] ^ sum[2] ^ sum[3]));
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void Read32(const std::byte* data,
                                            int64_t bytes) {
  __m256i sum[4] = {};
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
    Ask(data + i);
    const auto* from = reinterpret_cast<const __m256i*>(data + i);
    for (int j = 0; j < 8; ++j) {
      sum[j % 4] = _mm256_xor_si256(sum[j % 4], _mm256_loadu_si256(from + j));
    }
  }
  sum[0] = _mm256_or_si256(_mm256_or_si256(sum[0], sum[1]),
                           _mm256_or_si256(sum[2], sum[3]));
  asm volatile("" : : "x"(sum[0]));
}

__attribute__((target("avx512f"))) void Read64(const std::byte* data,
                                               int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
    Ask(data + i);
    for (int64_t j = 0; j < 4; ++j) {
      sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(data + i + 64 * j));
    }
  }
  sum[0] = _mm512_or_si512(_mm512_or_si512(sum[0], sum[1]),
                           _mm512_or_si512(sum[2], sum[3]));
  asm volatile("" : : "v"(sum[0]));
}

#endif

}  // namespace

void ReadOnce(const std::byte* data, int64_t bytes) {
#if defined(__x86_64__)
  static const auto read = __builtin_cpu_supports("avx512f") ? Read64
                           : __builtin_cpu_supports("avx2")  ? Read32
                                                             : Read8;
  read(data, bytes);
#else
  Read8(data, bytes);
#endif
}

double MeasureReadRate(ComputePool& pool, const std::byte* data,
                       int64_t bytes) {
  const int64_t steps = std::min(bytes, kMostBytes) / kStep;
  if (steps == 0) return 0;
  const int64_t times = std::max<int64_t>(1, kLeastPassBytes / (steps * kStep));
  const auto pass_bytes = static_cast<double>(times * steps * kStep);
  double best = 0;
  // Written by member 0 between two barriers.
  bool enough = false;
  pool.Run([&](Worker& worker) {
    const auto [begin, end] = worker.Share(steps);
    double spent = 0;
    for (int pass = 0; pass < kWarmUps + kPasses && !enough; ++pass) {
      worker.Barrier();
      const Clock::time_point begun = Clock::now();
      for (int64_t i = 0; i < times; ++i) {
        ReadOnce(data + begin * kStep, (end - begin) * kStep);
      }
      worker.Barrier();
      if (worker.index() == 0) {
        const double seconds = Since(begun);
        const bool late = spent > kEnoughSeconds;
        spent += seconds;
        if (pass >= kWarmUps || (pass > 0 && late)) {
          best = std::max(best, pass_bytes / seconds);
        }
        enough = best > 0 && spent > kEnoughSeconds;
      }
      worker.Barrier();
    }
  });
  return best;
}

}  // namespace millrace::models
