// Speed of attention of prompts: a chunk of 512 tokens at the end of a context,
// by the kernel of all rows and by the one for rows of prompts, in turns. Run
// it on a quiet machine:
//
//   prompt_attention_bench [isa] [threads] [keys]     isa: amx (default), …
//
// Heads of SmolLM2-135M (9 query heads, 3 KV heads of 64) and of Llama 3 8B
// (32, 8 of 128), f16 and int8 pages. A time is the CPU time of the slowest
// worker.

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "models/llm/cpu/attention.h"
#include "models/memory/huge_buffer.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int32_t kMostKeys = 8000;
constexpr int32_t kChunk = 512;
constexpr int kTurns = 15;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Shape {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
};

class Bench {
 public:
  Bench(const KernelTable& kernels, ComputePool& pool, const Shape& shape,
        KvFormat format, HugeBuffer& memory)
      : shape_(shape),
        pool_(pool),
        kv_{format, 1, shape.kv_heads, shape.head_dim, memory.data()},
        old_(ShapeOf(shape), kernels, pool.size()),
        new_(ShapeOf(shape), kernels, pool.size()),
        old_variant_(old_.AddVariant({})),
        new_variant_(new_.AddVariant({})),
        qkv_(size_t{kChunk} * width()) {
    new_.set_prompts_on_tiles(true);
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (float& x : qkv_) {
      x = normal(rng) / std::sqrt(static_cast<float>(shape.head_dim));
    }
    std::vector<float> k(shape.head_dim), v(shape.head_dim);
    for (int32_t key = 0; key < kMostKeys; ++key) {
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        for (float& x : k) x = normal(rng);
        for (float& x : v) x = normal(rng);
        const PageId page{key / kPageTokens};
        kernels.write_kv(k.data(), v.data(), shape.head_dim, key % kPageTokens,
                         format, kv_.k(page, 0, head), kv_.v(page, 0, head));
      }
    }
  }

  static int64_t KvBytes(const Shape& shape, KvFormat format) {
    return (kMostKeys / kPageTokens + 1) *
           KvLayout{format, 1, shape.kv_heads, shape.head_dim, nullptr}
               .page_bytes();
  }

  void Run(int32_t keys) {
    StepLimits limits;
    limits.max_tokens = kChunk;
    limits.max_seqs = 1;
    limits.max_pages_per_seq = kMostKeys / kPageTokens + 1;
    limits.max_samples = 1;
    StepBatch batch(limits);
    batch.num_seqs = 1;
    batch.num_tokens = kChunk;
    batch.q_start()[1] = kChunk;
    batch.kv_len()[0] = keys;
    batch.prompt_rows()[0] = kChunk;
    double macs = 0;
    for (int32_t i = 0; i < kChunk; ++i) {
      batch.positions()[i] = keys - kChunk + i;
      macs += 2.0 * (keys - kChunk + i + 1) * shape_.head_dim * shape_.heads;
    }
    for (int32_t page = 0; page * kPageTokens < keys; ++page) {
      batch.pages(0)[page] = PageId{page};
    }
    std::vector<float> want(qkv_.size()), got(qkv_.size());
    std::vector<double> before, after;
    for (int turn = 0; turn <= kTurns; ++turn) {
      const double old_seconds = Attend(old_, old_variant_, batch, want);
      const double new_seconds = Attend(new_, new_variant_, batch, got);
      if (turn == 0) continue;  // warms up
      before.push_back(old_seconds);
      after.push_back(new_seconds);
    }
    double error = 0, square = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      square += std::pow(double{want[i]}, 2);
    }
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    const double old_median = before[kTurns / 2];
    const double new_median = after[kTurns / 2];
    std::printf(
        "%2d x %3d %s, 512 of %4d: %4.0f (best %4.0f) -> %4.0f (best %4.0f) "
        "GMAC/s, %.2f times; they differ by %.1e of rms\n",
        shape_.heads, shape_.head_dim,
        kv_.format == KvFormat::kInt8 ? "int8" : "f16 ", keys,
        macs / old_median * 1e-9, macs / before[0] * 1e-9,
        macs / new_median * 1e-9, macs / after[0] * 1e-9,
        old_median / new_median, std::sqrt(error / square));
  }

 private:
  static BackendShape ShapeOf(const Shape& shape) {
    BackendShape out;
    out.layers = 1;
    out.heads = shape.heads;
    out.kv_heads = shape.kv_heads;
    out.head_dim = shape.head_dim;
    return out;
  }
  int64_t width() const { return int64_t{shape_.heads} * shape_.head_dim; }

  double Attend(CpuAttention& attention, const CpuAttention::Variant& variant,
                const StepBatch& batch, std::vector<float>& out) {
    attention.Plan(batch);
    std::vector<double> each(pool_.size());
    pool_.Run([&](Worker& worker) {
      worker.Barrier();
      const double start = CpuSeconds();
      attention.Run(variant, worker.index(), {}, kv_, qkv_.data(), width(),
                    out.data(), width());
      each[worker.index()] = CpuSeconds() - start;
      worker.Barrier();
      const double merge = CpuSeconds();
      const auto [begin, end] = worker.Share(kChunk);
      for (int64_t row = begin; row < end; ++row) {
        attention.Merge(variant, static_cast<int32_t>(row),
                        out.data() + row * width());
      }
      each[worker.index()] += CpuSeconds() - merge;
    });
    return *std::max_element(each.begin(), each.end());
  }

  const Shape shape_;
  ComputePool& pool_;
  KvLayout kv_;
  CpuAttention old_, new_;
  const CpuAttention::Variant old_variant_, new_variant_;
  std::vector<float> qkv_;
};

int Main(const char* isa, int threads, int32_t only_keys) {
  const auto chosen = ChooseKernels(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 2;
  }
  config::CpuSet cpus;
  for (int i = 0; i < threads; ++i) cpus.push_back(i);
  ComputePool pool(cpus, "bench");
  for (const Shape& shape : {Shape{9, 3, 64}, Shape{32, 8, 128}}) {
    for (const KvFormat format : {KvFormat::kF16, KvFormat::kInt8}) {
      StatusOr<HugeBuffer> memory =
          HugeBuffer::Allocate(Bench::KvBytes(shape, format), true, "KV cache");
      if (!memory.ok()) {
        std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
        return 2;
      }
      Bench bench(**chosen, pool, shape, format, *memory);
      for (const int32_t keys : {512, 2048, 8000}) {
        if (only_keys == 0 || keys == only_keys) bench.Run(keys);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "amx",
                               argc > 2 ? std::max(1, std::atoi(argv[2])) : 2,
                               argc > 3 ? std::atoi(argv[3]) : 0);
}
