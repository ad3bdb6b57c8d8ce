// Products, convolutions and pools of graphs beside loops in double precision,
// over ragged shapes. An f32 sum of n products is off by n + 2 roundings at
// most, each 2^-24 of the sum of magnitudes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "models/graph/cuda/pack_factors.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/windows.h"

namespace millrace::cuda {
namespace {

using models::graph::PackedRowBytes;
using models::graph::PackFactors;

std::vector<float> Random(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

double Bound(double n, double magnitude) {
  return (n + 8) * 0x1p-24 * magnitude + 1e-30;
}

float At(const std::vector<float>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

// Of factors rounded to tf32 and f16 a product is off by 2 * 2^-11 of itself,
// of bf16 by 2 * 2^-8, and little more; factors are up to 1, and those of f16
// below 2^-14 are off by 2^-25. A tensor core may cut instead of round its
// sums.
double Bound(GraphPrecision precision, double n, double magnitude) {
  switch (precision) {
    case GraphPrecision::kF32:
      return Bound(n, magnitude);
    case GraphPrecision::kTf32:
    case GraphPrecision::kF16:
      return (0x1.01p-10 + 2 * n * 0x1p-24) * magnitude + n * 0x1p-24;
    case GraphPrecision::kBf16:
      return (0x1.01p-7 + 2 * n * 0x1p-24) * magnitude + n * 0x1p-24;
  }
  return 0;
}

struct Way {
  GraphPrecision precision;
  GraphTile tile;
  bool packed;
};
// f32 reads weights as they are; a convolution on tensor cores packed ones.
std::vector<Way> Ways(bool packed_alone) {
  std::vector<Way> ways = {{GraphPrecision::kF32, GraphTile::kChosen, false}};
  for (const GraphPrecision precision :
       {GraphPrecision::kTf32, GraphPrecision::kF16, GraphPrecision::kBf16}) {
    for (const GraphTile tile : {GraphTile::kChosen, GraphTile::kMiddle,
                                 GraphTile::kTall, GraphTile::kLarge}) {
      if (!packed_alone) ways.push_back({precision, tile, false});
      ways.push_back({precision, tile, true});
    }
  }
  return ways;
}
std::string Text(const testing::TestParamInfo<Way>& way) {
  return std::string("Precision") +
         std::to_string(static_cast<int>(way.param.precision)) + "Tile" +
         std::to_string(static_cast<int>(way.param.tile)) +
         (way.param.packed ? "Packed" : "");
}

// y = a [b, m, k] · w [n, k] (or [k, n]), with everything behind it.
class GraphProductBy : public testing::TestWithParam<Way> {};
TEST_P(GraphProductBy, IsThatOfDoubles) {
  const Way& way = GetParam();
  struct Case {
    int64_t stack, m, n, k;
    bool kn, shared_b, residual_first;
  };
  for (const Case& c : {Case{1, 1, 1, 1, false, true, true},
                        {1, 65, 67, 33, true, true, false},
                        {1, 3, 130, 16, false, true, true},
                        {5, 17, 9, 40, true, false, false},
                        {6, 64, 64, 15, false, false, true},
                        {1, 150, 140, 200, true, true, false},
                        {3, 33, 12, 72, false, true, true},
                        {2, 2, 3, 0, false, false, true}}) {
    if (way.packed && !c.shared_b) continue;
    const auto a = Random(c.stack * c.m * c.k, 1);
    const auto b = Random((c.shared_b ? 1 : c.stack) * c.k * c.n, 2);
    const auto bias = Random(c.n, 3);
    const auto residual = Random(c.stack * c.m * c.n, 4);
    const auto gate = Random(c.stack * c.m * c.n, 5);
    DeviceArray<float> da(a), db(b), dbias(bias), dres(residual), dgate(gate);
    DeviceArray<float> y(std::vector<float>(residual.size(), 7.0f));
    ProductArgs args{};
    args.a = da.get();
    args.b = db.get();
    args.y = y.get();
    args.m = c.m;
    args.n = c.n;
    args.k = c.k;
    args.a_row = c.k;
    args.a_k = 1;
    args.b_k = c.kn ? c.n : 1;
    args.b_n = c.kn ? 1 : c.k;
    args.y_row = c.n;
    args.rank = 1;
    args.count = c.stack;
    args.sizes[0] = c.stack;
    args.a_strides[0] = c.m * c.k;
    args.b_strides[0] = c.shared_b ? 0 : c.k * c.n;
    args.y_strides[0] = c.m * c.n;
    args.epilogue.bias = dbias.get();
    args.epilogue.residual = dres.get();
    args.epilogue.gate = dgate.get();
    args.epilogue.f = Function::kLeakyRelu;
    args.epilogue.a = 0.25f;
    args.epilogue.residual_first = c.residual_first;
    args.precision = way.precision;
    args.tile = way.tile;
    DeviceArray<std::byte> packed(PackFactors(way.precision,
                                              {.outputs = c.shared_b ? c.n : 0,
                                               .channels = c.k,
                                               .output_stride = args.b_n,
                                               .channel_stride = args.b_k},
                                              b.data()));
    if (way.packed) {
      args.packed_b = {packed.get(), PackedRowBytes(way.precision, c.k)};
    }
    ASSERT_EQ(GraphProduct(nullptr, args), 0);
    const auto got = y.Read();
    for (int64_t at = 0; at < c.stack * c.m * c.n; ++at) {
      const int64_t o = at % c.n, row = at / c.n;
      const int64_t product = row / c.m;
      double sum = At(bias, o), magnitude = 2 + std::fabs(sum);
      for (int64_t i = 0; i < c.k; ++i) {
        const int64_t from = (c.shared_b ? 0 : product * c.k * c.n) +
                             (c.kn ? i * c.n + o : o * c.k + i);
        const double term = double{At(a, row * c.k + i)} * At(b, from);
        sum += term;
        magnitude += std::fabs(term);
      }
      if (c.residual_first) sum += At(residual, at);
      sum = sum < 0 ? 0.25 * sum : sum;
      sum *= At(gate, at);
      if (!c.residual_first) sum += At(residual, at);
      EXPECT_NEAR(At(got, at), sum,
                  Bound(way.precision, static_cast<double>(c.k), magnitude));
    }
    // Alone: the last row of the last product.
    if (c.k == 0) continue;
    args.a += c.stack * c.m * c.k - c.k;
    if (!c.shared_b) args.b += (c.stack - 1) * c.k * c.n;
    const int64_t moved = (c.stack * c.m - 1) * c.n;
    DeviceArray<float> alone(std::vector<float>(static_cast<size_t>(c.n)));
    args.y = alone.get();
    args.epilogue.residual += moved;
    args.epilogue.gate += moved;
    args.m = args.count = args.sizes[0] = 1;
    args.tile = GraphTile::kChosen;
    ASSERT_EQ(GraphProduct(nullptr, args), 0);
    EXPECT_EQ(alone.Read(), std::vector<float>(got.end() - c.n, got.end()));
  }
}
INSTANTIATE_TEST_SUITE_P(All, GraphProductBy, testing::ValuesIn(Ways(false)),
                         Text);

void ConvByDefinition(const GraphConvArgs& c, const std::vector<float>& x,
                      const std::vector<float>& w, std::vector<double>& y,
                      std::vector<double>& magnitude) {
  EachTerm(c, [&](int64_t in, int64_t weight, int64_t out) {
    const double term = double{At(x, in)} * At(w, weight);
    y[static_cast<size_t>(out)] += term;
    magnitude[static_cast<size_t>(out)] += std::fabs(term);
  });
}

class GraphConvBy : public testing::TestWithParam<Way> {};
TEST_P(GraphConvBy, IsThatOfDoubles) {
  const Way& way = GetParam();
  struct Case {
    Window window;
    int64_t batch;
    int32_t channels, outputs, groups;
  };
  const Window flat = {{1, 9, 11}, {1, 3, 3}, {1, 1, 1},
                       {1, 1, 1},  {0, 1, 1}, {0, 1, 1}};
  const Window odd = {{1, 9, 12}, {1, 3, 2}, {1, 2, 3},
                      {1, 2, 1},  {0, 2, 0}, {0, 1, 1}};
  const Window signal = {{1, 1, 23}, {1, 1, 5}, {1, 1, 2},
                         {1, 1, 2},  {0, 0, 3}, {0, 0, 4}};
  const Window volume = {{4, 5, 3}, {2, 3, 1}, {1, 2, 1},
                         {2, 1, 1}, {1, 0, 0}, {1, 2, 0}};
  const Window up = {{1, 4, 5}, {1, 3, 2}, {1, 2, 3}, {1, 2, 1},
                     {0, 1, 0}, {0, 2, 1}, true};
  for (const Case& c : {Case{flat, 2, 3, 5, 1},
                        {flat, 1, 8, 70, 1},
                        {odd, 3, 6, 6, 6},
                        {odd, 2, 4, 20, 2},
                        {signal, 2, 4, 6, 2},
                        {volume, 2, 2, 3, 1},
                        {up, 2, 6, 4, 2},
                        {up, 1, 3, 9, 1},
                        {up, 1, 4, 36, 2},
                        {flat, 2, 48, 96, 3},
                        {odd, 2, 10, 34, 2},
                        {up, 2, 24, 51, 3},
                        {signal, 1, 16, 140, 2},
                        {odd, 2, 24, 36, 1},
                        {volume, 1, 16, 8, 1},
                        {up, 2, 8, 12, 1}}) {
    GraphConvArgs args{};
    args.precision = way.precision;
    args.tile = way.tile;
    args.window = Of(c.window);
    args.batch = c.batch;
    args.channels = c.channels;
    args.outputs = c.outputs;
    args.groups = c.groups;
    args.transposed = c.window.transposed;
    const int64_t pixels = Product(args.window.out);
    const auto x = Random(c.batch * Product(args.window.in) * c.channels, 1);
    const auto w = Random(
        Product(args.window.kernel) * c.channels * c.outputs / c.groups, 2);
    const auto bias = Random(c.outputs, 3);
    const auto residual = Random(c.batch * pixels * c.outputs, 4);
    DeviceArray<float> dx(x), dw(w), dbias(bias), dres(residual);
    DeviceArray<float> y(std::vector<float>(residual.size(), 7.0f));
    args.x = dx.get();
    args.w = dw.get();
    args.y = y.get();
    args.epilogue.bias = dbias.get();
    args.epilogue.residual = dres.get();
    args.epilogue.f = Function::kRelu;
    const int64_t taps = Product(args.window.kernel);
    const int64_t ci = c.channels / c.groups;
    const int64_t co = c.outputs / c.groups;
    const bool on_tensors = GroupsOnTensors(c.groups, c.outputs);
    EXPECT_EQ(on_tensors, c.groups == 1 || co >= 16);
    DeviceArray<std::byte> packed(
        PackFactors(way.precision,
                    {.outputs = on_tensors ? c.outputs : 0,
                     .groups = c.groups,
                     .taps = taps,
                     .channels = ci,
                     .output_stride = args.transposed ? taps : ci * taps,
                     .tap_stride = 1,
                     .channel_stride = args.transposed ? co * taps : taps,
                     .group_stride = ci * co * taps},
                    w.data()));
    args.packed_w = {packed.get(), PackedRowBytes(way.precision, taps * ci)};
    ASSERT_EQ(GraphConv(nullptr, args), 0);
    std::vector<double> want(residual.size()), magnitude(residual.size());
    ConvByDefinition(args, x, w, want, magnitude);
    const auto got = y.Read();
    const auto n = static_cast<double>(w.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double sum = want[i] + bias[i % static_cast<size_t>(c.outputs)];
      EXPECT_NEAR(got[i], std::max(sum, 0.0) + residual[i],
                  Bound(on_tensors ? way.precision : GraphPrecision::kF32, n,
                        magnitude[i] + 4))
          << i;
    }
    // The last image alone.
    const int64_t image = pixels * c.outputs;
    DeviceArray<float> alone(std::vector<float>(static_cast<size_t>(image)));
    args.x += (c.batch - 1) * Product(args.window.in) * c.channels;
    args.epilogue.residual += (c.batch - 1) * image;
    args.y = alone.get();
    args.batch = 1;
    args.tile = GraphTile::kChosen;
    ASSERT_EQ(GraphConv(nullptr, args), 0);
    EXPECT_EQ(alone.Read(), std::vector<float>(got.end() - image, got.end()));
  }
}
INSTANTIATE_TEST_SUITE_P(All, GraphConvBy, testing::ValuesIn(Ways(true)), Text);

TEST(GraphPool, IsThatOfDoubles) {
  const Window whole = {{1, 7, 13}, {1, 7, 13}, {1, 1, 1},
                        {1, 1, 1},  {0, 0, 0},  {0, 0, 0}};
  const Window odd = {{1, 8, 9}, {1, 3, 2}, {1, 2, 3},
                      {1, 1, 2}, {0, 1, 1}, {0, 1, 0}};
  const Window volume = {{5, 4, 3}, {2, 2, 2}, {2, 1, 1},
                         {1, 2, 1}, {1, 0, 1}, {1, 1, 0}};
  for (const Window& window : {whole, odd, volume}) {
    for (const PoolOf kind :
         {PoolOf::kMax, PoolOf::kMean, PoolOf::kMeanPadded}) {
      GraphPoolArgs args{};
      args.window = Of(window);
      args.batch = 2;
      args.channels = 5;
      args.kind = kind;
      const GraphWindow& w = args.window;
      auto x = Random(2 * Product(w.in) * 5, 1);
      if (kind == PoolOf::kMax) {
        x[1] = std::numeric_limits<float>::quiet_NaN();
      }
      DeviceArray<float> dx(x);
      DeviceArray<float> y(
          std::vector<float>(static_cast<size_t>(2 * Product(w.out) * 5)));
      args.x = dx.get();
      args.y = y.get();
      ASSERT_EQ(GraphPool(nullptr, args), 0);
      const auto got = y.Read();
      for (size_t i = 0; i < got.size(); ++i) {
        const auto channel = static_cast<int64_t>(i % 5);
        int64_t left = static_cast<int64_t>(i / 5);
        int32_t at[3];
        for (int axis = 2; axis >= 0; --axis) {
          at[axis] = static_cast<int32_t>(left % w.out[axis]);
          left /= w.out[axis];
        }
        double sum = 0, best = -std::numeric_limits<double>::infinity();
        int64_t inside = 0, padded = 0;
        int32_t tap[3] = {};
        do {
          int32_t from[3];
          bool in = true, in_padding = true;
          for (int a = 0; a < 3; ++a) {
            from[a] = at[a] * w.stride[a] - w.pad[a] + tap[a] * w.dilation[a];
            in = in && from[a] >= 0 && from[a] < w.in[a];
            in_padding = in_padding && from[a] < w.in[a] + w.pad_end[a];
          }
          padded += in_padding ? 1 : 0;
          if (!in) continue;
          ++inside;
          const double value =
              At(x, (left * Product(w.in) + Place(w.in, from)) * 5 + channel);
          sum += value;
          best = std::isnan(value) || value > best ? value : best;
        } while (Next(w.kernel, tap));
        if (kind == PoolOf::kMax) {
          EXPECT_TRUE(got[i] == best ||
                      (std::isnan(best) && std::isnan(got[i])));
          continue;
        }
        const auto count =
            static_cast<double>(kind == PoolOf::kMean ? inside : padded);
        EXPECT_NEAR(got[i], sum / count, Bound(100, 1));
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cuda
