// Products on tensor cores and on int8 under the emulation, beside loops in
// double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "models/cpu/isa.h"
#include "models/cpu/llm_kernels.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

// Rows in another format, and what they are worth.
struct Rounded {
  int64_t bytes;
  std::vector<std::byte> rows;
  std::vector<double> values;  // [rows][k]

  Rounded(InputFormat format, const std::vector<float>& x, int64_t k)
      : bytes(RoundedBytes(format, models::CudaInputs(k))) {
    const auto count = static_cast<int64_t>(x.size()) / k;
    const int64_t inputs = models::CudaInputs(k);
    DeviceArray<float> from(Padded(x, k, inputs));
    DeviceArray<std::byte> to(
        std::vector<std::byte>(static_cast<size_t>(count * bytes)));
    EXPECT_EQ(
        RoundRows(nullptr, {.x = from.get(),
                            .pitch = inputs,
                            .rows = static_cast<int32_t>(count),
                            .rounded = {format, static_cast<int32_t>(inputs),
                                        to.get(), bytes}}),
        0);
    rows = to.Read();
    for (int64_t row = 0; row < count; ++row) {
      const std::byte* at = rows.data() + row * bytes;
      for (int64_t i = 0; i < k; ++i) {
        values.push_back(ValueOf(format, at, inputs, i));
      }
    }
  }
  template <typename T>
  static T At(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static double ValueOf(InputFormat format, const std::byte* row,
                        int64_t inputs, int64_t i) {
    if (format == InputFormat::kInt8) {
      constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
      const auto d = At<float>(row + inputs + i / 32 * 8);
      return double{d} * At<int8_t>(row + i / 8 * 8 + kPlaces[i % 8]);
    }
    const auto bits = At<uint16_t>(row + 2 * i);
    if (format == InputFormat::kBF16) {
      return std::bit_cast<float>(uint32_t{bits} << 16);
    }
    return double{models::HalfToFloat(bits)} * At<float>(row + 2 * inputs);
  }
};

TEST(RoundedRows, OfF16KeepElevenBitsWhateverTheirSize) {
  const int64_t k = 301;
  for (const float size : {1e-20f, 1e-4f, 1.0f, 7e8f, 3e35f}) {
    auto x = Random(3 * k, 3);
    for (float& value : x) value *= size;
    std::fill_n(x.begin() + k, k, 0.0f);
    x[2 * k + 5] = 900 * size;  // far above all others of its row
    const Rounded rounded(InputFormat::kF16, x, k);
    for (size_t i = 0; i < x.size(); ++i) {
      // The greatest is 2^13 at least, and below 2^-14 f16 has 2^-24 steps.
      const double greatest = i < static_cast<size_t>(k) ? size : 900 * size;
      EXPECT_NEAR(rounded.values[i], x[i],
                  std::fabs(x[i]) * 0x1p-11 + greatest * 0x1p-37);
    }
    EXPECT_EQ(rounded.values[k], 0);
  }
}

TEST(RoundedRows, OfBf16AreTheNearest) {
  const auto x = Random(2 * 77, 4);
  const Rounded rounded(InputFormat::kBF16, x, 77);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(rounded.values[i], x[i], std::fabs(x[i]) * 0x1p-8);
  }
  const float inf = std::numeric_limits<float>::infinity();
  const Rounded special(
      InputFormat::kBF16,
      {inf, -inf, std::nanf(""), 1.00390625f, 1.01171875f, 0, 0, 0}, 8);
  EXPECT_EQ(special.values[0], inf);
  EXPECT_EQ(special.values[1], -inf);
  EXPECT_TRUE(std::isnan(special.values[2]));
  EXPECT_EQ(special.values[3], 1) << "of two as near the even one";
  EXPECT_EQ(special.values[4], 1.015625) << "of two as near the even one";
}

