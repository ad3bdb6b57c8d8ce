// Attention of graphs beside loops in double precision, in each precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "models/cuda/graph_kernels.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> Random(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}
float At(const std::vector<float>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

enum class Mask { kNone, kOfItems, kOfAll };
struct Case {
  int64_t items, heads, key_heads, queries, keys, d, dv;
  Mask mask;
  bool causal, zero;
};

// Factors of tf32 and f16 are off by 2^-11 of themselves, of bf16 by 2^-8; f16
// below 2^-14 by 2^-25.
double StepOf(GraphPrecision precision) {
  switch (precision) {
    case GraphPrecision::kF32:
      break;
    case GraphPrecision::kTf32:
    case GraphPrecision::kF16:
      return 0x1p-11;
    case GraphPrecision::kBf16:
      return 0x1p-8;
  }
  return 0x1p-24;
}

class GraphAttentionBy : public testing::TestWithParam<GraphPrecision> {};
TEST_P(GraphAttentionBy, IsThatOfDoubles) {
  const GraphPrecision precision = GetParam();
  for (const Case& c :
       {Case{2, 3, 3, 4, 6, 8, 8, Mask::kNone, false, false},
        {2, 4, 2, 5, 7, 33, 40, Mask::kOfItems, false, true},
        {1, 3, 3, 6, 6, 256, 64, Mask::kNone, true, false},
        {3, 2, 1, 9, 70, 8, 16, Mask::kOfItems, false, false},
        {1, 2, 2, 66, 130, 64, 64, Mask::kOfAll, false, true},
        {2, 2, 1, 70, 70, 32, 32, Mask::kNone, true, true},
        {1, 1, 1, 20, 68, 96, 90, Mask::kOfAll, true, false},
        {1, 2, 2, 17, 33, 128, 128, Mask::kOfItems, false, true}}) {
    const auto q = Random(c.items * c.queries * c.heads * c.d, 1);
    const auto k = Random(c.items * c.keys * c.key_heads * c.d, 2);
    const auto v = Random(c.items * c.keys * c.key_heads * c.dv, 3);
    // The last item, or the last query of the last head, sees nothing.
    const bool of_all = c.mask == Mask::kOfAll;
    auto mask =
        Random(c.items * (of_all ? c.heads * c.queries : 1) * c.keys, 4);
    mask[0] = -kInf;
    for (int64_t i = 0; i < c.keys; ++i) {
      mask[mask.size() - 1 - static_cast<size_t>(i)] = -kInf;
    }
    DeviceArray<float> dq(q), dk(k), dv(v), dm(mask);
    const int64_t count = c.items * c.queries * c.heads * c.dv;
    DeviceArray<float> out(std::vector<float>(static_cast<size_t>(count)));
    GraphAttentionArgs args{};
    args.precision = precision;
    args.q = dq.get();
    args.k = dk.get();
    args.v = dv.get();
    args.mask = c.mask == Mask::kNone ? nullptr : dm.get();
    args.out = out.get();
    args.q_at = {c.queries * c.heads * c.d, c.heads * c.d, c.d};
    args.k_at = {c.keys * c.key_heads * c.d, c.key_heads * c.d, c.d};
    args.v_at = {c.keys * c.key_heads * c.dv, c.key_heads * c.dv, c.dv};
    args.out_at = {c.queries * c.heads * c.dv, c.heads * c.dv, c.dv};
    args.items = c.items;
    args.heads = c.heads;
    args.key_heads = c.key_heads;
    args.queries = c.queries;
    args.keys = c.keys;
    args.mask_items = c.items;
    args.mask_strides[3] = 1;
    args.mask_strides[2] = of_all ? c.keys : 0;
    args.mask_strides[1] = of_all ? c.keys * c.queries : 0;
    args.mask_strides[0] = of_all ? c.keys * c.queries * c.heads : c.keys;
    args.scale = 0.3f;
    args.causal = c.causal;
    args.zero_if_hidden = c.zero;
    ASSERT_EQ(GraphAttention(nullptr, args), 0);
    const auto got = out.Read();
    const bool on_tensors = std::max(c.d, c.dv) <= kMostTensorHeadSize;
    for (int64_t at = 0; at < count; ++at) {
      const int64_t e = at % c.dv, head = at / c.dv % c.heads;
      const int64_t query = at / c.dv / c.heads % c.queries;
      const int64_t item = at / c.dv / c.heads / c.queries;
      const int64_t own = head * c.key_heads / c.heads;
      double sum = 0, want = 0, most = 0;
      const int64_t end = c.causal ? std::min(query + 1, c.keys) : c.keys;
      for (int64_t key = 0; key < end; ++key) {
        double score = 0, magnitude = 0;
        for (int64_t i = 0; i < c.d; ++i) {
          const double term =
              0.3 *
              At(q, ((item * c.queries + query) * c.heads + head) * c.d + i) *
              At(k, ((item * c.keys + key) * c.key_heads + own) * c.d + i);
          score += term;
          magnitude += std::fabs(term);
        }
        most = std::max(most, magnitude);
        if (c.mask != Mask::kNone) {
          score += At(mask, item * args.mask_strides[0] +
                                head * args.mask_strides[1] +
                                query * args.mask_strides[2] + key);
        }
        const double weight = std::exp(score);
        sum += weight;
        want += weight *
                At(v, ((item * c.keys + key) * c.key_heads + own) * c.dv + e);
      }
      if (sum == 0) {
        EXPECT_TRUE(c.zero ? At(got, at) == 0 : std::isnan(At(got, at)));
        continue;
      }
      // Scores of d products are off by 2^-24 * d * d; their exponentials by as
      // much, relative. Where factors are rounded, a score is off by two steps
      // of its magnitude, which changes a weight and the sum of weights; a
      // weight and a value by a step each, and small weights of f16 by 2^-25.
      const auto d = static_cast<double>(c.d + c.keys);
      double bound = 0x1p-24 * d * d + 1e-6;
      if (on_tensors && precision != GraphPrecision::kF32) {
        const double step = StepOf(precision);
        bound += 2 * std::expm1(2.02 * step * most) + 3.1 * step +
                 0x1p-24 * static_cast<double>(c.keys);
      }
      EXPECT_NEAR(At(got, at), want / sum, bound);
    }
    if (c.causal || c.mask == Mask::kOfAll) continue;
    // The last query of each item and head alone.
    const int64_t row = c.heads * c.dv;
    DeviceArray<float> alone(
        std::vector<float>(static_cast<size_t>(c.items * row)));
    args.q += (c.queries - 1) * args.q_at.token;
    args.queries = 1;
    args.out = alone.get();
    args.out_at.item = row;
    ASSERT_EQ(GraphAttention(nullptr, args), 0);
    const auto last = alone.Read();
    for (int64_t at = 0; at < c.items * row; ++at) {
      const float other =
          At(got, ((at / row + 1) * c.queries - 1) * row + at % row);
      EXPECT_TRUE(At(last, at) == other ||
                  (std::isnan(At(last, at)) && std::isnan(other)));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, GraphAttentionBy,
    testing::Values(GraphPrecision::kF32, GraphPrecision::kTf32,
                    GraphPrecision::kF16, GraphPrecision::kBf16),
    [](const auto& test) {
      return "Precision" + std::to_string(static_cast<int>(test.param));
    });

}  // namespace
}  // namespace millrace::cuda
