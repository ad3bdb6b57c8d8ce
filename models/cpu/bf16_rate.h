// Whether this CPU's products of bf16 pairs (vdpbf16ps of AVX-512 BF16) are
// faster than its f32 multiply-adds. AMD's are: twice as many multiply-adds in
// the same time. Intel's are not: one instruction in two clocks, half of what
// f32 does, so that rounding to bf16 would cost both time and precision.
//
//   if (IsFastBf16(Bf16PairRate())) …  // "auto" may choose such tables
//
// The results of models with BF16 weights depend on this choice, so it has to
// be the same at every start: known CPUs lie at 0.5 and at 2, the limit between
// them, and what else runs on the machine slows neighbouring runs of both kinds
// alike.
#pragma once

namespace millrace::models {

// Multiply-adds a second of bf16 pairs over those of f32, in registers, the
// median of runs by turns. Measured once a process, in about 1 ms. The CPU
// must have AVX-512 BF16; elsewhere 0.
//
// Thread-safe.
double Bf16PairRate();

// Below this "auto" leaves tables of bf16 pairs out.
inline constexpr double kFastBf16Pairs = 1.3;

// `rate` as Bf16PairRate gives it.
constexpr bool IsFastBf16(double rate) { return rate >= kFastBf16Pairs; }

}  // namespace millrace::models
