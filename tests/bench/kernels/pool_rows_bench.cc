// Speed of embedding bags over tables beyond the caches, beside what the
// machine reads at best: one JSON line each, for tests/bench/ranking.py.
//
//   pool_rows_bench [tables [rows [threads [isa]]]]      8, 1,000,000, 2, auto
//
// Each table has rows of 64 values; f32 tables of the default are 2 GB. Bags
// have 20 rows on average, drawn at random from all rows. "stream" reads the
// tables from front to back, "rows" reads the same random rows with the same
// prefetch and adds up one register, so that nothing but the reads costs: the
// limit of this access. Huge pages where the system gives them, and pages of 4
// KiB, as a mapped file has them. All lines are measured by turns; a line is
// the best of its turns.
// Times are the CPU time of the slowest thread: what neighbours take of the
// cores is left out, what they take of caches and memory is not.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "models/cpu/pool_rows.h"
#include "models/cpu/read_rate.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int64_t kSize = 64;
constexpr int64_t kBags = 8192;  // of each table, in one run
constexpr int64_t kRowsOfBag = 20;
constexpr int kTurns = 7;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// Bytes of all tables, touched by the threads that read them.
class Memory {
 public:
  Memory(int64_t bytes, bool huge) : bytes_(bytes) {
    void* at =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      std::perror("mmap");
      std::exit(1);
    }
    ::madvise(at, static_cast<size_t>(bytes),
              huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    data_ = static_cast<std::byte*>(at);
    // Finite in every type of row.
    for (int64_t i = 0; i < bytes; i += 4) {
      const uint32_t bits = 0x3c003c00;
      std::memcpy(data_ + i, &bits, 4);
    }
  }
  ~Memory() { ::munmap(data_, static_cast<size_t>(bytes_)); }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  const int64_t bytes_;
};

struct Type {
  const char* name;
  TableRows rows;
  int64_t row_bytes;
};
constexpr Type kTypes[] = {{"f32", TableRows::kF32, 4 * kSize},
                           {"f16", TableRows::kF16, 2 * kSize},
                           {"int8", TableRows::kInt8, kSize + kInt8RowExtra}};

class Bench {
 public:
  Bench(int64_t tables, int64_t rows, int threads, const std::string& isa)
      : tables_(tables), rows_(rows), pool_(Cpus(threads), "bench") {
    const auto table = ChooseDense(isa);
    if (!table.ok()) {
      std::fprintf(stderr, "%s\n", table.status().ToString().c_str());
      std::exit(1);
    }
    isa_ = (*table)->name;
    kernel_ = PoolRowsOf(isa_);
    std::mt19937_64 random(1);
    for (int64_t table_idx = 0; table_idx < tables; ++table_idx) {
      std::vector<int64_t>& offsets = offsets_.emplace_back();
      std::vector<int64_t>& indices = indices_.emplace_back();
      for (int64_t bag = 0; bag < kBags; ++bag) {
        offsets.push_back(static_cast<int64_t>(indices.size()));
        const auto count =
            static_cast<int64_t>(random() % (2 * kRowsOfBag + 1));
        for (int64_t i = 0; i < count; ++i) {
          indices.push_back(
              static_cast<int64_t>(random() % static_cast<uint64_t>(rows)));
        }
      }
    }
    out_.resize(static_cast<size_t>(kBags * kSize));
  }

