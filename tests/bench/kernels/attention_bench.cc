// Speed of attention as a step runs it: the real plan on the real team, one
// layer, heads of SmolLM2-135M (9 query heads, 3 kv heads of 64). Run it on a
// quiet machine:
//
//   attention_bench [isa] [threads]     isa: auto (default), scalar, avx2, …
//
// Decode: batch x context is constant, so every line reads the same bytes and
// does the same multiply-adds, and times would be equal if nothing but those
// counted. Prefill: a chunk of 512 rows behind a filled context. Each run reads
// another layer than the one before, and there are more of them than any cache
// holds: a case that followed on its own layer would find a part in L3. Lines
// are measured in turns with the read ceiling, and their medians compared. A
// time is the CPU time of the slowest worker between two barriers: what
// neighbours take of the cores is left out, what they take of caches and memory
// is not.

#include <time.h>

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
#include "models/llm/cpu/attention.h"
#include "models/memory/huge_buffer.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int32_t kKeys = 65536;  // of all sequences together
constexpr int32_t kLayers = 4;
constexpr int32_t kKvHeads = 3;
constexpr int32_t kHeads = 9;
constexpr int32_t kDims = 64;
constexpr int32_t kChunk = 512;
constexpr int kTurns = 72;
constexpr int kPrefillEvery = 6;  // turns: a chunk takes far longer

struct Ceilings {
  double read_gbs = 0;
  double float_gmacs = 0;
  double integer_gmacs = 0;
};

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// Runs body(worker) between two barriers; seconds of the slowest.
template <typename Body>
double Phase(ComputePool& pool, Body body) {
  std::vector<double> each(pool.size());
  pool.Run([&](Worker& worker) {
    worker.Barrier();
    const double start = CpuSeconds();
    body(worker);
    each[worker.index()] = CpuSeconds() - start;
  });
  return *std::max_element(each.begin(), each.end());
}

// All workers at once.
Ceilings MeasureTeam(ComputePool& pool, const char* isa) {
  Ceilings best;
  std::vector<Roofline> roofline(pool.size());
  pool.Run(
      [&](Worker& worker) { roofline[worker.index()] = MeasureRoofline(isa); });
  for (const Roofline& own : roofline) {
    best.float_gmacs += own.float_gmacs;
    best.integer_gmacs += own.integer_gmacs;
  }
  return best;
}

// All workers at once, since they share the way to memory.
double ReadSeconds(ComputePool& pool, const HugeBuffer& memory) {
  return Phase(pool, [&](Worker& worker) {
    const auto [begin, end] = worker.Share(memory.size(), 4096);
    ReadOnce(memory.data() + begin, end - begin);
  });
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

// What one step reads and computes.
struct Case {
  std::string name;
  StepBatch batch;
  double bytes = 0;
  double macs = 0;
  std::vector<double> seconds = {};
  std::vector<double> merge_seconds = {};  // part of them
};

StepLimits Limits() {
  StepLimits limits;
  limits.max_tokens = kChunk;
  limits.max_seqs = 256;
  limits.max_pages_per_seq = kKeys / kPageTokens;
  limits.max_samples = 1;
  return limits;
}

// `num_seqs` sequences of `keys` keys each, the last `rows` of them new. Pages
// are scattered, as a pool in use hands them out.
Case MakeCase(std::string name, const KvLayout& kv, int32_t num_seqs,
              int32_t keys, int32_t rows) {
  Case c{std::move(name), StepBatch(Limits())};
  StepBatch& batch = c.batch;
  batch.num_seqs = num_seqs;
  batch.num_tokens = num_seqs * rows;
  for (int32_t seq = 0; seq < num_seqs; ++seq) {
    batch.q_start()[seq] = seq * rows;
    batch.kv_len()[seq] = keys;
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t position = keys - rows + i;
      batch.positions()[seq * rows + i] = position;
      c.macs += 2.0 * (position + 1) * kDims * kHeads;
    }
    for (int32_t page = 0; page * kPageTokens < keys; ++page) {
      constexpr int32_t kPages = kKeys / kPageTokens;
      constexpr int32_t kScatter = 389;  // odd, so every page comes up once
      const int32_t nth = seq * (keys / kPageTokens) + page;
      batch.pages(seq)[page] = PageId{nth * kScatter % kPages};
    }
  }
  batch.q_start()[num_seqs] = num_seqs * rows;
  c.bytes = static_cast<double>(num_seqs) * keys / kPageTokens *
            static_cast<double>(kv.page_bytes()) / kLayers;
  return c;
}

void FillPages(const KernelTable& t, const KvLayout& kv, int32_t num_pages) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> k(kDims), v(kDims);
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    for (int32_t head = 0; head < kKvHeads; ++head) {
      for (int32_t index = 0; index < kPageTokens; ++index) {
        for (float& x : k) x = normal(rng);
        for (float& x : v) x = normal(rng);
        t.write_kv(k.data(), v.data(), kDims, index, kv.format,
                   kv.k(PageId{0}, layer, head), kv.v(PageId{0}, layer, head));
      }
    }
  }
  for (int32_t page = 1; page < num_pages; ++page) {
    std::memcpy(kv.base + page * kv.page_bytes(), kv.base, kv.page_bytes());
  }
}

struct LayerSeconds {
  double all = 0;
  double merge = 0;
};

