// Norms and activations of rows beside double precision, and that rows rounded
// as they are made have the bits of rows rounded afterwards.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/kernel_inputs.h"

namespace millrace::cuda {
namespace {

// Rows in the format, of f32 rows `inputs` apart, of which `ids` are rounded;
// others stay 0x55.
std::vector<std::byte> RoundedOf(const std::vector<float>& x, int64_t inputs,
                                 InputFormat format,
                                 const std::vector<int32_t>& ids) {
  const int64_t bytes = RoundedBytes(format, inputs);
  const size_t rows = x.size() / static_cast<size_t>(inputs);
  DeviceArray<float> from(x);
  DeviceArray<int32_t> picked(ids);
  DeviceArray<std::byte> to(std::vector<std::byte>(
      rows * static_cast<size_t>(bytes), std::byte{0x55}));
  EXPECT_EQ(
      RoundRows(nullptr, {.x = from.get(),
                          .pitch = inputs,
                          .row_ids = picked.get(),
                          .rows = static_cast<int32_t>(ids.size()),
                          .rounded = {format, static_cast<int32_t>(inputs),
                                      to.get(), bytes}}),
      0);
  return to.Read();
}

// `make(out, rounded, ids, count)` launches a kernel that makes rows of `width`
// values. Its rows, rounded as they are made, and stored or not, are those
// rounded afterwards.
template <class Make>
void ExpectFusedBits(int64_t width, size_t rows, const Make& make) {
  const int64_t inputs = models::CudaInputs(width);
  const std::vector<float> zeros(rows * static_cast<size_t>(inputs));
  DeviceArray<float> out(zeros);
  ASSERT_EQ(make(out.get(), inputs, RoundedRows{}, nullptr,
                 static_cast<int32_t>(rows)),
            0);
  const std::vector<float> floats = out.Read();
  const std::vector<int32_t> ids = {static_cast<int32_t>(rows) - 1, 0};
  DeviceArray<int32_t> picked(ids);
  for (const InputFormat format :
       {InputFormat::kF16, InputFormat::kBF16, InputFormat::kInt8}) {
    if (format == InputFormat::kInt8 && width % 32 != 0) continue;
    const auto want = RoundedOf(floats, inputs, format, ids);
    const int64_t bytes = RoundedBytes(format, inputs);
    for (const bool stores : {false, true}) {
      DeviceArray<float> stored(zeros);
      DeviceArray<std::byte> to(std::vector<std::byte>(
          rows * static_cast<size_t>(bytes), std::byte{0x55}));
      const RoundedRows rounded = {format, static_cast<int32_t>(inputs),
                                   to.get(), bytes};
      ASSERT_EQ(make(stores ? stored.get() : nullptr, inputs, rounded,
                     picked.get(), 2),
                0);
      EXPECT_EQ(to.Read(), want)
          << width << " format " << static_cast<int>(format);
      const auto got = stored.Read();
      for (size_t i = 0; i < got.size(); ++i) {
        const auto row = static_cast<int32_t>(i / static_cast<size_t>(inputs));
        const bool made = stores && (row == ids[0] || row == ids[1]);
        EXPECT_EQ(got[i], made ? floats[i] : 0);
      }
    }
  }
}

// Widths with one value a thread and several, whole fours and not; over 8192
// the widest row that a thread holds in 32 fours.
class Norms : public testing::TestWithParam<int64_t> {};

TEST_P(Norms, AreThoseOfDoublePrecision) {
  const int64_t n = GetParam();
  for (const bool layer_norm : {false, true}) {
    for (const bool adds : {false, true}) {
      const auto x = Random(static_cast<size_t>(3 * n), 1);
      const auto weight = Random(static_cast<size_t>(n), 2);
      const auto bias = Random(static_cast<size_t>(n), 3);
      DeviceArray<float> rows(x), weights(weight), biases(bias), sums(x);
      // In place, or added to others.
      ASSERT_EQ(NormRows(nullptr, {.x = rows.get(),
                                   .pitch = n,
                                   .weight = weights.get(),
                                   .bias = layer_norm ? biases.get() : nullptr,
                                   .eps = 1e-5f,
                                   .width = static_cast<int32_t>(n),
                                   .rows = 3,
                                   .adds = adds,
                                   .scale = 0.5f,
                                   .out = adds ? sums.get() : rows.get(),
                                   .out_pitch = n}),
                0);
      const auto got = adds ? sums.Read() : rows.Read();
      for (int64_t row = 0; row < 3; ++row) {
        const float* own = x.data() + row * n;
        double mean = 0, squares = 0;
        for (int64_t i = 0; layer_norm && i < n; ++i) {
          mean += own[i] / static_cast<double>(n);
        }
        for (int64_t i = 0; i < n; ++i) {
          squares += (own[i] - mean) * (own[i] - mean);
        }
        const double r = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
        for (int64_t i = 0; i < n; ++i) {
          const auto u = static_cast<size_t>(i);
          double want =
              (own[i] - mean) * r * weight[u] + (layer_norm ? bias[u] : 0);
          if (adds) want = own[i] + 0.5 * want;
          EXPECT_NEAR(got[static_cast<size_t>(row * n + i)], want,
                      Bound(n, (1 + r) * 2));
        }
      }
    }
  }
}

TEST_P(Norms, AreRoundedAsTheyAreMade) {
  const int64_t n = GetParam();
  const int64_t pitch = models::CudaInputs(n);
  auto x = Random(static_cast<size_t>(3 * n), 1);
  x[0] = 3e5f;  // a row whose values are far apart
  DeviceArray<float> rows(Padded(x, n, pitch));
  DeviceArray<float> weights(Random(static_cast<size_t>(n), 2));
  DeviceArray<float> biases(Random(static_cast<size_t>(n), 3));
  for (const bool layer_norm : {false, true}) {
    ExpectFusedBits(n, 3,
                    [&](float* out, int64_t out_pitch, RoundedRows rounded,
                        const int32_t* ids, int32_t count) {
                      return NormRows(
                          nullptr, {.x = rows.get(),
                                    .pitch = pitch,
                                    .row_ids = ids,
                                    .weight = weights.get(),
                                    .bias = layer_norm ? biases.get() : nullptr,
                                    .eps = 1e-5f,
                                    .width = static_cast<int32_t>(n),
                                    .rows = count,
                                    .out = out,
                                    .out_pitch = out_pitch,
                                    .rounded = rounded});
                    });
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Norms,
                         testing::Values(1, 40, 129, 576, 1030, 4096, 8224));

TEST(Norms, TooWideIsRefused) {
  EXPECT_NE(NormRows(nullptr, {.width = kMostNormWidth + 1, .rows = 1}), 0);
}

int Act(const DeviceArray<float>& x, int64_t pitch, int32_t width, bool gated,
        RowFunction function, float* out, int64_t out_pitch,
        RoundedRows rounded, const int32_t* ids, int32_t count) {
  return Activate(nullptr, {.x = const_cast<DeviceArray<float>&>(x).get(),
                            .pitch = pitch,
                            .row_ids = ids,
                            .width = width,
                            .rows = count,
                            .gated = gated,
                            .function = function,
                            .out = out,
                            .out_pitch = out_pitch,
                            .rounded = rounded});
}

TEST(Activations, AreThoseOfDoublePrecisionAndRoundedAsTheyAreMade) {
  for (const int32_t n : {2, 130, 576, 608}) {
    for (const RowFunction function :
         {RowFunction::kSilu, RowFunction::kGelu, RowFunction::kGeluErf}) {
      for (const bool gated : {false, true}) {
        const auto size = static_cast<size_t>(3 * 2 * n);
        const int64_t pitch = models::CudaInputs(2 * n);
        auto x = Random(size, 1);
        for (float& value : x) value *= 20;
        DeviceArray<float> rows(Padded(x, 2 * n, pitch));
        DeviceArray<float> out(std::vector<float>(size / 2));
        ASSERT_EQ(
            Act(rows, pitch, n, gated, function, out.get(), n, {}, nullptr, 3),
            0);
        const auto got = out.Read();
        for (int32_t i = 0; i < 3 * n; ++i) {
          const double v = x[static_cast<size_t>(i / n * 2 * n + i % n)];
          const double up =
              gated ? x[static_cast<size_t>(i / n * 2 * n + n + i % n)] : 1;
          const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
          const double act = function == RowFunction::kGelu
                                 ? 0.5 * v * (1 + std::tanh(inner))
                             : function == RowFunction::kGeluErf
                                 ? 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)))
                                 : v / (1 + std::exp(-v));
          // tanh and erf near -1 are rounded at the size of 1.
          EXPECT_NEAR(got[static_cast<size_t>(i)], act * up,
                      Bound(8, 20 * 20 + std::fabs(act * up)));
        }
        ExpectFusedBits(n, 3,
                        [&](float* to, int64_t out_pitch, RoundedRows rounded,
                            const int32_t* ids, int32_t count) {
                          return Act(rows, pitch, n, gated, function, to,
                                     out_pitch, rounded, ids, count);
                        });
      }
    }
  }
}

// Rows of whole fours and not; what is behind a row stays.
TEST(AddedRows, AreRoundedOnce) {
  for (const int32_t width : {8, 30, 576, 1026}) {
    for (const int64_t pitch : {int64_t{width}, int64_t{width} + 6}) {
      const auto size = static_cast<size_t>(3 * pitch);
      const auto x = Random(size, 1), y = Random(size, 2);
      DeviceArray<float> from(x), to(y);
      ASSERT_EQ(AddRows(nullptr, {.x = from.get(),
                                  .pitch = pitch,
                                  .width = width,
                                  .rows = 3,
                                  .scale = 0.3f,
                                  .y = to.get()}),
                0);
      const auto got = to.Read();
      for (size_t i = 0; i < size; ++i) {
        const bool added = static_cast<int64_t>(i) % pitch < width;
        const double want =
            added ? y[i] + double{0.3f} * double{x[i]} : double{y[i]};
        EXPECT_EQ(got[i], static_cast<float>(want)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
