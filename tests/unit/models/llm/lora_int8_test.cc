// Adapters in int8 on every kernel table: against a plain product in double
// precision of the values before they were rounded, and bit for bit alone,
// beside other rows, in any ranges of outputs and on any table.
#include "models/llm/cpu/lora_int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/cpu/isa.h"
#include "models/llm/lora_packing.h"

namespace millrace::models {
namespace {

constexpr int64_t kInputs = 91;
constexpr int64_t kOutputs = 150;
constexpr int32_t kRows = 5;

struct Sample {
  explicit Sample(int32_t wanted_rank) : rank(wanted_rank) {
    std::mt19937 rng(static_cast<uint32_t>(rank));
    // A step of A, 1e-7, would be a subnormal f16.
    std::normal_distribution<float> of_a(0, 1e-5f);
    std::normal_distribution<float> normal;
    floats.rank = rank;
    floats.a.resize(static_cast<size_t>(rank * kInputs));
    floats.b.resize(static_cast<size_t>(kOutputs * rank));
    x.resize(kRows * kInputs);
    for (float& value : floats.a) value = of_a(rng);
    for (float& value : floats.b) value = normal(rng);
    for (float& value : x) value = normal(rng);
  }

  int32_t rank;
  LoraFloats floats;
  std::vector<float> x;  // [kRows][kInputs]
};

// y + B (A x) of rows [first, first + count), each range of outputs by itself.
std::vector<float> Product(const LoraDelta& delta, const Sample& sample,
                           const KernelTable& kernels, int32_t first,
                           int32_t count, const std::vector<int64_t>& cuts,
                           float before = 0) {
  LoraInt8Rows rows;
  rows.Allocate(count, kInputs);
  LoraInt8Scratch scratch;
  scratch.Allocate(count, kOutputs);
  std::vector<float> hidden(static_cast<size_t>(count * kMaxLoraRank));
  for (int32_t i = 0; i < count; ++i) {
    const float* x = sample.x.data() + (first + i) * kInputs;
    // In two parts, as rows of a feed-forward come.
    rows.Keep(kernels, i, {x, 32}, 0);
    rows.Keep(kernels, i, {x + 32, kInputs - 32}, 32);
  }
  const int32_t group = delta.a.kernels->row_group;
  delta.a.kernels->linear(delta.a.matrix, 0, (sample.rank + group - 1) / group,
                          rows.From(0), count, hidden.data(), kMaxLoraRank);
  for (float& value : hidden) value *= delta.scale;
  RoundLoraHidden(kernels, delta, hidden.data(), kMaxLoraRank, count, scratch);
  std::vector<float> y(static_cast<size_t>(count * kOutputs), before);
  for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
    std::vector<float*> out;
    for (int32_t i = 0; i < count; ++i) {
      out.push_back(y.data() + i * kOutputs + cuts[cut]);
    }
    AddLoraInt8(kernels, delta, count, cuts[cut], cuts[cut + 1], out.data(),
                scratch);
  }
  return y;
}

LoraFloatLayers Layers(const Sample& sample) {
  LoraFloatLayers layers(1);
  layers[0][static_cast<size_t>(LoraTarget::kUp)] = sample.floats;
  return layers;
}

std::shared_ptr<const LoraAdapter> Pack(const Sample& sample,
                                        const KernelTable* kernels) {
  auto adapter =
      PackLora(Layers(sample), {.kernels = kernels, .dtype = LoraDtype::kInt8});
  CHECK(adapter.ok(), "there is memory for a small adapter");
  return *std::move(adapter);
}

double Greatest(std::span<const float> values) {
  double most = 0;
  for (const float x : values) most = std::max(most, std::abs(double{x}));
  return most;
}

// A value is rounded by at most half a step, which is 1/127 of the greatest of
// its block, or less than that of its matrix or row; a step in f16 has 2^-12
// of its own. Sums in f32 add next to nothing.
constexpr double kHalfStep = (1 + 1.0 / 2048) / 254;

TEST(LoraInt8, IsThePlainProductWithinWhatRoundingAllows) {
  for (const int32_t rank : {1, 5, 8, 9, 16, 17, 32, 40, 64}) {
    const Sample sample(rank);
    const LoraFloats& floats = sample.floats;
    const double of_a = kHalfStep * Greatest(floats.a);
    const double of_b = kHalfStep * Greatest(floats.b);
    std::vector<float> bits;
    for (const IsaChoice& isa : ListKernels()) {
      if (!isa.missing.empty()) continue;
      SCOPED_TRACE(std::string(isa.name) + ", rank " + std::to_string(rank));
      const auto adapter = Pack(sample, isa.kernels);
      const LoraDelta& delta = adapter->delta(0, LoraTarget::kUp);
      const auto y =
          Product(delta, sample, *isa.kernels, 0, kRows, {0, 16, 80, kOutputs});
      double error = 0;
      double size = 0;
      for (int32_t i = 0; i < kRows; ++i) {
        const std::span<const float> x(sample.x.data() + i * kInputs, kInputs);
        const double of_x = kHalfStep * Greatest(x);
        std::vector<double> h(static_cast<size_t>(rank));
        std::vector<double> off(static_cast<size_t>(rank));
        double most = 0;
        for (int32_t r = 0; r < rank; ++r) {
          for (int64_t k = 0; k < kInputs; ++k) {
            const double a = floats.a[static_cast<size_t>(r * kInputs + k)];
            h[r] += a * x[k];
            off[r] += std::abs(a) * of_x + of_a * (std::abs(x[k]) + of_x);
          }
          most = std::max(most, std::abs(h[r]) + off[r]);
        }
        for (int64_t o = 0; o < kOutputs; ++o) {
          double exact = 0;
          double tolerance = 0;
          for (int32_t r = 0; r < rank; ++r) {
            const double b = floats.b[static_cast<size_t>(o * rank + r)];
            exact += b * h[r];
            tolerance += (std::abs(b) + of_b) * (off[r] + kHalfStep * most) +
                         of_b * std::abs(h[r]);
          }
          const double got = y[static_cast<size_t>(i * kOutputs + o)];
          ASSERT_NEAR(got, exact, tolerance) << "row " << i << ", output " << o;
          error += (got - exact) * (got - exact);
          size += exact * exact;
        }
      }
      // The bound is of the worst case. In fact a value is off by 1 / 12 of a
      // squared step, a step being some 2.7 / 127 of what values are about; and
      // there are four such errors, of A, x, A x and B: 1.2 % in all.
      EXPECT_LT(std::sqrt(error / size), 0.02);
      if (bits.empty()) bits = y;
      EXPECT_EQ(y, bits) << "other bits than on the first table";
    }
  }
}

TEST(LoraInt8, BitsDependNeitherOnRowsBesideNorOnRanges) {
  for (const int32_t rank : {3, 16, 24}) {
    const Sample sample(rank);
    for (const IsaChoice& isa : ListKernels()) {
      if (!isa.missing.empty()) continue;
      SCOPED_TRACE(std::string(isa.name) + ", rank " + std::to_string(rank));
      const auto adapter = Pack(sample, isa.kernels);
      const LoraDelta& delta = adapter->delta(0, LoraTarget::kUp);
      const auto all =
          Product(delta, sample, *isa.kernels, 0, kRows, {0, kOutputs});
      EXPECT_EQ(all, Product(delta, sample, *isa.kernels, 0, kRows,
                             {0, 48, 64, 144, kOutputs}));
      for (int32_t i = 0; i < kRows; ++i) {
        const auto alone =
            Product(delta, sample, *isa.kernels, i, 1, {0, 112, kOutputs});
        EXPECT_TRUE(
            std::equal(alone.begin(), alone.end(), all.begin() + i * kOutputs))
            << "row " << i;
      }
      auto added = all;
      for (float& value : added) value += 8;
      EXPECT_EQ(added, Product(delta, sample, *isa.kernels, 0, kRows,
                               {0, kOutputs}, 8));
    }
  }
}

TEST(LoraInt8, TakesLittleMoreThanHalfOfWhatF16Takes) {
  const Sample sample(16);
  const auto halves = PackLora(Layers(sample), {});
  ASSERT_TRUE(halves.ok());
  EXPECT_EQ((*halves)->dtype(), LoraDtype::kF16);
  const auto adapter = Pack(sample, ScalarKernels());
  EXPECT_EQ(adapter->dtype(), LoraDtype::kInt8);
  const LoraDelta& delta = adapter->delta(0, LoraTarget::kUp);
  // 91 inputs fill three blocks; 150 outputs, two a row, five tiles of 16 rows.
  EXPECT_EQ(delta.a.matrix.k, 96);
  EXPECT_EQ(delta.outputs_a_row, 2);
  EXPECT_EQ(delta.b.matrix.n, 5 * kLoraTile);
  // Blocks have a scale, and groups of rows end with a line of the cache.
  EXPECT_LT(static_cast<double>(adapter->num_bytes()),
            0.65 * static_cast<double>((*halves)->num_bytes()));
}

}  // namespace
}  // namespace millrace::models
