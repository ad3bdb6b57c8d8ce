// Register-only loops with enough independent chains to fill the units. They
// are written with target attributes rather than flags, so that the program
// starts anywhere.

#include "tests/bench/kernels/roofline.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace millrace::bench {
namespace {

constexpr int64_t kSteps = 200000;

template <typename Body>
double BestSeconds(Body body) {
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const double start = Now();
    body();
    best = std::min(best, Now() - start);
  }
  return best;
}

// Twelve chains, one instruction each, nothing else in the loop.
#define TWELVE(op)                                                        \
  op("0") op("1") op("2") op("3") op("4") op("5") op("6") op("7") op("8") \
      op("9") op("10") op("11")

#define FMA256(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" n "\n\t"
#define FMA512(n) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" n "\n\t"
#define DOT256(n) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" n "\n\t"
#define DOT512(n) "vpdpbusd %%zmm14, %%zmm15, %%zmm" n "\n\t"
#define PAIR512(n) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" n "\n\t"
// Four products of pairs summed in 16 bits: half of an 8-step group.
#define NIBBLES256(n)                        \
  "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n\t" \
  "vpaddw %%ymm12, %%ymm" n ", %%ymm" n "\n\t"

void Fma256() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(FMA256) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm14", "ymm15");
}

void Fma512() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(FMA512) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm14", "ymm15");
}

void Dot512() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(DOT512) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm14", "ymm15");
}

void Dot256() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(DOT256) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm14", "ymm15");
}

void Pair512() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(PAIR512) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm14", "ymm15");
}

void Nibbles256() {
  int64_t n = kSteps;
  asm volatile("1:\n\t" TWELVE(NIBBLES256) "dec %[n]\n\tjnz 1b"
               : [n] "+r"(n)
               :
               : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
                 "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm14", "ymm15");
}

double Gmacs(double macs_each, double seconds) {
  return 12.0 * kSteps * macs_each / seconds * 1e-9;
}

}  // namespace

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Roofline MeasureRoofline(const char* isa) {
  const bool bf16 = std::strcmp(isa, "avx512bf16") == 0;
  if (bf16 || std::strcmp(isa, "avx512vnni") == 0 ||
      std::strcmp(isa, "avx512vbmi") == 0) {
    return {Gmacs(64, BestSeconds(Dot512)), Gmacs(16, BestSeconds(Fma512)),
            bf16 ? Gmacs(32, BestSeconds(Pair512)) : 0};
  }
  if (std::strcmp(isa, "avx512") == 0) {
    return {0, Gmacs(16, BestSeconds(Fma512))};
  }
  if (std::strcmp(isa, "avxvnni") == 0) {
    return {Gmacs(32, BestSeconds(Dot256)), Gmacs(8, BestSeconds(Fma256))};
  }
  if (std::strcmp(isa, "avx2") == 0) {
    return {Gmacs(32, BestSeconds(Nibbles256)), Gmacs(8, BestSeconds(Fma256))};
  }
  return {};
}

__attribute__((target("avx2"))) void ReadOnce(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  for (int64_t i = 0; i + 128 <= bytes; i += 128) {
    const auto* v = reinterpret_cast<const __m256i*>(p + i);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(v));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(v + 1));
    a = _mm256_xor_si256(a, _mm256_loadu_si256(v + 2));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(v + 3));
  }
  a = _mm256_xor_si256(a, b);
  asm volatile("" : : "x"(a));
}

double MeasureReadGbs(const void* data, int64_t bytes) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = Now();
    ReadOnce(data, bytes);
    best = std::min(best, Now() - start);
  }
  return static_cast<double>(bytes) / best * 1e-9;
}

}  // namespace millrace::bench
