// Products of bf16: bit for bit the chain that graph_kernels.h writes down,
// near double precision of the rounded factors, the same bits for a row
// whatever is computed beside it. The epilogue is that of f32 products and is
// tested there.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "models/tensor/float16.h"
#include "tests/backend/dense/bf16.h"
#include "tests/backend/dense/conv_case.h"

namespace millrace::models {
namespace {

class Bf16Products : public Bf16Test {
 protected:
  // The chain that graph_kernels.h gives these products.
  float Chain(const std::vector<float>& x, const float* w) const {
    return tiles() ? TileChain(x, w) : PairChain(x, w);
  }

 private:
  static float PairChain(const std::vector<float>& x, const float* w);
  static float TileChain(const std::vector<float>& x, const float* w);
};

float Rounded(float x) { return BFloat16ToFloat(FloatToBFloat16(x)); }

// What the second factor of each pair adds comes first.
float Bf16Products::PairChain(const std::vector<float>& x, const float* w) {
  const auto k = static_cast<int64_t>(x.size());
  constexpr int64_t kLink = 2 * kDenseLink;
  float sum = 0;
  for (int64_t begin = 0; begin < k; begin += kLink) {
    float link = 0;
    const auto add = [&](int64_t at) {
      const float a = Rounded(x[static_cast<size_t>(at)]);
      link = std::fma(a, Rounded(w[at]), link);
    };
    for (int64_t i = begin; i < std::min(k, begin + kLink); i += 2) {
      if (i + 1 < k) add(i + 1);
      add(i);
    }
    sum = begin == 0 ? link : sum + link;
  }
  return sum;
}

// Steps of 32, in each a sum of even and one of odd values.
float Bf16Products::TileChain(const std::vector<float>& x, const float* w) {
  const auto k = static_cast<int64_t>(x.size());
  float sum = 0;
  for (int64_t begin = 0; begin < k; begin += 32) {
    float strand[2] = {0, 0};
    for (int64_t i = begin; i < std::min(k, begin + 32); ++i) {
      float& u = strand[i % 2];
      u = std::fma(Rounded(x[static_cast<size_t>(i)]), Rounded(w[i]), u);
    }
    sum += strand[0] + strand[1];
  }
  return sum;
}

struct Size {
  int64_t m, n, k;
};
// Around tiles of 12 rows, panels of 32, blocks of 96 rows and 1536 steps; and
// around tiles of 16 rows and 32 steps, a block of 512 of them.
constexpr Size kSizes[] = {
    {1, 1, 1},      {1, 200, 33},   {2, 31, 7},   {3, 129, 64},  {4, 97, 1542},
    {13, 32, 17},   {15, 65, 5},    {29, 48, 10}, {100, 40, 31}, {197, 35, 20},
    {17, 33, 3085}, {16, 64, 64},   {33, 70, 96}, {47, 96, 32},  {49, 40, 130},
    {530, 9, 34},   {218, 33, 1540}};

TEST_P(Bf16Products, ProductsFollowTheirChain) {
  std::mt19937 rng(1);
  for (const Size& size : kSizes) {
    const auto [m, n, k] = size;
    const int64_t ld_x = k + 3;
    Floats x(m * ld_x), w(n * k), y(m * n), transposed(n * k);
    FillNormal(rng, x);
    FillNormal(rng, w);
    for (int64_t i = 0; i < n * k; ++i) transposed[i % k * n + i / k] = w[i];
    const int64_t panels = Panels(products(), n);
    Floats packed(products().packed_floats(n, k));
    PackAll(products(), w, n, k, packed);
    Floats other(packed.size());
    products().pack(transposed.data(), n, k, {.n = 1, .k = n}, 0, panels,
                    other.data());
    ASSERT_EQ(Difference(other.data(), packed.data(), packed.size()), "");
    GemmArgs args{.x = x.data(),
                  .ld_x = ld_x,
                  .row_end = m,
                  .w = packed.data(),
                  .n = n,
                  .k = k,
                  .panel_end = panels,
                  .y = y.data(),
                  .ld_y = n};
    Floats scratch(products().gemm_scratch_floats(args));
    args.scratch = scratch.data();
    products().gemm(args);
    Floats apart(m * n);
    for (int64_t row = 0; row < m; ++row) {
      const float* from = x.data() + row * ld_x;
      const std::vector<float> row_x(from, from + k);
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(Bits(y[row * n + j]), Bits(Chain(row_x, w.data() + j * k)))
            << m << " x " << n << " x " << k << " at " << row << ", " << j;
      }
      args.row_begin = row;
      args.row_end = row + 1;
      args.y = apart.data();
      products().gemm(args);
    }
    EXPECT_EQ(Difference(apart.data(), y.data(), m * n), "");
  }
}

TEST_P(Bf16Products, ConvolutionsFollowTheirChain) {
  std::mt19937 rng(2);
  for (const ConvShape& shape : kConvShapes) {
    const ConvCase c(shape, rng);
    Floats packed(products().packed_floats(shape.n, c.k));
    PackAll(products(), c.w, shape.n, c.k, packed);
    Floats none(0), got(c.pixels * shape.n);
    ConvArgs args = c.Args(products(), packed, none, got);
    args.epilogue = {};
    Floats scratch(products().conv_scratch_floats(args));
    args.scratch = scratch.data();
    products().conv(args);
    for (int64_t p = 0; p < c.pixels; ++p) {
      const std::vector<float> seen = c.Seen(p);
      for (int64_t n = 0; n < shape.n; ++n) {
        ASSERT_EQ(Bits(got[p * shape.n + n]),
                  Bits(Chain(seen, c.w.data() + n * c.k)))
            << &shape - kConvShapes << " at " << p << ", " << n;
      }
    }
    SCOPED_TRACE(&shape - kConvShapes);
    for (int64_t step : {1, 13, 97}) {
      ExpectSameInRanges(products(), args, step, got);
    }
  }
}

std::vector<Bf16> Kept(const DenseProducts& products, const Floats& x) {
  std::vector<Bf16> kept(x.size());
  products.round(x.data(), static_cast<int64_t>(x.size()), kept.data());
  return kept;
}

TEST_P(Bf16Products, RoundingIsToNearestEvenAndSubnormalsAreZero) {
  const float inf = INFINITY;
  const float values[] = {1.00390625f, 1.01171875f, -1.0078125f, inf,
                          -1.5e-38f,   1.1e-38f,    -0.0f,       3.4e38f};
  Floats x(8);
  std::copy(std::begin(values), std::end(values), x.data());
  const auto kept = Kept(products(), x);
  const std::vector<Bf16> want = {0x3f80, 0x3f82, 0xbf81, 0x7f80,
                                  0x80a3, 0,      0x8000, 0x7f80};
  EXPECT_EQ(kept, want);
  const Floats nan(1, NAN);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(Kept(products(), nan)[0])));
}