// The same integers, scales and sums as the scalar kernels of the CPU.
TEST(RoundedRows, OfInt8AreThoseOfTheCpu) {
  const int64_t k = 96;
  auto x = Random(k, 5);
  std::fill_n(x.begin() + 32, 32, 0.0f);
  x[70] = 40;
  const Rounded rounded(InputFormat::kInt8, x, k);
  const StatusOr<const models::KernelTable*> cpu =
      models::ChooseKernels("scalar");
  ASSERT_TRUE(cpu.ok());
  int8_t q[96];
  float d[3], s[3];
  int32_t sum[3];
  int16_t half[6];
  (*cpu)->quantize_row(x.data(), k, {q, d, s, sum, half});
  for (int64_t i = 0; i < k; ++i) {
    EXPECT_EQ(rounded.values[static_cast<size_t>(i)], double{d[i / 32]} * q[i]);
  }
  for (int64_t block = 0; block < 3; ++block) {
    const std::byte* at = rounded.rows.data() + k + 8 * block;
    EXPECT_EQ(Rounded::At<float>(at), d[block]);
    EXPECT_EQ(Rounded::At<int16_t>(at + 4), half[2 * block]);
    EXPECT_EQ(Rounded::At<int16_t>(at + 6), half[2 * block + 1]);
  }
}

using Product = int (*)(Stream, const LinearArgs&);

// Rows of x that are not in order, in steps of several sizes, beside a sum in
// double precision of what the kernel is given. `weight_error` is what a weight
// may lose more, of its magnitude.
void ExpectProducts(Product product, InputFormat format, GgmlType type,
                    int64_t k, int64_t outputs, double weight_error) {
  const Matrix w(type, outputs, k, static_cast<uint64_t>(k + outputs));
  const int64_t total = 141;
  const auto x = Random(static_cast<size_t>(total * k), 5);
  const Rounded rounded(format, x, k);
  DeviceArray<std::byte> weights(w.packed);
  DeviceArray<std::byte> rows(rounded.rows);
  const auto bias = Random(static_cast<size_t>(outputs), 6);
  DeviceArray<float> biases(bias);
  std::vector<int32_t> order(static_cast<size_t>(total));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  const int64_t ld = outputs + 3;
  std::vector<float> all;
  for (const int32_t count : {131, 1, 3, 8, 40}) {
    // The last ones of the order, so that a row's place differs.
    const std::vector<int32_t> ids(order.end() - count, order.end());
    DeviceArray<int32_t> row_ids(ids);
    DeviceArray<float> y(
        std::vector<float>(static_cast<size_t>(total * ld), 0.5f));
    LinearArgs args = {.weights = w.On(weights),
                       .bias = biases.get(),
                       .rounded = rows.get(),
                       .rounded_bytes = rounded.bytes,
                       .row_ids = row_ids.get(),
                       .rows = count,
                       .adds = true,
                       .scale = 0.25f,
                       .y = y.get(),
                       .out_pitch = ld};
    ASSERT_EQ(product(nullptr, args), 0);
    const auto got = y.Read();
    if (all.empty()) all = got;
    for (int64_t row = 0; row < total; ++row) {
      const bool ran = std::ranges::count(ids, row) > 0;
      for (int64_t o = 0; o < ld; ++o) {
        const auto at = static_cast<size_t>(row * ld + o);
        if (!ran || o >= outputs) {
          ASSERT_EQ(got[at], 0.5f) << "written where nothing belongs";
          continue;
        }
        ASSERT_EQ(got[at], all[at]) << "the batch shows";
        double sum = bias[static_cast<size_t>(o)];
        double magnitude = 3 + std::fabs(sum);
        double lost = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double weight = w.values[static_cast<size_t>(o * k + i)];
          const double value = rounded.values[static_cast<size_t>(row * k + i)];
          sum += weight * value;
          // A value with a minimum is rounded at the size of its parts.
          magnitude += 3 * std::fabs(weight * value) + 0.5;
          lost += std::fabs(weight * value) * weight_error;
        }
        ASSERT_NEAR(got[at], 0.5 + 0.25 * sum, Bound(k, magnitude) + lost)
            << "row " << row << " output " << o;
      }
    }
  }
  // Without row ids, a bias or adding.
  DeviceArray<float> y(std::vector<float>(static_cast<size_t>(3 * ld)));
  ASSERT_EQ(product(nullptr, {.weights = w.On(weights),
                              .rounded = rows.get(),
                              .rounded_bytes = rounded.bytes,
                              .rows = 3,
                              .y = y.get(),
                              .out_pitch = ld}),
            0);
  const auto got = y.Read();
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    sum += double{w.values[static_cast<size_t>(i)]} *
           rounded.values[static_cast<size_t>(2 * k + i)];
  }
  EXPECT_NEAR(got[static_cast<size_t>(2 * ld)], sum,
              Bound(k, 4 * static_cast<double>(k)) +
                  static_cast<double>(k) * weight_error);
}

