// The kernels of graphs that are no layers, beside loops in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/cuda_emulation/cuda_emulation.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Random(int64_t n, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}
float At(const std::vector<float>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}
std::vector<float> Zeros(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n));
}

double Reference(Function f, double a, double b, double x) {
  switch (f) {
    case Function::kNone:
      return x;
    case Function::kRelu:
      return std::max(0.0, x);
    case Function::kClip:
      return std::min(b, std::max(a, x));
    case Function::kLeakyRelu:
      return x < 0 ? a * x : x;
    case Function::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::kHardSigmoid:
      return std::clamp(a * x + b, 0.0, 1.0);
    case Function::kHardSwish:
      return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case Function::kSilu:
      return x / (1 + std::exp(-x));
    case Function::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Function::kGeluTanh:
      return x / 2 *
             (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Function::kTanh:
      return std::tanh(x);
    case Function::kElu:
      return x > 0 ? x : a * (std::exp(x) - 1);
    case Function::kSoftplus:
      return std::log1p(std::exp(a * x)) / a;
    case Function::kMish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case Function::kExp:
      return std::exp(x);
    case Function::kLog:
      return std::log(x);
    case Function::kSqrt:
      return std::sqrt(x);
    case Function::kRsqrt:
      return 1 / std::sqrt(x);
    case Function::kReciprocal:
      return 1 / x;
    case Function::kNeg:
      return -x;
    case Function::kAbs:
      return std::fabs(x);
    case Function::kErf:
      return std::erf(x);
    case Function::kFloor:
      return std::floor(x);
    case Function::kCeil:
      return std::ceil(x);
    case Function::kRound:
      return std::nearbyint(x);
    case Function::kSin:
      return std::sin(x);
    case Function::kCos:
      return std::cos(x);
  }
  return 0;
}

TEST(GraphPointwise, HasEachFunction) {
  auto x = Random(300, 1, 12);
  x[0] = 0;
  x[1] = 2.5f;
  x[2] = -0.5f;
  for (int f = 0; f <= static_cast<int>(Function::kCos); ++f) {
    const auto function = static_cast<Function>(f);
    std::vector<float> in = x;
    const bool positive = function == Function::kLog ||
                          function == Function::kSqrt ||
                          function == Function::kRsqrt;
    if (positive) {
      for (float& value : in) value = std::fabs(value);
    }
    DeviceArray<float> dx(in), y(Zeros(300));
    PointwiseArgs args{};
    args.rank = 1;
    args.num_operands = 1;
    args.num_instructions = 1;
    args.count = args.sizes[0] = 300;
    args.strides[0][0] = 1;
    args.x[0] = dx.get();
    args.program[0] = {Operation::kFunction, function, 0, 0, 0.5f, 0.75f};
    args.y = y.get();
    ASSERT_EQ(GraphPointwise(nullptr, args), 0);
    const auto got = y.Read();
    for (size_t i = 0; i < 300; ++i) {
      const double want = Reference(function, 0.5, 0.75, in[i]);
      if (std::isinf(want)) {
        EXPECT_EQ(got[i], want) << f << " of " << in[i];
        continue;
      }
      // Arguments of exp are rounded at their size, 20 at most; values near
      // x, of functions that are differences, at the size of x.
      EXPECT_NEAR(got[i], want,
                  0x1p-24 * (40 * std::fabs(want) + 8 * std::fabs(in[i]) + 8))
          << f << " of " << in[i];
    }
  }
}

// min(max(x * row + column, s), 9) / (x - s), broadcast.
TEST(GraphPointwise, RunsProgramsOverBroadcastOperands) {
  const int64_t sizes[3] = {3, 5, 7};
  const auto x = Random(105, 1), row = Random(7, 2), column = Random(5, 3);
  const std::vector<float> scalar = {0.1f};
  DeviceArray<float> dx(x), drow(row), dcolumn(column), ds(scalar);
  DeviceArray<float> y(Zeros(105));
  PointwiseArgs args{};
  args.rank = 3;
  args.num_operands = 4;
  args.num_instructions = 6;
  args.count = 105;
  std::copy_n(sizes, 3, args.sizes);
  args.x[0] = dx.get();
  args.x[1] = drow.get();
  args.x[2] = dcolumn.get();
  args.x[3] = ds.get();
  args.strides[0][0] = 35;
  args.strides[0][1] = 7;
  args.strides[0][2] = args.strides[1][2] = args.strides[2][1] = 1;
  const Function none = Function::kNone;
  args.program[0] = {Operation::kMul, none, 0, 1, 0, 0};
  args.program[1] = {Operation::kAdd, none, 4, 2, 0, 0};
  args.program[2] = {Operation::kMax, none, 5, 3, 0, 0};
  args.program[3] = {Operation::kMin, none, 6, 0, 0, 0};
  args.program[4] = {Operation::kSub, none, 0, 3, 0, 0};
  args.program[5] = {Operation::kDiv, none, 7, 8, 0, 0};
  args.y = y.get();
  ASSERT_EQ(GraphPointwise(nullptr, args), 0);
  const auto got = y.Read();
  for (int64_t i = 0; i < 105; ++i) {
    const float v = At(x, i);
    const float product = v * At(row, i % 7);
    const float top =
        std::min(std::max(product + At(column, i / 7 % 5), 0.1f), v);
    EXPECT_EQ(At(got, i), top / (v - 0.1f));
  }
}

TEST(GraphSoftmax, AddsUpToOneAlongAnyAxis) {
  for (const auto& [outer, size, inner] :
       {std::array<int64_t, 3>{3, 1, 1}, {2, 300, 1}, {2, 17, 5}}) {
    for (const bool logarithm : {false, true}) {
      const auto x = Random(outer * size * inner, 1, 30);
      DeviceArray<float> dx(x), y(Zeros(outer * size * inner));
      const SoftmaxArgs args{outer, size, inner, logarithm, dx.get(), y.get()};
      ASSERT_EQ(GraphSoftmax(nullptr, args), 0);
      const auto got = y.Read();
      for (int64_t row = 0; row < outer * inner; ++row) {
        const int64_t begin = row / inner * size * inner + row % inner;
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) {
          sum += std::exp(double{At(x, begin + i * inner)});
        }
        for (int64_t i = 0; i < size; ++i) {
          const int64_t at = begin + i * inner;
          const double log = At(x, at) - std::log(sum);
          // A difference from the greatest, 60 at most, is rounded at its size.
          const double want = logarithm ? log : std::exp(log);
          EXPECT_NEAR(At(got, at), want,
                      0x1p-24 * (logarithm ? 200 : 400 * want) + 1e-30);
        }
      }
    }
  }
  DeviceArray<float> hidden(std::vector<float>(40, -kInf)), y(Zeros(40));
  ASSERT_EQ(GraphSoftmax(nullptr, {1, 40, 1, false, hidden.get(), y.get()}), 0);
  EXPECT_TRUE(std::isnan(y.Read()[0]));
}

