// What benchmarks on a GPU share: an error ends the program, buffers beyond
// what caches hold, the median of a few runs. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "models/gpu/cuda_context.h"

namespace millrace::bench {

inline void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Must(StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// GPU 0 by the module that OpenCudaModule finds.
inline std::shared_ptr<models::CudaContext> OpenGpu() {
  return Must(
      models::CudaContext::Open(Must(models::OpenCudaModule()), 0, {"", ""}));
}

// Masks of 32 random bits: positive values below 2 of f16, or of f32.
inline constexpr uint32_t kHalves = 0x3bff3bff;
inline constexpr uint32_t kFloats = 0x3f7fffff;

// `bytes` of the device, of random bits under the mask.
inline models::CudaBuffer RandomOnGpu(models::CudaContext& context,
                                      int64_t bytes, uint32_t mask) {
  std::mt19937 random(1);
  std::vector<uint32_t> words(
      static_cast<size_t>(std::min<int64_t>(bytes / 4 + 1, int64_t{1} << 22)));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random()) & mask;
  models::CudaBuffer buffer = Must(context.Allocate(bytes, "a benchmark"));
  for (int64_t at = 0; at < bytes;) {
    const int64_t size =
        std::min(bytes - at, static_cast<int64_t>(words.size()) * 4);
    Must(context.Upload(buffer.data() + at, words.data(), size));
    at += size;
  }
  Must(context.Wait());
  return buffer;
}

// Microseconds until what `launch` starts has run: the median of seven, after
// one that does not count.
template <typename Launch>
double MedianMicros(models::CudaContext& context, Launch launch) {
  constexpr int kRuns = 7;
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    const auto begun = std::chrono::steady_clock::now();
    launch();
    Must(context.Wait());
    const std::chrono::duration<double, std::micro> took =
        std::chrono::steady_clock::now() - begun;
    if (run > 0) times.push_back(took.count());
  }
  std::ranges::sort(times);
  return times[kRuns / 2];
}

}  // namespace millrace::bench