class OnTensors : public testing::TestWithParam<GgmlType> {};

TEST_P(OnTensors, MultipliesAndGivesTheSameBitsInAnyBatch) {
  const GgmlType type = GetParam();
  const int block = models::InfoOf(type).block_values;
  const InputFormat format =
      type == GgmlType::kBF16 ? InputFormat::kBF16 : InputFormat::kF16;
  // Quantised weights are rounded to f16; the others are as they were.
  const double error =
      models::CudaFormatOf(type) > WeightFormat::kBF16 ? 0x1p-11 + 0x1p-22 : 0;
  ExpectProducts(MultiplyOnTensors, format, type, block == 1 ? 13 : block, 9,
                 error);
  ExpectProducts(MultiplyOnTensors, format, type, block == 1 ? 150 : 3 * block,
                 block == 256 ? 70 : 139, error);
}
INSTANTIATE_TEST_SUITE_P(Types, OnTensors,
                         testing::Values(GgmlType::kF16, GgmlType::kBF16,
                                         GgmlType::kQ8_0, GgmlType::kQ4_0,
                                         GgmlType::kQ4_1, GgmlType::kQ5_0,
                                         GgmlType::kQ5_1, GgmlType::kQ4_K,
                                         GgmlType::kQ5_K, GgmlType::kQ6_K,
                                         GgmlType::kIQ4_NL),
                         [](const auto& test) {
                           return std::string(models::InfoOf(test.param).name);
                         });

class OnInt8 : public testing::TestWithParam<GgmlType> {};

// 1100 values are more chunks of 32 than a warp has lanes.
TEST_P(OnInt8, MultipliesAndGivesTheSameBitsInAnyBatch) {
  const GgmlType type = GetParam();
  const int block = models::InfoOf(type).block_values;
  ExpectProducts(MultiplyInt8, InputFormat::kInt8, type, block, 9, 0);
  ExpectProducts(MultiplyInt8, InputFormat::kInt8, type,
                 (1100 + block) / block * block, 5, 0);
}
INSTANTIATE_TEST_SUITE_P(Types, OnInt8,
                         testing::Values(GgmlType::kQ8_0, GgmlType::kQ4_0,
                                         GgmlType::kQ4_1, GgmlType::kQ5_0,
                                         GgmlType::kQ5_1, GgmlType::kQ4_K,
                                         GgmlType::kQ5_K, GgmlType::kQ6_K),
                         [](const auto& test) {
                           return std::string(models::InfoOf(test.param).name);
                         });

TEST(Products, RefuseWeightsTheyDoNotRead) {
  const Weights f32 = {.format = WeightFormat::kF32};
  const Weights f16 = {.format = WeightFormat::kF16};
  EXPECT_NE(MultiplyOnTensors(nullptr, {.weights = f32, .rows = 1}), 0);
  EXPECT_NE(MultiplyInt8(nullptr, {.weights = f32, .rows = 1}), 0);
  EXPECT_NE(MultiplyInt8(nullptr, {.weights = f16, .rows = 1}), 0);
}

}  // namespace
}  // namespace millrace::cuda