TEST(GraphNormalize, NormalisesRowsAndGroups) {
  struct Case {
    int64_t items, pixels, channels, groups;
    bool centred, weighted;
  };
  for (const Case& c : {Case{3, 1, 1, 1, true, true},
                        {4, 1, 300, 1, true, false},
                        {4, 1, 129, 1, false, true},
                        {2, 35, 6, 3, true, true},
                        {2, 9, 5, 5, true, true}}) {
    const int64_t count = c.items * c.pixels * c.channels;
    const auto x = Random(count, 1), weight = Random(c.channels, 2);
    const auto bias = Random(c.channels, 3);
    DeviceArray<float> dx(x), dw(weight), db(bias), y(Zeros(count));
    const NormalizeArgs args{c.items,
                             c.pixels,
                             c.channels,
                             c.groups,
                             c.centred,
                             c.weighted ? dw.get() : nullptr,
                             c.weighted ? db.get() : nullptr,
                             1e-3f,
                             dx.get(),
                             y.get()};
    ASSERT_EQ(GraphNormalize(nullptr, args), 0);
    const auto got = y.Read();
    const int64_t width = c.channels / c.groups;
    for (int64_t at = 0; at < count; ++at) {
      const int64_t channel = at % c.channels;
      const int64_t item = at / c.channels / c.pixels;
      double sum = 0, squares = 0;
      const auto over = [&](auto body) {
        for (int64_t p = 0; p < c.pixels; ++p) {
          for (int64_t i = 0; i < width; ++i) {
            body(At(x, (item * c.pixels + p) * c.channels +
                           channel / width * width + i));
          }
        }
      };
      over([&](double v) { sum += v; });
      const auto n = static_cast<double>(c.pixels * width);
      const double mean = c.centred ? sum / n : 0;
      over([&](double v) { squares += (v - mean) * (v - mean); });
      const double r = 1 / std::sqrt(squares / n + 1e-3);
      double want = (At(x, at) - mean) * r;
      if (c.weighted) want = want * At(weight, channel) + At(bias, channel);
      EXPECT_NEAR(At(got, at), want, 0x1p-24 * (n + 8) * (1 + r) * 2);
    }
  }
}

