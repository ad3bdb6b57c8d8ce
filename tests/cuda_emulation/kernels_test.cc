// The kernels' own sources under the emulation, over ragged shapes, beside
// plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

class EveryFormat : public testing::TestWithParam<GgmlType> {};

TEST_P(EveryFormat, MultipliesRowsAndGivesTheSameBitsInAnyBatch) {
  const GgmlType type = GetParam();
  const int block = models::InfoOf(type).block_values;
  for (const int64_t k : {block == 1 ? int64_t{13} : int64_t{block},
                          block == 1 ? int64_t{300} : int64_t{3} * block}) {
    for (const int64_t outputs : {1, 9, 19}) {
      const Matrix w(type, outputs, k, static_cast<uint64_t>(k + outputs));
      DeviceArray<std::byte> device(w.packed);
      const int64_t pitch = models::CudaInputs(k);
      const int64_t most = 11;
      const auto x = Random(static_cast<size_t>(most * k), 5);
      DeviceArray<float> rows(Padded(x, k, pitch));
      const auto bias = Random(static_cast<size_t>(outputs), 6);
      DeviceArray<float> biases(bias);
      std::vector<float> all;
      for (const int32_t count : {11, 1, 3, 8}) {
        const int64_t ld = outputs + 3;
        const std::vector<float> before(static_cast<size_t>(count * ld), 0.5f);
        DeviceArray<float> y(before);
        ASSERT_EQ(MultiplyRows(nullptr, {.weights = w.On(device),
                                         .bias = biases.get(),
                                         .x = rows.get(),
                                         .pitch = pitch,
                                         .rows = count,
                                         .adds = true,
                                         .scale = 0.25f,
                                         .y = y.get(),
                                         .out_pitch = ld}),
                  0);
        const auto got = y.Read();
        if (all.empty()) all = got;
        for (int64_t row = 0; row < count; ++row) {
          for (int64_t o = 0; o < ld; ++o) {
            const auto at = static_cast<size_t>(row * ld + o);
            if (o >= outputs) {
              EXPECT_EQ(got[at], 0.5f);
              continue;
            }
            EXPECT_EQ(got[at], all[at]) << "the batch shows";
            double sum = bias[static_cast<size_t>(o)];
            double magnitude = 3 + std::fabs(sum);
            for (int64_t i = 0; i < k; ++i) {
              const double product =
                  double{w.values[static_cast<size_t>(o * k + i)]} *
                  x[static_cast<size_t>(row * k + i)];
              sum += product;
              // A value with a minimum is rounded at the size of its parts.
              magnitude += 3 * std::fabs(product) + 0.5;
            }
            EXPECT_NEAR(got[at], 0.5 + 0.25 * sum, Bound(k, magnitude));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryFormat,
                         testing::Values(GgmlType::kF32, GgmlType::kF16,
                                         GgmlType::kBF16, GgmlType::kQ8_0,
                                         GgmlType::kQ4_0, GgmlType::kQ4_1,
                                         GgmlType::kQ5_0, GgmlType::kQ5_1,
                                         GgmlType::kQ4_K, GgmlType::kQ5_K,
                                         GgmlType::kQ6_K, GgmlType::kIQ4_NL,
                                         GgmlType::kQ2_K),
                         [](const auto& test) {
                           return std::string(models::InfoOf(test.param).name);
                         });

TEST_P(EveryFormat, EmbedsTokens) {
  const GgmlType type = GetParam();
  const int64_t k = models::InfoOf(type).block_values == 1
                        ? 44
                        : models::InfoOf(type).block_values;
  const Matrix table(type, 5, k, 1);
  const Matrix positions(GgmlType::kF16, 7, k, 2);
  DeviceArray<std::byte> table_bytes(table.packed);
  DeviceArray<std::byte> position_bytes(positions.packed);
  DeviceArray<int32_t> tokens({4, 0, 2});
  DeviceArray<int32_t> row_positions({6, 5, 0});
  const int64_t pitch = models::CudaInputs(k);
  DeviceArray<float> x(std::vector<float>(static_cast<size_t>(3 * pitch)));
  ASSERT_EQ(Embed(nullptr, {.table = table.On(table_bytes),
                            .positions = positions.On(position_bytes),
                            .tokens = tokens.get(),
                            .row_positions = row_positions.get(),
                            .scale = 2,
                            .rows = 3,
                            .x = x.get(),
                            .pitch = pitch}),
            0);
  const auto got = x.Read();
  const auto ids = tokens.Read();
  const auto at = row_positions.Read();
  for (size_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < pitch; ++i) {
      const auto of = [&](const Matrix& matrix, int32_t r) {
        return i < k ? double{matrix.values[static_cast<size_t>(r * k + i)]}
                     : 0.0;
      };
      EXPECT_NEAR(
          got[row * static_cast<size_t>(pitch) + static_cast<size_t>(i)],
          2 * of(table, ids[row]) + of(positions, at[row]), Bound(8, 8));
    }
  }
}

TEST(Rows, AreGatheredAndCopied) {
  const int32_t n = 130;
  const auto x = Random(5 * n, 2);
  DeviceArray<float> from(x), to(std::vector<float>(2 * n, 1.0f));
  DeviceArray<int32_t> picked({4, 1});
  ASSERT_EQ(GatherRows(nullptr, {.from = from.get(),
                                 .rows = picked.get(),
                                 .num_rows = 2,
                                 .width = n,
                                 .pitch = n,
                                 .to = to.get()}),
            0);
  const auto got = to.Read();
  EXPECT_TRUE(std::equal(x.end() - n, x.end(), got.begin()));
  EXPECT_TRUE(std::equal(x.begin() + n, x.begin() + 2 * n, got.begin() + n));

  std::vector<std::byte> pages(4 * 48);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = std::byte(i);
  DeviceArray<std::byte> pool(pages);
  DeviceArray<int32_t> copies({0, 3, 1, 2});
  ASSERT_EQ(CopyPages(nullptr, {.base = pool.get(),
                                .page_bytes = 48,
                                .copies = copies.get(),
                                .num_copies = 2}),
            0);
  const auto after = pool.Read();
  EXPECT_TRUE(std::equal(pages.begin(), pages.begin() + 96, after.begin()));
  EXPECT_TRUE(
      std::equal(pages.begin(), pages.begin() + 48, after.begin() + 144));
  EXPECT_TRUE(
      std::equal(pages.begin() + 48, pages.begin() + 96, after.begin() + 96));
}

TEST(Head, ScalesCapsAndFindsTheFirstOfTheGreatest) {
  const int32_t vocab = kHeadPart + 777;
  auto logits = Random(3 * vocab, 4);
  for (float& logit : logits) logit *= 40;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  logits[500] = logits[300] = logits[301] = 41;
  logits[100] = nan;
  for (size_t i = vocab; i < 2 * vocab; ++i) logits[i] = nan;
  logits[3 * vocab - 1] = 50;
  DeviceArray<float> rows(logits);
  DeviceArray<int32_t> ids({-7, -7, -7});
  DeviceArray<Greatest> parts(std::vector<Greatest>(3 * PartsOfHead(vocab)));
  ASSERT_EQ(FinishLogits(nullptr, {.logits = rows.get(),
                                   .pitch = vocab,
                                   .vocab = vocab,
                                   .rows = 3,
                                   .scale = 0.5f,
                                   .softcap = 30,
                                   .parts = parts.get(),
                                   .ids = ids.get()}),
            0);
  EXPECT_EQ(ids.Read(), (std::vector<int32_t>{300, 0, vocab - 1}));
  const auto got = rows.Read();
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(got[i], 30 * std::tanh(logits[i] / 60.0), Bound(8, 30));
  }
}

}  // namespace
}  // namespace millrace::cuda