// One layer: the items, a barrier, and the merge of what was split, shared out
// as the backend does it.
LayerSeconds RunOnce(ComputePool& pool, CpuAttention& attention,
                     const CpuAttention::Variant& variant, const Case& c,
                     int32_t layer, const KvLayout& kv,
                     const std::vector<float>& qkv, std::vector<float>& out) {
  constexpr int64_t kWidth = int64_t{kHeads} * kDims;
  const int32_t rows = c.batch.num_tokens;
  const double items = Phase(pool, [&](Worker& worker) {
    attention.Run(variant, worker.index(), {.layer = layer}, kv, qkv.data(),
                  kWidth, out.data(), kWidth);
  });
  const double merge = Phase(pool, [&](Worker& worker) {
    const auto [begin, end] = worker.Share(rows);
    for (int64_t row = begin; row < end; ++row) {
      attention.Merge(variant, static_cast<int32_t>(row),
                      out.data() + row * kWidth);
    }
  });
  return {items + merge, merge};
}

void Bench(const KernelTable& t, ComputePool& pool, KvFormat format,
           const char* format_name) {
  KvLayout kv{format, kLayers, kKvHeads, kDims, nullptr};
  constexpr int32_t kPages = kKeys / kPageTokens;
  StatusOr<HugeBuffer> memory =
      HugeBuffer::Allocate(kPages * kv.page_bytes(), true, "KV cache");
  if (!memory.ok()) {
    std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
    std::exit(2);
  }
  kv.base = memory->data();
  FillPages(t, kv, kPages);
  Ceilings top = MeasureTeam(pool, t.name);

  std::vector<Case> cases;
  for (int32_t num_seqs : {256, 64, 16, 4, 1}) {
    const int32_t keys = kKeys / num_seqs;
    cases.push_back(
        MakeCase(std::to_string(num_seqs) + " x " + std::to_string(keys), kv,
                 num_seqs, keys, 1));
  }
  const size_t decodes = cases.size();
  for (int32_t depth : {0, 2048, 7680}) {
    cases.push_back(MakeCase("512 at " + std::to_string(depth), kv, 1,
                             depth + kChunk, kChunk));
  }

  BackendShape shape;
  shape.layers = kLayers;
  shape.heads = kHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = kDims;
  CpuAttention attention(shape, t, pool.size());
  const CpuAttention::Variant variant = attention.AddVariant({});
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0.0f, 0.125f);
  std::vector<float> qkv(size_t{kChunk} * kHeads * kDims);
  std::vector<float> out(qkv.size());
  for (float& x : qkv) x = normal(rng);
  int32_t layer = 0;
  std::vector<double> reads;
  for (int turn = 0; turn <= kTurns; ++turn) {
    reads.push_back(ReadSeconds(pool, *memory));
    for (Case& c : cases) {
      if (c.batch.num_seqs != c.batch.num_tokens && turn % kPrefillEvery != 0) {
        continue;
      }
      attention.Plan(c.batch);
      const LayerSeconds seconds =
          RunOnce(pool, attention, variant, c, layer, kv, qkv, out);
      layer = (layer + 1) % kLayers;
      if (turn == 0) continue;  // warms up
      c.seconds.push_back(seconds.all);
      c.merge_seconds.push_back(seconds.merge);
    }
  }

  top.read_gbs = static_cast<double>(memory->size()) / Median(reads) * 1e-9;
  std::printf(
      "\n%s, %s KV, %d threads: float %.0f GMAC/s, read %.1f GB/s "
      "(%.0f MB a layer)\n",
      t.name, format_name, pool.size(), top.float_gmacs, top.read_gbs,
      static_cast<double>(memory->size()) / kLayers * 1e-6);
  double least = 1e9, most = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    const double median = Median(c.seconds);
    // With int8 half of the products, those with keys, are integers.
    const double key_gmacs =
        format == KvFormat::kInt8 ? top.integer_gmacs : top.float_gmacs;
    const double ceiling =
        std::max(c.bytes / (top.read_gbs * 1e9),
                 c.macs / 2e9 * (1 / key_gmacs + 1 / top.float_gmacs));
    std::printf(
        "%-12s median %7.3f least %7.3f ms, merge %4.1f %% | %5.1f GB/s %5.1f "
        "GMAC/s | %3.0f %% of the lower ceiling\n",
        c.name.c_str(), median * 1e3,
        *std::min_element(c.seconds.begin(), c.seconds.end()) * 1e3,
        100 * Median(c.merge_seconds) / median, c.bytes / median * 1e-9,
        c.macs / median * 1e-9, 100 * ceiling / median);
    if (i < decodes) {
      least = std::min(least, median);
      most = std::max(most, median);
    }
    if (i + 1 == decodes) std::printf("max / min %.2f\n", most / least);
  }
}

int Main(const char* isa, int threads) {
  const auto chosen = ChooseKernels(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 2;
  }
  config::CpuSet cpus;
  for (int i = 0; i < threads; ++i) cpus.push_back(i);
  ComputePool pool(cpus, "bench");
  Bench(**chosen, pool, KvFormat::kF16, "f16");
  Bench(**chosen, pool, KvFormat::kInt8, "int8");
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "auto",
                               argc > 2 ? std::max(1, std::atoi(argv[2])) : 2);
}