  void Run(bool huge) {
    const Memory memory(tables_ * rows_ * kTypes[0].row_bytes, huge);
    double stream = 0;
    double limit[std::size(kTypes)] = {};
    double pooled[std::size(kTypes)] = {};
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn % 3 == 0) stream = std::max(stream, Stream(memory));
      for (size_t i = 0; i < std::size(kTypes); ++i) {
        limit[i] = std::max(limit[i], Rate(kTypes[i], memory, true));
        pooled[i] = std::max(pooled[i], Rate(kTypes[i], memory, false));
      }
    }
    for (size_t i = 0; i < std::size(kTypes); ++i) {
      std::printf(
          "{\"isa\": \"%s\", \"threads\": %d, \"pages\": \"%s\", \"rows\": "
          "\"%s\", \"row_bytes\": %lld, \"stream_gbs\": %.2f, \"rows_gbs\": "
          "%.2f, \"pooled_gbs\": %.2f}\n",
          isa_.c_str(), pool_.size(), huge ? "huge" : "4 KiB", kTypes[i].name,
          static_cast<long long>(kTypes[i].row_bytes), stream * 1e-9,
          limit[i] * 1e-9, pooled[i] * 1e-9);
    }
    std::fflush(stdout);
  }

 private:
  static config::CpuSet Cpus(int threads) {
    config::CpuSet cpus;
    for (int i = 0; i < threads; ++i) cpus.push_back(i);
    return cpus;
  }

  // CPU seconds of the slowest worker.
  template <typename Body>
  double Seconds(Body body) {
    std::vector<double> took(static_cast<size_t>(pool_.size()));
    pool_.Run([&](Worker& worker) {
      const double begin = CpuSeconds();
      body(worker);
      took[static_cast<size_t>(worker.index())] = CpuSeconds() - begin;
    });
    return *std::max_element(took.begin(), took.end());
  }

  double Stream(const Memory& memory) {
    const double seconds = Seconds([&](Worker& worker) {
      const auto [begin, end] = worker.Share(memory.bytes(), 4096);
      ReadOnce(memory.data() + begin, end - begin);
    });
    return static_cast<double>(memory.bytes()) / seconds;
  }

  // Bytes of rows a second.
  double Rate(const Type& type, const Memory& memory, bool reads_alone) {
    int64_t rows = 0;
    double seconds = 0;
    for (size_t i = 0; i < indices_.size(); ++i) {
      const auto count = static_cast<int64_t>(indices_[i].size());
      rows += count;
      const PoolRowsArgs args{
          .table =
              memory.data() + static_cast<int64_t>(i) * rows_ * type.row_bytes,
          .type = type.rows,
          .size = kSize,
          .row_bytes = type.row_bytes,
          .rows = indices_[i].data(),
          .offsets = offsets_[i].data(),
          .num_offsets = kBags,
          .num_rows = count,
          .out = out_.data()};
      seconds += Seconds([&](Worker& worker) {
        PoolRowsArgs own = args;
        std::tie(own.bag_begin, own.bag_end) = worker.Share(kBags);
        reads_alone ? ReadRows(own) : kernel_(own);
      });
    }
    return static_cast<double>(rows * type.row_bytes) / seconds;
  }

  // As the kernel goes over its rows, with one addition for each 64 bytes.
  static void ReadRows(const PoolRowsArgs& args) {
    const int64_t distance = (12 << 10) / args.row_bytes + 1;
    const int64_t begin = args.offsets[args.bag_begin];
    const int64_t end = args.bag_end < args.num_offsets
                            ? args.offsets[args.bag_end]
                            : args.num_rows;
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t next = std::min(i + distance, end - 1);
      const std::byte* ahead = args.table + args.rows[next] * args.row_bytes;
      const std::byte* row = args.table + args.rows[i] * args.row_bytes;
      for (int64_t at = 0; at < args.row_bytes; at += 64) {
        __builtin_prefetch(ahead + at, 0, 2);
        uint64_t word;
        std::memcpy(&word, row + at, sizeof word);
        sum += word;
      }
    }
    args.out[args.bag_begin * args.size] = static_cast<float>(sum & 1);
  }

  const int64_t tables_;
  const int64_t rows_;
  ComputePool pool_;
  std::string isa_;
  PoolRows kernel_ = nullptr;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<std::vector<int64_t>> indices_;
  std::vector<float> out_;
};

int64_t Number(int argc, char** argv, int i, int64_t otherwise) {
  return argc > i ? std::atoll(argv[i]) : otherwise;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  using millrace::bench::Number;
  millrace::bench::Bench bench(
      Number(argc, argv, 1, 8), Number(argc, argv, 2, 1'000'000),
      static_cast<int>(Number(argc, argv, 3, 2)), argc > 4 ? argv[4] : "auto");
  for (const bool huge : {true, false}) bench.Run(huge);
  return 0;
}
