// RoPE with the write into pages, beside plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda_emulation/kernel_inputs.h"
#include "tests/cuda_emulation/kv_pages.h"

namespace millrace::cuda {
namespace {

TEST(Rope, WhatF16CannotHoldIsStoredAsItsGreatest) {
  KvPages cache({1, 4, false}, 64);
  DeviceArray<float> x(
      {0, 0, 0, 0, 1e6f, -1e6f, 3, INFINITY, 70000, -70000, 65504, 1});
  DeviceArray<int32_t> positions({5}), pages({cache.pages()[0]});
  ASSERT_EQ(RopeWriteKv(nullptr, {.kv = cache.View(),
                                  .layer = 1,
                                  .heads = 1,
                                  .qkv = x.get(),
                                  .pitch = 12,
                                  .rows = 1,
                                  .row_positions = positions.get(),
                                  .row_pages = pages.get()}),
            0);
  cache.Download();
  const double keys[] = {65504, -65504, 3, 65504};
  const double values[] = {65504, -65504, 65504, 1};
  for (int32_t d = 0; d < 4; ++d) {
    EXPECT_EQ(cache.At(false, 5, 0, d), keys[d]);
    EXPECT_EQ(cache.At(true, 5, 0, d), values[d]);
  }
}

// By how much scores of long texts are sharpened (Nakanishi 2025).
TEST(Rope, TempersQueriesByTheirPosition) {
  KvPages cache({1, 2, true}, 100);
  const std::vector<int32_t> positions = {0, 14, 15, 31, 99};
  DeviceArray<float> x(std::vector<float>(5 * 8, 3));
  DeviceArray<int32_t> row_positions(positions);
  DeviceArray<int32_t> row_pages(std::vector<int32_t>(5, cache.pages()[0]));
  ASSERT_EQ(RopeWriteKv(nullptr, {.kv = cache.View(),
                                  .layer = 1,
                                  .heads = 1,
                                  .qkv = x.get(),
                                  .pitch = 8,
                                  .rows = 5,
                                  .row_positions = row_positions.get(),
                                  .row_pages = row_pages.get(),
                                  .q_scale = 0.5f,
                                  .temper_length = 16,
                                  .temper_scale = 0.25f}),
            0);
  const auto got = x.Read();
  for (size_t row = 0; row < 5; ++row) {
    const double lengths = (positions[row] + 1) / 16;
    const double want = 1.5 * (1 + 0.25 * std::log1p(lengths));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(got[8 * row + i], want, Bound(1, want));
      EXPECT_EQ(got[8 * row + 2 + i], 3) << "keys are as they were";
    }
  }
}

TEST(Rope, NormalisesRotatesAndStores) {
  for (const bool interleaved : {false, true}) {
    for (const bool norms : {false, true}) {
      for (const int32_t rope_dims : {0, 6, 10}) {
        KvPages cache({2, 10, !norms}, 130);
        const int32_t d = 10, rows = 2;
        const int64_t pitch = 72;  // 7 heads and padding
        const auto qkv = Random(static_cast<size_t>(rows * pitch), 9);
        const auto q_norm = Random(10, 10), k_norm = Random(10, 11);
        const auto frequencies = Random(5, 12);
        DeviceArray<float> x(qkv), q_norms(q_norm), k_norms(k_norm),
            angles(frequencies);
        const std::vector<int32_t> positions = {129, 63};
        DeviceArray<int32_t> row_positions(positions);
        DeviceArray<int32_t> row_pages({cache.pages()[2], cache.pages()[0]});
        ASSERT_EQ(
            RopeWriteKv(nullptr,
                        {.kv = cache.View(),
                         .layer = 1,
                         .heads = 3,
                         .qkv = x.get(),
                         .pitch = pitch,
                         .rows = rows,
                         .row_positions = row_positions.get(),
                         .row_pages = row_pages.get(),
                         .frequencies = rope_dims > 0 ? angles.get() : nullptr,
                         .magnitude = 1.5f,
                         .rope_dims = rope_dims,
                         .interleaved = interleaved,
                         .q_norm = norms ? q_norms.get() : nullptr,
                         .k_norm = norms ? k_norms.get() : nullptr,
                         .eps = 1e-6f,
                         .q_scale = 0.5f}),
            0);
        const auto got = x.Read();
        cache.Download();
        for (int32_t row = 0; row < rows; ++row) {
          for (int32_t head = 0; head < 7; ++head) {
            const float* in = qkv.data() + row * pitch + head * d;
            std::vector<double> want(in, in + d);
            if (norms && head < 5) {
              double squares = 0;
              for (const double v : want) squares += v * v;
              const double r = 1 / std::sqrt(squares / d + 1e-6);
              for (int32_t i = 0; i < d; ++i) {
                want[static_cast<size_t>(i)] *=
                    r * (head < 3 ? q_norm : k_norm)[static_cast<size_t>(i)];
              }
            }
            for (int32_t i = 0; i < rope_dims / 2 && head < 5; ++i) {
              double& a = want[static_cast<size_t>(interleaved ? 2 * i : i)];
              double& b = want[static_cast<size_t>(
                  interleaved ? 2 * i + 1 : i + rope_dims / 2)];
              const double angle = positions[static_cast<size_t>(row)] *
                                   double{frequencies[static_cast<size_t>(i)]};
              const double c = 1.5 * std::cos(angle), s = 1.5 * std::sin(angle);
              const double rotated = a * c - b * s;
              b = a * s + b * c;
              a = rotated;
            }
            for (int32_t i = 0; i < d; ++i) {
              const auto u = static_cast<size_t>(i);
              // An angle of up to 129 radians is rounded by 2^-18; then, of k
              // and v in f16, by 2^-11 of the value.
              const double bound =
                  8 * 0x1p-18 +
                  (norms && head >= 3 ? 0x1p-11 * std::fabs(want[u]) : 0);
              const int32_t position = positions[static_cast<size_t>(row)];
              const double value =
                  head < 3
                      ? got[static_cast<size_t>(row * pitch + head * d + i)]
                  : head < 5 ? cache.At(false, position, head - 3, i)
                             : cache.At(true, position, head - 5, i);
              ASSERT_NEAR(value, head < 3 ? want[u] / 2 : want[u], bound)
                  << head << " " << i;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
