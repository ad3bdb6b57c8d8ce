// RoPE with the write into pages, beside plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "models/cpu/isa.h"
#include "models/cpu/llm_kernels.h"
#include "tests/cuda_emulation/kernel_inputs.h"
#include "tests/cuda_emulation/kv_pages.h"

namespace millrace::cuda {
namespace {

TEST(Rope, WhatF16CannotHoldIsStoredAsItsGreatest) {
  KvPages cache({1, 4, KvFormat::kF16}, 64);
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

// Keys and values as they come, beside the engine on cores: its integers and
// its d, to the bit.
TEST(Rope, Int8IsThatOfTheEngineOnCores) {
  const auto kernels = models::ChooseKernels("scalar");
  ASSERT_TRUE(kernels.ok());
  for (const int32_t dim : {16, 80, 256}) {
    KvPages cache({2, dim, KvFormat::kInt8}, 100);
    const std::vector<int32_t> positions = {99, 3, 64, 17, 18};
    const int64_t pitch = 5 * dim;
    auto x = Random(static_cast<size_t>(5 * pitch), 4);
    for (int64_t i = 0; i < pitch; ++i) {
      const auto u = static_cast<size_t>(i);
      x[u] *= 3e30f;
      x[static_cast<size_t>(pitch) + u] = 0;
      x[static_cast<size_t>(2 * pitch) + u] *= 1e-38f;  // d is subnormal
      x[static_cast<size_t>(3 * pitch) + u] *= i % 5 == 0 ? 200.0f : 0.5f;
    }
    std::vector<int32_t> pages;
    for (const int32_t position : positions) {
      pages.push_back(cache.pages()[static_cast<size_t>(position / kPageRows)]);
    }
    DeviceArray<float> qkv(x);
    DeviceArray<int32_t> row_positions(positions), row_pages(pages);
    ASSERT_EQ(RopeWriteKv(nullptr, {.kv = cache.View(),
                                    .layer = 1,
                                    .heads = 1,
                                    .qkv = qkv.get(),
                                    .pitch = pitch,
                                    .rows = 5,
                                    .row_positions = row_positions.get(),
                                    .row_pages = row_pages.get()}),
              0);
    cache.Download();
    for (size_t row = 0; row < positions.size(); ++row) {
      const int32_t position = positions[row];
      const int32_t in_page = position % kPageRows;
      for (int32_t head = 0; head < 2; ++head) {
        const float* k = x.data() + static_cast<int64_t>(row) * pitch +
                         int64_t{1 + head} * dim;
        const auto bytes = static_cast<size_t>(kPageRows * (dim + 4));
        std::vector<std::byte> k_page(bytes), v_page(bytes);
        (*kernels)->write_kv(k, k + 2 * dim, dim, in_page,
                             models::KvFormat::kInt8, k_page.data(),
                             v_page.data());
        const auto d_of = [&](const std::vector<std::byte>& page) {
          return reinterpret_cast<const float*>(page.data() +
                                                kPageRows * dim)[in_page];
        };
        EXPECT_EQ(cache.ScaleAt(false, position, head), d_of(k_page));
        EXPECT_EQ(cache.ScaleAt(true, position, head), d_of(v_page));
        const auto keys = cache.IntegersAt(false, position, head);
        const auto values = cache.IntegersAt(true, position, head);
        for (int32_t d = 0; d < dim; ++d) {
          const int32_t key_at =
              (in_page / 16 * dim + d / 4 * 4) * 16 + in_page % 16 * 4 + d % 4;
          ASSERT_EQ(keys[static_cast<size_t>(d)],
                    reinterpret_cast<const int8_t*>(k_page.data())[key_at])
              << "row " << row << " value " << d;
          ASSERT_EQ(values[static_cast<size_t>(d)],
                    reinterpret_cast<const int8_t*>(
                        v_page.data())[in_page * dim + d]);
        }
      }
    }
  }
}

// No d is infinite or NaN, and nothing stands behind a row.
TEST(Rope, Int8IsFiniteWhateverComes) {
  KvPages cache({1, 6, KvFormat::kInt8}, 64);
  DeviceArray<float> x({0, 0, 0, 0, 0, 0, INFINITY, -2, 1, 3, NAN, -1, 1, 2,
                        -INFINITY, 4, NAN, 6});
  DeviceArray<int32_t> positions({5}), pages({cache.pages()[0]});
  ASSERT_EQ(RopeWriteKv(nullptr, {.kv = cache.View(),
                                  .layer = 1,
                                  .heads = 1,
                                  .qkv = x.get(),
                                  .pitch = 18,
                                  .rows = 1,
                                  .row_positions = positions.get(),
                                  .row_pages = pages.get()}),
            0);
  cache.Download();
  for (const bool value : {false, true}) {
    EXPECT_TRUE(std::isfinite(cache.ScaleAt(value, 5, 0)));
    const auto integers = cache.IntegersAt(value, 5, 0);
    EXPECT_EQ(integers[value ? 2 : 0], value ? -127 : 127);
    for (size_t i = 6; i < integers.size(); ++i) EXPECT_EQ(integers[i], 0);
  }
}

// By how much scores of long texts are sharpened (Nakanishi 2025).
TEST(Rope, TempersQueriesByTheirPosition) {
  KvPages cache({1, 2, KvFormat::kF32}, 100);
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
    for (const KvFormat format :
         {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
      const bool norms = format != KvFormat::kF32;
      for (const int32_t rope_dims : {0, 6, 10}) {
        KvPages cache({2, 10, format}, 130);
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
              const int32_t position = positions[static_cast<size_t>(row)];
              // An angle of up to 129 radians is rounded by 2^-18; then, of k
              // and v in f16, by 2^-11 of the value, and in int8 by half of d.
              double bound = 8 * 0x1p-18;
              if (head >= 3 && format == KvFormat::kF16) {
                bound += 0x1p-11 * std::fabs(want[u]);
              } else if (head >= 3 && format == KvFormat::kInt8) {
                bound +=
                    0.5001 * cache.ScaleAt(head >= 5, position, (head - 3) % 2);
              }
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
