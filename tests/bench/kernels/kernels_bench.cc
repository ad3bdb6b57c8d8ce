// Speed of every kernel of one table on one thread, beside what the machine can
// do at best. Run it on a quiet machine:
//
//   kernels_bench [isa [format]]    isa: auto (default) or a name --isa takes;
//                                   format: Q4_K, …, only its matrices
//
// Matrices are read cold (more of them than any cache holds, one after the
// other, as a decode step does) and hot (the same one again). Times are the
// best of many short runs; compare ratios, not absolutes.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "tests/bench/kernels/best.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int64_t kColdBytes = 160 << 20;

// Zeroed memory in 2 MiB pages, as the runner keeps weights.
class Huge {
 public:
  explicit Huge(int64_t size) : bytes_((size + (4 << 20)) & ~((2 << 20) - 1)) {
    data_ = static_cast<char*>(
        std::aligned_alloc(2 << 20, static_cast<size_t>(bytes_)));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::fill(data_, data_ + bytes_, 0);
  }
  ~Huge() { std::free(data_); }
  Huge(const Huge&) = delete;
  Huge& operator=(const Huge&) = delete;
  char* data() { return data_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  char* data_;
};

struct Format {
  WeightFormat format;
  const char* name;
};
constexpr Format kFormats[] = {
    {WeightFormat::kQ4_1, "Q4_1"},     {WeightFormat::kQ4_0, "Q4_0"},
    {WeightFormat::kQ8_0, "Q8_0"},     {WeightFormat::kQ5_0, "Q5_0"},
    {WeightFormat::kQ5_1, "Q5_1"},     {WeightFormat::kQ2_K, "Q2_K"},
    {WeightFormat::kQ3_K, "Q3_K"},     {WeightFormat::kQ4_K, "Q4_K"},
    {WeightFormat::kQ5_K, "Q5_K"},     {WeightFormat::kQ6_K, "Q6_K"},
    {WeightFormat::kIQ4_NL, "IQ4_NL"}, {WeightFormat::kIQ4_XS, "IQ4_XS"},
    {WeightFormat::kMXFP4, "MXFP4"},   {WeightFormat::kF16, "F16"},
    {WeightFormat::kBF16, "BF16"},     {WeightFormat::kF32, "F32"}};

// Integer formats follow the float ones.
bool IsInteger(WeightFormat format) { return format > WeightFormat::kBF16; }

void BenchLinear(const KernelTable& t, const Roofline& roofline,
                 const Format& f, int64_t n, int64_t columns) {
  const bool wide = f.name[3] == 'K' || f.format == WeightFormat::kIQ4_XS;
  const int64_t k = wide ? (columns + 255) / 256 * 256 : columns;
  const int64_t groups = (n + t.row_group - 1) / t.row_group;
  const int64_t bytes = groups * t.group_bytes(f.format, k);
  const int64_t copies = std::max<int64_t>(1, kColdBytes / bytes);
  Huge weights(bytes * copies);
  // Quants of any value; scales stay zero: speed does not depend on them, and
  // random ones would make denormals.
  if (!t.pack_group(f.format, nullptr, 0, k, weights.data())) return;
  if (f.format == WeightFormat::kMXFP4) {  // exponents of zero are subnormal
    std::fill(weights.data(), weights.data() + weights.bytes(), 0x7f);
  }
  std::printf("%-6s %6ld x %-5ld", f.name, static_cast<long>(n),
              static_cast<long>(k));
  for (int32_t rows : {1, 2, 4, 8, 16, 64}) {
    Huge acts(rows * k * 16);
    Huge y(rows * n * 4);
    ActRows act;
    if (IsInteger(f.format)) {
      act.q = acts.as<int8_t>();
      act.d = acts.as<float>() + rows * k;
      act.s = act.d + rows * k / 32;
      act.sum = reinterpret_cast<const int32_t*>(act.s + rows * k / 32);
      act.half = reinterpret_cast<const int16_t*>(act.sum + rows * k / 32);
      act.ld_q = k;
      act.ld_block = k / 32;
    } else if (f.format == WeightFormat::kBF16 && t.round_row != nullptr) {
      act.bf16 = acts.as<uint16_t>();
      act.ld_bf16 = k;
    } else {
      act.f32 = acts.as<float>();
      act.ld_f32 = k;
    }
    int64_t copy = 0;
    const auto run = [&](int64_t which) {
      PackedMatrix w{weights.data() + which * bytes, f.format, n, k,
                     t.group_bytes(f.format, k)};
      // As many groups at a time as CpuLinear hands in.
      constexpr int64_t kPassBytes = 384 << 10;
      const int64_t step = std::max<int64_t>(kPassBytes / w.group_bytes, 1);
      for (int64_t g = 0; g < groups; g += step) {
        t.linear(w, g, std::min(g + step, groups), act, rows, y.as<float>(), n);
      }
    };
    const double hot = Best([&] { run(0); });
    const double cold = Best([&] { run(copy++ % copies); });
    const double macs = static_cast<double>(n * k * rows) * 1e-9;
    const double gb = static_cast<double>(bytes) * 1e-9;
    std::printf(" | M%-2d %4.0f %4.0f", rows, macs / hot, macs / cold);
    if (rows == 1) std::printf(" (%4.1f GB/s)", gb / cold);
  }
  const bool pairs = f.format == WeightFormat::kBF16 && t.round_row != nullptr;
  std::printf(" | peak %.0f\n", IsInteger(f.format) ? roofline.integer_gmacs
                                : pairs             ? roofline.bf16_gmacs
                                                    : roofline.float_gmacs);
}

void BenchAttention(const KernelTable& t, const Roofline& roofline,
                    KvFormat format, int32_t rows, int32_t dims) {
  const int64_t page = 64 * (format == KvFormat::kInt8  ? dims + 4
                             : format == KvFormat::kF16 ? 2 * dims
                                                        : 4 * dims);
  const int64_t splits = kColdBytes / 2 / (page * 8);
  Huge kv(splits * page * 8);
  Huge q(rows * dims * 4), o(rows * dims * 4), ml(rows * 8);
  Huge scratch(t.attend_scratch_floats(rows, dims) * 4);
  const std::vector<int32_t> visible(rows, 256);
  int64_t split = 0;
  const auto run = [&](int64_t which) {
    const void* k_pages[4];
    const void* v_pages[4];
    const void* next_k_pages[4];
    for (int i = 0; i < 4; ++i) {
      k_pages[i] = kv.data() + (which * 8 + 2 * i) * page;
      v_pages[i] = kv.data() + (which * 8 + 2 * i + 1) * page;
      next_k_pages[i] = static_cast<const char*>(k_pages[i]) +
                        (which + 1 < splits ? 8 : 0) * page;
    }
    AttendArgs args{};
    args.q = q.as<float>();
    args.q_stride = dims;
    args.num_rows = rows;
    args.head_dim = dims;
    args.visible = visible.data();
    args.num_keys = 256;
    args.k_pages = k_pages;
    args.v_pages = v_pages;
    args.next_k_pages = next_k_pages;
    args.ask_all_caches = AsksAllCaches();
    args.kv_format = format;
    args.m = ml.as<float>();
    args.l = ml.as<float>() + rows;
    args.o = o.as<float>();
    args.o_stride = dims;
    args.scratch = scratch.as<float>();
    t.attend(args);
  };
  const double hot = Best([&] { run(0); });
  const double cold = Best([&] { run(split++ % splits); });
  const double gmacs = 2e-9 * 256 * dims * rows;
  std::printf(
      "attend %s %2d rows x 256 keys x %3d: hot %5.1f cold %5.1f GMAC/s "
      "(%4.1f GB/s) | peak %.0f\n",
      format == KvFormat::kInt8  ? "int8"
      : format == KvFormat::kF16 ? "f16"
                                 : "f32",
      rows, dims, gmacs / hot, gmacs / cold,
      8e-9 * static_cast<double>(page) / cold, roofline.float_gmacs);
}

void BenchRows(const KernelTable& t) {
  constexpr int64_t kN = 1536;
  constexpr int64_t kVocab = 49152;
  Huge a(kVocab * 4), b(kVocab * 4), c(kVocab * 4);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < kVocab; ++i) {
    a.as<float>()[i] = normal(rng);
    b.as<float>()[i] = normal(rng);
  }
  float* x = a.as<float>();
  float* y = b.as<float>();
  float* z = c.as<float>();
  const Q8Row row{c.as<int8_t>(), z + kN, z + 2 * kN,
                  reinterpret_cast<int32_t*>(z + 3 * kN),
                  reinterpret_cast<int16_t*>(z + 4 * kN)};
  volatile double sink = 0;
  const auto print = [](const char* name, double seconds, int64_t n) {
    std::printf("%-12s %7.0f ns for %6ld values, %.2f values/ns\n", name,
                seconds * 1e9, static_cast<long>(n),
                static_cast<double>(n) / seconds * 1e-9);
  };
  print("quantize_row", Best([&] { t.quantize_row(x, kN, row); }), kN);
  print("rms_norm", Best([&] { t.rms_norm(x, y, kN, 1e-5f, z); }), kN);
  print("silu_mul", Best([&] { t.silu_mul(x, y, kN, z); }), kN);
  print("add", Best([&] { t.add(z, y, kN); }), kN);
  print("max", Best([&] { sink = t.max(x, kVocab); }), kVocab);
  print("sum_exp", Best([&] { sink = t.sum_exp(x, kVocab, 4.0f, 1.0f, z); }),
        kVocab);
}