TEST(GraphReduce, IsThatOfDoublesAndKeepsNan) {
  for (const auto& [outer, size, inner] :
       {std::array<int64_t, 3>{3, 1, 1}, {2, 400, 1}, {3, 131, 5}}) {
    for (int k = 0; k <= static_cast<int>(ReduceOf::kL2); ++k) {
      const auto kind = static_cast<ReduceOf>(k);
      const auto x = Random(outer * size * inner, 1);
      DeviceArray<float> dx(x), y(Zeros(outer * inner));
      ASSERT_EQ(
          GraphReduce(nullptr, {outer, size, inner, kind, dx.get(), y.get()}),
          0);
      const auto got = y.Read();
      for (int64_t row = 0; row < outer * inner; ++row) {
        const int64_t begin = row / inner * size * inner + row % inner;
        double sum = 0, squares = 0, most = -kInf, least = kInf;
        for (int64_t i = 0; i < size; ++i) {
          const double v = At(x, begin + i * inner);
          sum += v;
          squares += v * v;
          most = std::max(most, v);
          least = std::min(least, v);
        }
        const auto n = static_cast<double>(size);
        const double wants[] = {sum,   sum / n, most,
                                least, squares, std::sqrt(squares)};
        EXPECT_NEAR(At(got, row), wants[k], 0x1p-24 * (n + 8) * n);
      }
    }
  }
  for (const int64_t inner : {1, 2}) {
    std::vector<float> x(static_cast<size_t>(200 * inner), 1.0f);
    x[static_cast<size_t>(150 * inner)] = kNan;
    DeviceArray<float> dx(x), y(Zeros(inner));
    ASSERT_EQ(GraphReduce(nullptr,
                          {1, 200, inner, ReduceOf::kMax, dx.get(), y.get()}),
              0);
    EXPECT_TRUE(std::isnan(y.Read()[0]));
  }
}

TEST(GraphGather, TakesSlicesAndFindsTheFirstBadIndex) {
  const auto x = Random(2 * 5 * 3, 1);
  const std::vector<int64_t> wide = {4, -5, 0, -1};
  const std::vector<int32_t> narrow = {4, -5, 0, -1};
  DeviceArray<float> dx(x);
  DeviceArray<int64_t> dwide(wide);
  DeviceArray<int32_t> dnarrow(narrow);
  for (const bool is_wide : {true, false}) {
    DeviceArray<float> y(Zeros(2 * 4 * 3));
    DeviceArray<int64_t> found(std::vector<int64_t>(2, 7));
    const void* indices =
        is_wide ? static_cast<void*>(dwide.get()) : dnarrow.get();
    ASSERT_EQ(
        GraphGather(nullptr, {2, 5, 3, 4, indices, is_wide, dx.get(), y.get()}),
        0);
    ASSERT_EQ(GraphCheckIndices(nullptr, {indices, is_wide, 4, 5, found.get()}),
              0);
    EXPECT_EQ(found.Read(), (std::vector<int64_t>{-1, 0}));
    const auto got = y.Read();
    const int64_t rows[] = {4, 0, 0, 4};
    for (int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ(At(got, i), At(x, (i / 12 * 5 + rows[i / 3 % 4]) * 3 + i % 3));
    }
  }
  std::vector<int64_t> many(1000, 1);
  many[700] = -6;
  many[444] = 5;
  DeviceArray<int64_t> dmany(many);
  DeviceArray<int64_t> found(std::vector<int64_t>(2, 7));
  ASSERT_EQ(
      GraphCheckIndices(nullptr, {dmany.get(), true, 1000, 5, found.get()}), 0);
  EXPECT_EQ(found.Read(), (std::vector<int64_t>{444, 5}));
}

TEST(GraphCopy, GoesBetweenStridesAndCasts) {
  const auto x = Random(3 * 5, 1);
  DeviceArray<float> dx(x), y(Zeros(60));
  CopyStridedArgs args{};  // transposed, backwards, twice, to every other place
  args.rank = 3;
  args.count = 30;
  args.sizes[0] = 2;
  args.sizes[1] = 5;
  args.sizes[2] = 3;
  args.from_strides[1] = -1;
  args.from_strides[2] = 5;
  args.to_strides[0] = 30;
  args.to_strides[1] = 6;
  args.to_strides[2] = 2;
  args.from = dx.get() + 4;
  args.to = y.get();
  ASSERT_EQ(GraphCopyStrided(nullptr, args), 0);
  const auto got = y.Read();
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t n = i / 2;
    EXPECT_EQ(At(got, i), i % 2 == 1 ? 0 : At(x, n % 3 * 5 + 4 - n / 3 % 5));
  }
  DeviceArray<int64_t> wide(std::vector<int64_t>{-3, 1 << 20});
  DeviceArray<int32_t> narrow(std::vector<int32_t>{-3, 7});
  DeviceArray<uint8_t> bytes(std::vector<uint8_t>{0, 200});
  DeviceArray<float> to(Zeros(2));
  const auto cast = [&](CastFrom type, const void* from) {
    EXPECT_EQ(GraphCast(nullptr, {type, 2, from, to.get()}), 0);
    return to.Read();
  };
  EXPECT_EQ(cast(CastFrom::kI64, wide.get()),
            (std::vector<float>{-3, 1 << 20}));
  EXPECT_EQ(cast(CastFrom::kI32, narrow.get()), (std::vector<float>{-3, 7}));
  EXPECT_EQ(cast(CastFrom::kU8, bytes.get()), (std::vector<float>{0, 200}));
  EXPECT_EQ(cast(CastFrom::kBool, bytes.get()), (std::vector<float>{0, 1}));
}

}  // namespace
}  // namespace millrace::cuda
