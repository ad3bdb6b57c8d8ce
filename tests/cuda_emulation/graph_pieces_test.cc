// Long sums of few outputs, which tensor cores add in pieces: the pieces are
// those of products of that many inputs, added in ascending order; a block that
// adds all of them gives the bits of blocks that share them, in every tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "models/graph/cuda/pack_factors.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/windows.h"

namespace millrace::cuda {
namespace {

using models::graph::PackedRowBytes;
using models::graph::PackFactors;
using models::graph::RoundFactors;

static_assert(PiecesOf(GraphPrecision::kF16, 1025, 1024) == 3);
static_assert(PiecesOf(GraphPrecision::kTf32, 513, 1024) == 3);
static_assert(PiecesOf(GraphPrecision::kF16, 1024, 1) == 1);
static_assert(PiecesOf(GraphPrecision::kF16, 4096, 1025) == 1);
static_assert(PiecesOf(GraphPrecision::kF32, 1 << 20, 1) == 1);
// Enough rows: blocks have no need to share.
static_assert(PartialSums(3, 64 * 127, 64, 1) == 3 * 64 * 127 * 64);
static_assert(PartialSums(3, 64 * 128, 64, 1) == 0);

std::vector<float> Random(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

constexpr GraphTile kTiles[] = {GraphTile::kChosen, GraphTile::kSmall,
                                GraphTile::kMiddle, GraphTile::kTall,
                                GraphTile::kLarge};

class GraphPieces : public testing::TestWithParam<GraphPrecision> {
 protected:
  GraphPrecision precision() const { return GetParam(); }
  int64_t OfPiece() const { return kPieceBytes / FactorBytes(precision()); }
};

// Rows, weights, results in one order of memory, [rows][inputs] each.
TEST_P(GraphPieces, OfProductsAreAddedInOrder) {
  struct Case {
    int64_t stack, m, n;
    bool packed;
  };
  const int64_t k = 3 * OfPiece() + 44;
  for (const Case& c : {Case{1, 5, 70, true}, {2, 67, 12, false}}) {
    const int64_t count = c.stack * c.m * c.n;
    const auto b = Random(c.stack * c.n * k, 2);
    DeviceArray<float> da(Random(c.stack * c.m * k, 1)), db(b);
    DeviceArray<float> y(std::vector<float>(static_cast<size_t>(count)));
    ProductArgs args{};
    args.precision = precision();
    args.y = y.get();
    args.m = c.m;
    args.n = c.n;
    args.a_row = args.b_n = k;
    args.a_k = args.b_k = 1;
    args.y_row = c.n;
    args.rank = 1;
    args.count = args.sizes[0] = c.stack;
    args.a_strides[0] = c.m * k;
    args.b_strides[0] = c.n * k;
    args.y_strides[0] = c.m * c.n;
    const auto multiply = [&](int64_t first, int64_t inputs) {
      args.a = da.get() + first;
      args.b = db.get() + first;
      args.k = inputs;
      DeviceArray<std::byte> packed(PackFactors(precision(),
                                                {.outputs = c.packed ? c.n : 0,
                                                 .channels = inputs,
                                                 .output_stride = k,
                                                 .channel_stride = 1},
                                                b.data() + first));
      args.packed_b = {c.packed ? packed.get() : nullptr,
                       PackedRowBytes(precision(), inputs)};
      EXPECT_EQ(GraphProduct(nullptr, args), 0);
      return y.Read();
    };
    std::vector<float> want;
    for (int64_t first = 0; first < k; first += OfPiece()) {
      const auto piece = multiply(first, std::min(OfPiece(), k - first));
      if (first == 0) want.assign(piece.size(), -0.0f);
      for (size_t i = 0; i < want.size(); ++i) want[i] += piece[i];
    }
    // A function and a residual behind them, once.
    DeviceArray<float> bias(std::vector<float>(static_cast<size_t>(c.n), 0.5f));
    for (float& value : want) value = std::fabs(value + 0.5f);
    args.epilogue.bias = bias.get();
    args.epilogue.f = Function::kAbs;
    const int64_t pieces = PiecesOf(precision(), k, c.n);
    ASSERT_EQ(pieces, 4);
    const int64_t sums = PartialSums(pieces, c.m, c.n, c.stack);
    ASSERT_EQ(sums, pieces * count);
    DeviceArray<float> partial(
        std::vector<float>(static_cast<size_t>(sums), NAN));
    for (float* room : {static_cast<float*>(nullptr), partial.get()}) {
      args.partial = room;
      for (const GraphTile tile : kTiles) {
        args.tile = tile;
        EXPECT_EQ(multiply(0, k), want) << "shared " << (room != nullptr)
                                        << " tile " << static_cast<int>(tile);
      }
    }
    // They did share: each left its sums.
    for (const float sum : partial.Read()) EXPECT_FALSE(std::isnan(sum));
  }
}

TEST_P(GraphPieces, OfConvolutionsHaveTheSameBitsShared) {
  const Window signal = {{1, 1, 23}, {1, 1, 5}, {1, 1, 2},
                         {1, 1, 2},  {0, 0, 3}, {0, 0, 4}};
  Window up = signal;
  up.transposed = true;
  struct Case {
    Window window;
    int32_t channels, outputs;
  };
  // Channels in whole units, and not.
  for (const Case& c : {Case{signal, 344, 8}, {signal, 341, 5}, {up, 344, 6}}) {
    GraphConvArgs args{};
    args.precision = precision();
    args.window = Of(c.window);
    args.batch = 2;
    args.channels = c.channels;
    args.outputs = c.outputs;
    args.groups = 1;
    args.transposed = c.window.transposed;
    const int64_t taps = Product(args.window.kernel);
    const int64_t pixels = 2 * Product(args.window.out);
    const auto x = Random(2 * Product(args.window.in) * c.channels, 1);
    const auto w = Random(taps * c.channels * c.outputs, 2);
    // In the format of values between layers.
    const bool narrow = FactorBytes(precision()) == 2;
    std::vector<std::byte> values(x.size() * (narrow ? 2 : 4));
    if (narrow) {
      RoundFactors(precision(), x.data(), static_cast<int64_t>(x.size()),
                   values.data());
    } else {
      std::memcpy(values.data(), x.data(), values.size());
    }
    DeviceArray<std::byte> dx(values);
    args.x = {dx.get(), !narrow ? GraphFormat::kF32
                        : precision() == GraphPrecision::kF16
                            ? GraphFormat::kF16
                            : GraphFormat::kBf16};
    DeviceArray<std::byte> packed(PackFactors(
        precision(),
        {.outputs = c.outputs,
         .taps = taps,
         .channels = c.channels,
         .output_stride = args.transposed ? taps : c.channels * taps,
         .tap_stride = 1,
         .channel_stride = args.transposed ? c.outputs * taps : taps},
        w.data()));
    args.packed_w = {packed.get(),
                     PackedRowBytes(precision(), taps * c.channels)};
    const int64_t pieces = PiecesOf(precision(), taps * c.channels, c.outputs);
    ASSERT_GT(pieces, 2);
    const int64_t count = pixels * c.outputs;
    const int64_t sums = PartialSums(pieces, pixels, c.outputs, 1);
    ASSERT_EQ(sums, pieces * count);
    DeviceArray<float> y(std::vector<float>(static_cast<size_t>(count)));
    DeviceArray<float> partial(
        std::vector<float>(static_cast<size_t>(sums), NAN));
    args.y = y.get();
    ASSERT_EQ(GraphConv(nullptr, args), 0);
    const auto alone = y.Read();
    std::vector<double> want(alone.size()), magnitude(alone.size());
    EachTerm(args, [&](int64_t in, int64_t weight, int64_t out) {
      const double term =
          double{x[static_cast<size_t>(in)]} * w[static_cast<size_t>(weight)];
      want[static_cast<size_t>(out)] += term;
      magnitude[static_cast<size_t>(out)] += std::fabs(term);
    });
    // As in graph_layers_test.cc.
    const double of_factors =
        precision() == GraphPrecision::kBf16 ? 0x1.01p-7 : 0x1.01p-10;
    const auto n = static_cast<double>(taps * c.channels);
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(alone[i], want[i],
                  (of_factors + 2 * n * 0x1p-24) * magnitude[i] + n * 0x1p-24);
    }
    for (float* room : {static_cast<float*>(nullptr), partial.get()}) {
      args.partial = room;
      for (const GraphTile tile : kTiles) {
        args.tile = tile;
        ASSERT_EQ(GraphConv(nullptr, args), 0);
        EXPECT_EQ(y.Read(), alone) << "shared " << (room != nullptr) << " tile "
                                   << static_cast<int>(tile);
      }
    }
    for (const float sum : partial.Read()) EXPECT_FALSE(std::isnan(sum));
    // One item of the batch.
    args.batch = 1;
    args.tile = GraphTile::kChosen;
    ASSERT_EQ(GraphConv(nullptr, args), 0);
    const auto one = y.Read();
    EXPECT_TRUE(
        std::equal(one.begin(), one.begin() + count / 2, alone.begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GraphPieces,
                         testing::Values(GraphPrecision::kTf32,
                                         GraphPrecision::kF16,
                                         GraphPrecision::kBf16));

}  // namespace
}  // namespace millrace::cuda
