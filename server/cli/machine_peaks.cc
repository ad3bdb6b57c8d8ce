// Both ceilings are the best of several short runs: anything else on the
// machine can only lower a run, never raise it. The matrix holds zeros, since
// the kernels' speed does not depend on values.
#include "server/cli/machine_peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/backend/memory.h"
#include "models/cpu/compute_pool.h"

namespace millrace::server {
namespace {

using models::ComputePool;
using models::HugeBuffer;
using models::KernelTable;
using models::WeightFormat;
using models::Worker;

constexpr int64_t kReadBytes = int64_t{256} << 20;  // beyond any cache
constexpr int kReadRuns = 8;
// 64 outputs of 512 inputs and 32 rows: weights and activations stay in L2.
constexpr int64_t kOutputs = 64;
constexpr int64_t kInputs = 512;
constexpr int32_t kRows = 32;
constexpr int kMacRuns = 8;
constexpr double kMacRunSeconds = 0.04;

using Vec = uint64_t __attribute__((vector_size(16)));

double Seconds(const std::function<void()>& body) {
  const auto begun = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun)
      .count();
}

StatusOr<double> ReadPeak(ComputePool& pool) {
  ASSIGN_OR_RETURN(const HugeBuffer buffer,
                   HugeBuffer::Allocate(kReadBytes, true, "bandwidth test"));
  const int64_t count = kReadBytes / static_cast<int64_t>(sizeof(Vec));
  auto* data = reinterpret_cast<Vec*>(buffer.data());
  // Each worker first touches what it reads later.
  pool.Run([&](Worker& worker) {
    const auto [begin, end] = worker.Share(count, 8);
    for (int64_t i = begin; i < end; ++i) data[i] = Vec{1, 2};
  });
  std::atomic<uint64_t> sink{0};  // relaxed: keeps the reads alive, no more
  double best = 0;
  for (int run = 0; run < kReadRuns; ++run) {
    const double seconds = Seconds([&] {
      pool.Run([&](Worker& worker) {
        const auto [begin, end] = worker.Share(count, 8);
        Vec sum[8] = {};
        for (int64_t i = begin; i + 8 <= end; i += 8) {
          for (int j = 0; j < 8; ++j) sum[j] += data[i + j];
        }
        Vec all = {};
        for (const Vec& part : sum) all += part;
        sink.fetch_add(all[0] + all[1], std::memory_order_relaxed);
      });
    });
    best = std::max(best, static_cast<double>(kReadBytes) / seconds);
  }
  return best;
}

// What one worker multiplies, its own memory.
struct Bench {
  std::vector<std::byte> weights;
  std::vector<float> act;
  std::vector<uint16_t> pairs;
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<int16_t> half_sums;
  std::vector<float> y;
};

double MacPeak(ComputePool& pool, const KernelTable& kernels,
               WeightFormat format) {
  const int64_t groups = (kOutputs + kernels.row_group - 1) / kernels.row_group;
  const int64_t group_bytes = kernels.group_bytes(format, kInputs);
  std::vector<Bench> benches(pool.size());
  std::vector<int64_t> calls(pool.size());
  double best = 0;
  for (int run = 0; run < kMacRuns; ++run) {
    pool.Run([&](Worker& worker) {
      Bench& b = benches[worker.index()];
      if (b.y.empty()) {
        b.weights.resize(groups * group_bytes + 64);
        b.act.resize(kRows * kInputs);
        b.pairs.resize(kRows * kInputs);
        b.q.resize(kRows * kInputs);
        b.scales.resize(kRows * kInputs / 32);
        b.sums.resize(kRows * kInputs / 32);
        b.half_sums.resize(kRows * kInputs / 16);
        b.y.resize(kRows * kOutputs);
      }
      const auto address = reinterpret_cast<uintptr_t>(b.weights.data());
      models::PackedMatrix matrix;
      matrix.data = b.weights.data() + (64 - address % 64) % 64;
      matrix.format = format;
      matrix.n = kOutputs;
      matrix.k = kInputs;
      matrix.group_bytes = group_bytes;
      models::ActRows act;
      if (format == WeightFormat::kBF16 && kernels.round_row != nullptr) {
        act.bf16 = b.pairs.data();
        act.ld_bf16 = kInputs;
      } else if (format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
                 format == WeightFormat::kBF16) {
        act.f32 = b.act.data();
        act.ld_f32 = kInputs;
      } else {
        act.q = b.q.data();
        act.d = act.s = b.scales.data();
        act.sum = b.sums.data();
        act.half = b.half_sums.data();
        act.ld_q = kInputs;
        act.ld_block = kInputs / 32;
      }
      // A fixed time rather than a fixed count: tables differ a hundredfold.
      const auto begun = std::chrono::steady_clock::now();
      const auto until = begun + std::chrono::duration<double>(kMacRunSeconds);
      calls[worker.index()] = 0;
      while (std::chrono::steady_clock::now() < until) {
        for (int i = 0; i < 4; ++i) {
          kernels.linear(matrix, 0, groups, act, kRows, b.y.data(), kOutputs);
        }
        calls[worker.index()] += 4;
      }
    });
    int64_t all = 0;
    for (const int64_t count : calls) all += count;
    best =
        std::max(best, static_cast<double>(all * kOutputs * kInputs * kRows) /
                           kMacRunSeconds);
  }
  return best;
}

}  // namespace

StatusOr<MachinePeaks> MeasurePeaks(const config::CpuSet& team,
                                    const KernelTable& kernels,
                                    WeightFormat format) {
  ComputePool pool(team, "peaks");
  MachinePeaks peaks;
  ASSIGN_OR_RETURN(peaks.read_bytes_per_s, ReadPeak(pool));
  // The scalar table packs every format; another may leave one to it.
  const std::vector<std::byte> zeros(64 * 1024);
  const void* row = zeros.data();
  std::vector<std::byte> group(kernels.group_bytes(format, kInputs));
  const bool packs = kernels.pack_group(format, &row, 1, kInputs, group.data());
  peaks.macs_per_s =
      MacPeak(pool, packs ? kernels : *models::ScalarKernels(), format);
  return peaks;
}

}  // namespace millrace::server