// What was rounded before gives the same bits, and a result that is rounded is
// the rounded result: of sums that wait, of functions, and of parts.
TEST_P(Bf16Products, ProductsOfKeptRowsAreTheSameBits) {
  std::mt19937 rng(4);
  for (const Size& size : kSizes) {
    const auto [m, n, k] = size;
    if (k % 2 != 0) continue;
    for (const Unary f : {Unary::kRelu, Unary::kGeluErf}) {
      const int64_t ld_x = k + 6;
      Floats x(m * ld_x), w(n * k), bias(n), y(m * n);
      for (Floats* floats : {&x, &w, &bias}) FillNormal(rng, *floats);
      Floats packed(products().packed_floats(n, k));
      PackAll(products(), w, n, k, packed);
      GemmArgs args{.x = x.data(),
                    .ld_x = ld_x,
                    .row_end = m,
                    .w = packed.data(),
                    .n = n,
                    .k = k,
                    .panel_end = Panels(products(), n),
                    .y = y.data(),
                    .ld_y = n,
                    .epilogue = {.bias = bias.data(), .f = f}};
      Floats scratch(products().gemm_scratch_floats(args));
      args.scratch = scratch.data();
      products().gemm(args);
      const auto want = Kept(products(), y);
      const auto kept_x = Kept(products(), x);
      std::vector<Bf16> got(y.size());
      args.y = nullptr;
      args.y_bf16 = got.data();
      products().gemm(args);
      ASSERT_EQ(got, want) << m << " x " << n << " x " << k;
      std::fill(got.begin(), got.end(), 0);
      args.x = nullptr;
      args.x_bf16 = kept_x.data();
      for (int64_t row = 0; row < m; row += 50) {
        args.row_begin = row;
        args.row_end = std::min(m, row + 50);
        products().gemm(args);
      }
      ASSERT_EQ(got, want) << m << " x " << n << " x " << k;
      Floats floats(y.size());
      args.row_begin = 0;
      args.row_end = m;
      args.y = floats.data();
      args.y_bf16 = nullptr;
      products().gemm(args);
      ASSERT_EQ(Difference(floats.data(), y.data(), m * n), "");
    }
  }
}

