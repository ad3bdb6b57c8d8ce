#include "models/graph/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "models/backend/memory.h"

namespace millrace::models::graph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 3;
constexpr double kMacSeconds = 0.003;
constexpr int64_t kReadBytes = int64_t{128} << 20;

double Since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Each member multiplies small matrices of its own: 48 rows, two panels and 128
// steps are 24 KiB of x, 16 KiB of w at most.
StatusOr<double> MeasureMacs(ComputePool& pool, const DenseTable& dense) {
  constexpr int64_t kRows = 48;
  constexpr int64_t kSteps = 128;
  const int64_t n = 2 * dense.panel;
  const int64_t packed = dense.packed_floats(n, kSteps);
  const int64_t each = (packed + kRows * (kSteps + n) + 15) / 16 * 16;
  ASSIGN_OR_RETURN(
      const HugeBuffer buffer,
      HugeBuffer::Allocate(each * 4 * pool.size(), true, "measurement"));
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int64_t> calls{0};  // relaxed: read after all have joined
    const Clock::time_point begun = Clock::now();
    pool.Run([&](Worker& worker) {
      auto* w = reinterpret_cast<float*>(buffer.data()) + worker.index() * each;
      float* x = w + packed;
      int64_t done = 0;
      do {
        for (int i = 0; i < 16; ++i, ++done) {
          dense.gemm({.x = x,
                      .ld_x = kSteps,
                      .row_end = kRows,
                      .w = w,
                      .n = n,
                      .k = kSteps,
                      .panel_end = 2,
                      .y = x + kRows * kSteps,
                      .ld_y = n});
        }
      } while (Since(begun) < kMacSeconds);
      calls.fetch_add(done, std::memory_order_relaxed);
    });
    const double macs = static_cast<double>(calls.load()) *
                        static_cast<double>(kRows * kSteps) *
                        static_cast<double>(n);
    best = std::max(best, macs / Since(begun));
  }
  return best;
}

StatusOr<double> MeasureRead(ComputePool& pool, const DenseTable& dense) {
  ASSIGN_OR_RETURN(const HugeBuffer buffer,
                   HugeBuffer::Allocate(kReadBytes, true, "measurement"));
  auto* data = reinterpret_cast<float*>(buffer.data());
  // Pages that were never written would all be one page of zeros.
  std::fill_n(data, kReadBytes / 4, 1.0f);
  constexpr int64_t kRow = 4096;
  std::vector<float> sums(static_cast<size_t>(kReadBytes / 4 / kRow));
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point begun = Clock::now();
    pool.Run([&](Worker& worker) {
      const auto [begin, end] =
          worker.Share(static_cast<int64_t>(sums.size()), 16);
      dense.reduce(ReduceKind::kMax, data + begin * kRow, end - begin, kRow,
                   kRow, sums.data() + begin);
    });
    best = std::max(best, static_cast<double>(kReadBytes) / Since(begun));
  }
  return best;
}

}  // namespace

StatusOr<TeamPeaks> MeasurePeaks(ComputePool& pool, const DenseTable& dense) {
  TeamPeaks peaks;
  ASSIGN_OR_RETURN(peaks.macs_per_s, MeasureMacs(pool, dense));
  ASSIGN_OR_RETURN(peaks.read_bytes_per_s, MeasureRead(pool, dense));
  return peaks;
}

}  // namespace millrace::models::graph
