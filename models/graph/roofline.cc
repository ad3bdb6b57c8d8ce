#include "models/graph/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "models/cpu/read_rate.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models::graph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 3;
constexpr double kMacSeconds = 0.003;
constexpr int64_t kLeastReadBytes = int64_t{32} << 20;
constexpr int64_t kMostReadBytes = int64_t{1} << 30;

double Since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Each member multiplies matrices of its own: [rows][k] by [panels][k].
struct Size {
  int64_t rows, panels, k;
};
// In L1 as f32, and in L2: tiles are fastest where long sums of many rows hide
// what comes before and behind them.
constexpr Size kSizes[] = {{48, 2, 128}, {64, 4, 1024}, {256, 4, 512}};

int64_t Lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Multiply-adds a second, if `multiply` does so many by a call with memory of
// `bytes` that starts at zero.
StatusOr<double> Rate(ComputePool& pool, double macs, int64_t bytes,
                      const std::function<void(std::byte*)>& multiply) {
  ASSIGN_OR_RETURN(
      const HugeBuffer buffer,
      HugeBuffer::Allocate(bytes * pool.size(), true, "measurement"));
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int64_t> calls{0};  // relaxed: read after all have joined
    const Clock::time_point begun = Clock::now();
    pool.Run([&](Worker& worker) {
      std::byte* memory = buffer.data() + worker.index() * bytes;
      int64_t done = 0;
      do {
        multiply(memory);
        ++done;
      } while (Since(begun) < kMacSeconds);
      calls.fetch_add(done, std::memory_order_relaxed);
    });
    best =
        std::max(best, macs * static_cast<double>(calls.load()) / Since(begun));
  }
  return best;
}

// Rows of bf16 are read and written by the products of bf16: the form in which
// layers hand them on, and the fastest.
StatusOr<double> DenseRate(ComputePool& pool, const DenseProducts& products) {
  const bool bf16 = FactorsOf(products) == Factors::kBf16;
  double best = 0;
  for (const auto& [rows, panels, k] : kSizes) {
    const int64_t n = panels * products.panel;
    GemmArgs args{.ld_x = k,
                  .row_end = rows,
                  .n = n,
                  .k = k,
                  .panel_end = panels,
                  .ld_y = n};
    const int64_t w = Lines(products.packed_floats(n, k) * 4);
    const int64_t x = Lines(rows * k * 4);
    const int64_t y = Lines(rows * n * 4);
    const int64_t scratch = Lines(products.gemm_scratch_floats(args) * 4);
    const auto multiply = [=, &products](std::byte* memory) {
      GemmArgs call = args;
      call.w = reinterpret_cast<const float*>(memory);
      if (bf16) {
        call.x_bf16 = reinterpret_cast<const Bf16*>(memory + w);
        call.y_bf16 = reinterpret_cast<Bf16*>(memory + w + x);
      } else {
        call.x = reinterpret_cast<const float*>(memory + w);
        call.y = reinterpret_cast<float*>(memory + w + x);
      }
      call.scratch = reinterpret_cast<float*>(memory + w + x + y);
      products.gemm(call);
    };
    ASSIGN_OR_RETURN(const double rate,
                     Rate(pool, static_cast<double>(rows * n * k),
                          w + x + y + scratch, multiply));
    best = std::max(best, rate);
  }
  return best;
}

StatusOr<double> Int8Rate(ComputePool& pool, const Int8Table& int8) {
  const Window window;
  double best = 0;
  for (const auto& [rows, panels, k] : kSizes) {
    const int64_t n = panels * int8.panel;
    const std::vector<int8_t> plain(static_cast<size_t>(n * k), 1);
    const std::vector<int32_t> offset(static_cast<size_t>(n), 1);
    const std::vector<float> scale(static_cast<size_t>(n), 1e-3f);
    const std::vector<float> bias(static_cast<size_t>(n));
    const int64_t packed = Lines(int8.packed_bytes(plain.data(), n, window, k));
    std::vector<int8_t> memory_of_w(static_cast<size_t>(packed) + 64);
    auto* w = memory_of_w.data();
    w += -reinterpret_cast<uintptr_t>(w) % 64;
    int8.pack(plain.data(), n, window, k, w);
    const int64_t x = Lines(rows * k);
    const int64_t y = Lines(rows * n);
    const int64_t scratch = Lines(int8.conv_scratch_bytes(window, rows, k));
    const auto multiply = [&, rows = rows, panels = panels,
                           k = k](std::byte* memory) {
      auto* bytes = reinterpret_cast<uint8_t*>(memory);
      int8.conv({.x = {bytes, 1, rows, k, rows * k, k, 0},
                 .window = window,
                 .out_width = rows,
                 .pixel_end = rows,
                 .w = w,
                 .n = n,
                 .panel_end = panels,
                 .y = bytes + x,
                 .ld_y = n,
                 .epilogue = {.offset = offset.data(),
                              .scale = scale.data(),
                              .bias = bias.data()},
                 .scratch = bytes + x + y});
    };
    ASSIGN_OR_RETURN(const double rate,
                     Rate(pool, static_cast<double>(rows * n * k),
                          x + y + scratch, multiply));
    best = std::max(best, rate);
  }
  return best;
}

