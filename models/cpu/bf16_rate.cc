// Loops of nothing but independent chains in registers, written as assembly: it
// needs no compiler flags, and the instructions run only where the caller knows
// of them. Both kinds take turns, so that a change of the clock meets both.
#include "models/cpu/bf16_rate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace millrace::models {
namespace {

#if defined(__x86_64__)

using Clock = std::chrono::steady_clock;

// Twelve chains hide the latency of 4 to 6 clocks at two instructions a clock.
#define MILLRACE_TWELVE(op)                                               \
  op("0") op("1") op("2") op("3") op("4") op("5") op("6") op("7") op("8") \
      op("9") op("10") op("11")
#define MILLRACE_FMA(n) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" n "\n\t"
#define MILLRACE_PAIRS(n) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" n "\n\t"
// The compiler knows zmm registers by the names of their lower parts. They are
// cleared first: subnormals left in them could cost extra.
#define MILLRACE_LOOP(op)                                                      \
  asm volatile(MILLRACE_TWELVE(MILLRACE_CLEAR) MILLRACE_CLEAR("14")            \
                   MILLRACE_CLEAR("15") "1:\n\t" MILLRACE_TWELVE(              \
                       op) "dec %[n]\n\tjnz 1b\n\tvzeroupper"                  \
               : [n] "+r"(n)                                                   \
               :                                                               \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
                 "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15")
#define MILLRACE_CLEAR(n) "vpxord %%zmm" n ", %%zmm" n ", %%zmm" n "\n\t"

void RunFma(int64_t n) { MILLRACE_LOOP(MILLRACE_FMA); }
void RunPairs(int64_t n) { MILLRACE_LOOP(MILLRACE_PAIRS); }

double Seconds(void (*loop)(int64_t)) {
  constexpr int64_t kSteps = 2000;  // 4 to 15 microseconds
  const Clock::time_point begun = Clock::now();
  loop(kSteps);
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Each pair of neighbouring runs gives a ratio, and their median counts: what
// else begins or ends on the core meanwhile changes few of the ratios, where
// the best time of each kind could come from different loads.
double Measure() {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  std::array<double, 41> rates;
  Seconds(RunFma);  // the clock and the vector units wake up
  for (double& rate : rates) {
    const double fma = Seconds(RunFma);
    rate = 2 * fma / Seconds(RunPairs);  // a pair is two multiply-adds
  }
  const auto middle = rates.begin() + rates.size() / 2;
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

#else

double Measure() { return 0; }

#endif

}  // namespace

double Bf16PairRate() {
  static const double rate = Measure();
  return rate;
}

}  // namespace millrace::models
