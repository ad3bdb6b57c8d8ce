// Speed of products with many rows, as prompts and many streams bring them: the
// AMX table's prompt_linear and linear beside linear of avx512vnni (for BF16
// weights of avx512bf16), on one and on two threads. Run it on a quiet machine:
//
//   prompt_bench [format [n k]]     format: Q4_1, …, BF16
//
// Every way runs once in each of many rounds, so that a change of clock meets
// all of them. Printed: GMAC/s of the best round and, behind a slash, of the
// median. Matrices of one product are read again and again: hot where they fit.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

// Zeroed memory in 2 MiB pages, as the runner keeps weights.
template <typename T>
class Zeros {
 public:
  explicit Zeros(int64_t size) {
    constexpr int64_t kPage = 2 << 20;
    const int64_t bytes =
        (size * int64_t{sizeof(T)} + kPage + 4096) / kPage * kPage;
    data_ = static_cast<T*>(std::aligned_alloc(kPage, bytes));
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  ~Zeros() { std::free(data_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  T* data() { return data_; }

 private:
  T* data_;
};

struct Format {
  WeightFormat format;
  const char* name;
};
constexpr Format kFormats[] = {
    {WeightFormat::kQ4_1, "Q4_1"},     {WeightFormat::kQ8_0, "Q8_0"},
    {WeightFormat::kQ4_K, "Q4_K"},     {WeightFormat::kQ4_0, "Q4_0"},
    {WeightFormat::kQ5_0, "Q5_0"},     {WeightFormat::kQ5_1, "Q5_1"},
    {WeightFormat::kQ2_K, "Q2_K"},     {WeightFormat::kQ3_K, "Q3_K"},
    {WeightFormat::kQ5_K, "Q5_K"},     {WeightFormat::kQ6_K, "Q6_K"},
    {WeightFormat::kIQ4_NL, "IQ4_NL"}, {WeightFormat::kIQ4_XS, "IQ4_XS"},
    {WeightFormat::kMXFP4, "MXFP4"},   {WeightFormat::kBF16, "BF16"}};
constexpr int kNamedFormats = 3;  // run unasked

enum class Way { kPromptLinear, kLinear };

// One product, cut between threads by groups.
class Product {
 public:
  Product(const KernelTable& table, Way way, WeightFormat format, int64_t n,
          int64_t k, int32_t rows, int threads)
      : table_(table),
        way_(way),
        rows_(rows),
        threads_(threads),
        groups_((n + 15) / 16),
        weights_(groups_ * table.group_bytes(format, k)),
        x_(rows * (k + 32) * 2),
        y_(rows * n) {
    w_ = {weights_.data(), format, n, k, table.group_bytes(format, k)};
    FillWeights();
    if (way == Way::kPromptLinear) {
      for (int t = 0; t < threads; ++t) {
        scratch_.push_back(std::make_unique<Zeros<uint8_t>>(
            table.prompt_linear_scratch_bytes(w_, rows)));
      }
    }
    if (way == Way::kPromptLinear || format == WeightFormat::kBF16) {
      for (int64_t i = 0; i < rows * (k + 32); ++i) {  // 1 to 2, of any sign
        x_.data()[i] = static_cast<uint16_t>(0x3f80 | (rng_() & 0x807f));
      }
      act_.bf16 = x_.data();
      act_.ld_bf16 = k + 32;
    } else {
      FillQ8Rows(k);
    }
  }

  void Run(int thread) {
    const int64_t begin = groups_ * thread / threads_;
    const int64_t end = groups_ * (thread + 1) / threads_;
    if (way_ == Way::kPromptLinear) {
      table_.prompt_linear(w_, begin, end, act_, rows_, y_.data(), w_.n,
                           scratch_[thread]->data());
      return;
    }
    // As many groups at a time as stay in L2.
    constexpr int64_t kPassBytes = 384 << 10;
    const int64_t step = std::max<int64_t>(kPassBytes / w_.group_bytes, 1);
    for (int64_t g = begin; g < end; g += step) {
      table_.linear(w_, g, std::min(g + step, end), act_, rows_, y_.data(),
                    w_.n);
    }
  }
  double Macs() const { return static_cast<double>(w_.n * w_.k * rows_); }

 private:
  // Bytes of any value whose f16 numbers are below 1 and no NaN. BF16 weights
  // are so, too; exponents of MXFP4 would be too small.
  void FillWeights() {
    for (int64_t i = 0; i < groups_ * w_.group_bytes; ++i) {
      weights_.data()[i] = w_.format == WeightFormat::kMXFP4
                               ? 0x7f
                               : static_cast<uint8_t>(rng_() & 0x3b);
    }
  }
  void FillQ8Rows(int64_t k) {
    const int64_t blocks = rows_ * k / 32;
    auto* q = reinterpret_cast<int8_t*>(x_.data());
    auto* d = reinterpret_cast<float*>(q + rows_ * k);
    auto* s = d + blocks;
    auto* sum = reinterpret_cast<int32_t*>(s + blocks);
    auto* half = reinterpret_cast<int16_t*>(sum + blocks);
    for (int64_t i = 0; i < rows_ * k; ++i) q[i] = static_cast<int8_t>(rng_());
    for (int64_t i = 0; i < blocks; ++i) {
      d[i] = 0.01f;
      s[i] = 0.1f;
      sum[i] = 10;
      half[2 * i] = half[2 * i + 1] = 5;
    }
    act_.q = q;
    act_.d = d;
    act_.s = s;
    act_.sum = sum;
    act_.half = half;
    act_.ld_q = k;
    act_.ld_block = k / 32;
  }

  const KernelTable& table_;
  const Way way_;
  const int32_t rows_;
  const int threads_;
  const int64_t groups_;
  Zeros<uint8_t> weights_;
  Zeros<uint16_t> x_;
  Zeros<float> y_;
  std::vector<std::unique_ptr<Zeros<uint8_t>>> scratch_;
  PackedMatrix w_;
  ActRows act_;
  std::minstd_rand rng_;
};

void Compare(const KernelTable& amx, const KernelTable& other, const Format& f,
             int64_t n, int64_t k, ComputePool& pool) {
  const int threads = pool.size();
  std::printf("%-6s %5ld x %-5ld %dT", f.name, static_cast<long>(n),
              static_cast<long>(k), threads);
  for (const int32_t rows : {1, 16, 32, 64, 128, 512}) {
    std::vector<std::unique_ptr<Product>> ways;
    const auto add = [&](const KernelTable& table, Way way) {
      ways.push_back(
          std::make_unique<Product>(table, way, f.format, n, k, rows, threads));
    };
    add(other, Way::kLinear);
    add(amx, Way::kLinear);
    add(amx, Way::kPromptLinear);
    std::vector<std::vector<double>> seconds(ways.size());
    const double until = Now() + 0.15;
    while (Now() < until || seconds[0].size() < 5) {
      for (size_t i = 0; i < ways.size(); ++i) {
        Product& product = *ways[i];
        const int calls = static_cast<int>(1 + 6e8 / product.Macs());
        const double start = Now();
        pool.Run([&](Worker& worker) {
          for (int c = 0; c < calls; ++c) product.Run(worker.index());
        });
        seconds[i].push_back((Now() - start) / calls);
      }
    }
    std::printf(" | M%-3d", rows);
    for (size_t i = 0; i < ways.size(); ++i) {
      std::sort(seconds[i].begin(), seconds[i].end());
      const double gmacs = ways[i]->Macs() * 1e-9;
      std::printf(" %4.0f/%-4.0f", gmacs / seconds[i].front(),
                  gmacs / seconds[i][seconds[i].size() / 2]);
    }
    std::fflush(stdout);
  }
  std::printf("\n");
}

int Main(const std::string& only, int64_t only_n, int64_t only_k) {
  const auto amx = ChooseKernels("amx");
  const auto vnni = ChooseKernels("avx512vnni");
  const auto bf16 = ChooseKernels("avx512bf16");
  for (const auto* chosen : {&amx, &vnni, &bf16}) {
    if (chosen->ok()) continue;
    std::fprintf(stderr, "%s\n", chosen->status().ToString().c_str());
    return 2;
  }
  std::printf(
      "GMAC/s, best/median: linear of avx512vnni (BF16: avx512bf16), linear of "
      "amx, prompt_linear of amx\n");
  ComputePool one({0}, "bench");
  ComputePool two({0, 1}, "bench");
  struct Shape {
    int64_t n, k;
  };
  for (int i = 0; i < static_cast<int>(std::size(kFormats)); ++i) {
    const Format& f = kFormats[i];
    if (only.empty() ? i >= kNamedFormats : only != f.name) continue;
    const bool wide = f.name[3] == 'K' || f.format == WeightFormat::kIQ4_XS;
    for (const Shape& shape : {Shape{576, 576}, Shape{1536, 576},
                               Shape{576, 1536}, Shape{4096, 4096}}) {
      if (only_n != 0 && (shape.n != only_n || shape.k != only_k)) continue;
      const int64_t k = wide ? (shape.k + 255) / 256 * 256 : shape.k;
      const KernelTable& other =
          f.format == WeightFormat::kBF16 ? **bf16 : **vnni;
      for (ComputePool* pool : {&one, &two}) {
        Compare(**amx, other, f, shape.n, k, *pool);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "",
                               argc > 3 ? std::atol(argv[2]) : 0,
                               argc > 3 ? std::atol(argv[3]) : 0);
}