// A core's own; what the system does not know is taken to be 1 MiB.
int64_t CacheBytes() {
  const int64_t known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return known > 0 ? known : int64_t{1} << 20;
}

// In seconds.
struct ByteTimes {
  double cache = 0;
  double memory = 0;
};

ByteTimes ByteTimesOf(const TeamRoofline& roofline, const StepInfo& step) {
  if (roofline.read_bytes_per_s <= 0) return {};
  if (roofline.cache_bytes_per_s <= 0) {
    return {0, step.bytes / roofline.read_bytes_per_s};
  }
  const bool weights_stay = roofline.weight_bytes <= roofline.cache_bytes;
  const double may_stay =
      weights_stay ? step.bytes : step.bytes - step.constant_bytes;
  const double cached = std::min(may_stay, roofline.cache_bytes);
  return {cached / roofline.cache_bytes_per_s,
          (step.bytes - cached) / roofline.read_bytes_per_s};
}

// The L3 that this process may use, as the operating system says; 0: unknown.
int64_t L3Bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  return std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
#else
  return 0;
#endif
}

}  // namespace

double TeamRoofline::MacSeconds(const StepInfo& step) const {
  const double peak = step.factors == Factors::kBf16   ? bf16_macs_per_s
                      : step.factors == Factors::kInt8 ? int8_macs_per_s
                                                       : macs_per_s;
  return peak > 0 ? step.macs / peak : 0;
}

double TeamRoofline::ByteSeconds(const StepInfo& step) const {
  const ByteTimes times = ByteTimesOf(*this, step);
  return times.cache + times.memory;
}

const char* TeamRoofline::ByteCeiling(const StepInfo& step) const {
  const ByteTimes times = ByteTimesOf(*this, step);
  return times.cache > times.memory ? "L2" : memory_name;
}

StatusOr<TeamRoofline> MeasureRoofline(ComputePool& pool,
                                       const Kernels& kernels,
                                       int64_t weight_bytes) {
  TeamRoofline roofline;
  ASSIGN_OR_RETURN(roofline.macs_per_s, DenseRate(pool, kernels.dense));
  if (kernels.bf16 != nullptr) {
    ASSIGN_OR_RETURN(roofline.bf16_macs_per_s, DenseRate(pool, *kernels.bf16));
  }
  ASSIGN_OR_RETURN(roofline.int8_macs_per_s, Int8Rate(pool, kernels.int8));
  const int64_t bytes =
      std::clamp(weight_bytes, kLeastReadBytes, kMostReadBytes);
  ASSIGN_OR_RETURN(const HugeBuffer buffer,
                   HugeBuffer::Allocate(bytes, true, "measurement"));
  // Pages that were never written would all be one page of zeros.
  std::fill_n(buffer.data(), bytes, std::byte{1});
  roofline.read_bytes_per_s = MeasureReadRate(pool, buffer.data(), bytes);
  if (bytes <= L3Bytes()) roofline.memory_name = "L3";
  roofline.weight_bytes = static_cast<double>(weight_bytes);
  const int64_t cache = CacheBytes() * pool.size();
  roofline.cache_bytes = static_cast<double>(cache);
  // Half of it: other things need room there.
  roofline.cache_bytes_per_s = MeasureReadRate(pool, buffer.data(), cache / 2);
  return roofline;
}

}  // namespace millrace::models::graph