int Main(const char* isa, const std::string& only) {
  const auto chosen = ChooseKernels(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 2;
  }
  const KernelTable& t = **chosen;
  const Roofline roofline = MeasureRoofline(t.name);
  {
    Huge memory(kColdBytes);
    std::printf(
        "table %s; one thread: integer %.0f GMAC/s, float %.0f GMAC/s, "
        "read %.1f GB/s\n",
        t.name, roofline.integer_gmacs, roofline.float_gmacs,
        MeasureReadGbs(memory.data(), memory.bytes()));
  }
  std::printf("\nlinear, GMAC/s hot and cold for M rows of activations\n");
  for (const Format& f : kFormats) {
    if (!only.empty() && only != f.name) continue;
    BenchLinear(t, roofline, f, 1536, 576);
    if (IsInteger(f.format)) BenchLinear(t, roofline, f, 576, 1536);
  }
  if (!only.empty()) return 0;
  BenchLinear(t, roofline, kFormats[2], 49152, 576);
  std::printf("\n");
  for (KvFormat format : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kF32}) {
    for (int32_t rows : {1, 3, 4, 48}) {
      BenchAttention(t, roofline, format, rows, 64);
    }
  }
  BenchAttention(t, roofline, KvFormat::kF16, 48, 128);
  std::printf("\n");
  BenchRows(t);
  ComputePool pool({0, 1}, "bench");
  std::printf("\nbarrier of two workers: %.0f ns\n", pool.MeasureBarrierNs());
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "auto",
                               argc > 2 ? argv[2] : "");
}