TEST_P(Bf16Products, ConvolutionsOfKeptImagesAreTheSameBits) {
  std::mt19937 rng(5);
  for (const ConvShape& shape : kConvShapes) {
    const ConvCase c(shape, rng);
    if (shape.channels % 2 != 0 || c.ld_pixel % 2 != 0) continue;
    SCOPED_TRACE(&shape - kConvShapes);
    Floats packed(products().packed_floats(shape.n, c.k));
    PackAll(products(), c.w, shape.n, c.k, packed);
    Floats none(0), y(c.pixels * shape.n);
    ConvArgs args = c.Args(products(), packed, none, y);
    args.epilogue.f = Unary::kRelu;
    Floats scratch(products().conv_scratch_floats(args));
    args.scratch = scratch.data();
    products().conv(args);
    const auto want = Kept(products(), y);
    const auto kept_x = Kept(products(), c.x);
    args.x.data = nullptr;
    args.x_bf16 = kept_x.data();
    ExpectSameInRanges(products(), args, 97, y);
    std::vector<Bf16> got(y.size());
    args.y = nullptr;
    args.y_bf16 = got.data();
    for (int64_t p = 0; p < c.pixels; p += 13) {
      args.pixel_begin = p;
      args.pixel_end = std::min(c.pixels, p + 13);
      products().conv(args);
    }
    ASSERT_EQ(got, want);
  }
}

TEST_P(Bf16Products, KeptWeightsArePackedAlike) {
  std::mt19937 rng(6);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{35, 17}, {64, 300}}) {
    Floats w(n * k);
    FillNormal(rng, w);
    const auto kept = Kept(products(), w);
    for (const MatrixStrides strides :
         {MatrixStrides{.n = k, .k = 1}, MatrixStrides{.n = 1, .k = n}}) {
      Floats want(products().packed_floats(n, k)), got(want.size());
      const int64_t panels = Panels(products(), n);
      products().pack(w.data(), n, k, strides, 0, panels, want.data());
      products().pack_bf16(kept.data(), n, k, strides, 0, panels, got.data());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0);
    }
  }
}

// The greatest of rounded values is the greatest one, rounded.
TEST_P(Bf16Products, MaxPoolsStayInBf16) {
  std::mt19937 rng(7);
  const int64_t channels = 37;
  Floats x(9 * 11 * channels), y(5 * 6 * channels);
  FillNormal(rng, x);
  const auto kept_x = Kept(products(), x);
  PoolArgs args{.x = {x.data(), 9, 11, channels, 11 * channels, channels},
                .window = {.kernel_h = 3,
                           .kernel_w = 3,
                           .stride_h = 2,
                           .stride_w = 2,
                           .pad_top = 1,
                           .pad_left = 1},
                .out_width = 6,
                .row_end = 5,
                .y = y.data(),
                .ld_y = channels};
  ScalarDense()->pool(args);
  std::vector<Bf16> got(y.size());
  args.x.data = nullptr;
  args.x_bf16 = kept_x.data();
  args.y = nullptr;
  args.y_bf16 = got.data();
  products().max_pool(args);
  EXPECT_EQ(got, Kept(products(), y));
}

// More rows than a block of an image has.
TEST_P(Bf16Products, LongImagesAreTheSameInParts) {
  const ConvShape shape{30, 300, 32, 5, {3, 3, 1, 1, 1, 1, 1, 1}, 30, 300, 0};
  std::mt19937 rng(8);
  const ConvCase c(shape, rng);
  Floats packed(products().packed_floats(shape.n, c.k));
  PackAll(products(), c.w, shape.n, c.k, packed);
  Floats none(0), got(c.pixels * shape.n);
  ConvArgs args = c.Args(products(), packed, none, got);
  args.epilogue = {};
  Floats scratch(products().conv_scratch_floats(args));
  args.scratch = scratch.data();
  products().conv(args);
  for (int64_t p = 0; p < c.pixels; p += 67) {
    ASSERT_EQ(Bits(got[p * shape.n + 2]),
              Bits(Chain(c.Seen(p), c.w.data() + 2 * c.k)))
        << p;
  }
  ExpectSameInRanges(products(), args, 2111, got);
}

TEST_P(Bf16Products, AnEpilogueMeetsF32) {
  const ConvShape& shape = kConvShapes[2];
  std::mt19937 rng(3);
  const ConvCase c(shape, rng);
  Floats packed(products().packed_floats(shape.n, c.k));
  PackAll(products(), c.w, shape.n, c.k, packed);
  Floats none(0), got(c.pixels * shape.n);
  ConvArgs args = c.Args(products(), packed, none, got);
  Floats scratch(products().conv_scratch_floats(args));
  args.scratch = scratch.data();
  products().conv(args);
  for (int64_t p = 0; p < c.pixels; ++p) {
    const std::vector<float> seen = c.Seen(p);
    for (int64_t n = 0; n < shape.n; ++n) {
      const float sum = Chain(seen, c.w.data() + n * c.k) + c.bias[n];
      ASSERT_EQ(Bits(got[p * shape.n + n]),
                Bits(sum + c.residual[p * shape.n + n]));
    }
  }
}

INSTANTIATE_BF16_TESTS(Bf16Products);

}  // namespace
}  // namespace millrace::models
