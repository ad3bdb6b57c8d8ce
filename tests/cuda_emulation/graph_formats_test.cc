// Kernels of graphs whose operands and results lie in 16 bits: the same bits as
// in f32, where operands are exact, and results rounded once behind that. The
// f32 forms are held beside double precision by the other tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/graph/cuda/pack_factors.h"
#include "models/tensor/float16.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/windows.h"

namespace millrace::cuda {
namespace {

using models::graph::PackedRowBytes;
using models::graph::PackFactors;

constexpr float kGreatestHalf = 65504;

uint16_t ToBits(GraphFormat format, float value) {
  if (format == GraphFormat::kBf16) return models::FloatToBFloat16(value);
  return models::FloatToHalf(
      std::isfinite(value) ? std::clamp(value, -kGreatestHalf, kGreatestHalf)
                           : value);
}
float FromBits(GraphFormat format, uint16_t bits) {
  return format == GraphFormat::kBf16 ? models::BFloat16ToFloat(bits)
                                      : models::HalfToFloat(bits);
}

// One operand in both forms.
struct Operand {
  Operand(GraphFormat as, std::vector<uint16_t> bits)
      : format(as), narrow(bits), floats(Widened(as, bits)) {}
  static std::vector<float> Widened(GraphFormat as,
                                    const std::vector<uint16_t>& bits) {
    std::vector<float> values;
    for (const uint16_t each : bits) values.push_back(FromBits(as, each));
    return values;
  }
  ValuesIn In(bool is_narrow) {
    return is_narrow ? ValuesIn(narrow.get(), format) : ValuesIn(floats.get());
  }
  GraphFormat format;
  DeviceArray<uint16_t> narrow;
  DeviceArray<float> floats;
};

class GraphFormats : public testing::TestWithParam<GraphFormat> {
 protected:
  std::unique_ptr<Operand> Random(int64_t count, uint64_t seed,
                                  float most = 1) const {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> uniform(-most, most);
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    for (uint16_t& each : bits) each = ToBits(format(), uniform(random));
    return std::make_unique<Operand>(format(), bits);
  }
  GraphFormat format() const { return GetParam(); }
  GraphPrecision precision() const {
    return format() == GraphFormat::kF16 ? GraphPrecision::kF16
                                         : GraphPrecision::kBf16;
  }

  // Every mixture of formats gives what f32 gives, rounded to the result's.
  using Operands = std::vector<std::unique_ptr<Operand>>;
  using Launch = std::function<int(const std::vector<ValuesIn>&, ValuesOut)>;
  void ExpectSame(const Operands& operands, int64_t count,
                  const Launch& launch) const {
    std::vector<float> want;
    const auto mixtures = unsigned{1} << operands.size();
    for (unsigned mixture = 0; mixture < mixtures; ++mixture) {
      std::vector<ValuesIn> in;
      for (size_t i = 0; i < operands.size(); ++i) {
        in.push_back(operands[i]->In((mixture >> i & 1) != 0));
      }
      DeviceArray<float> floats(
          std::vector<float>(static_cast<size_t>(count), 7));
      DeviceArray<uint16_t> narrow(
          std::vector<uint16_t>(static_cast<size_t>(count), 7));
      ASSERT_EQ(launch(in, floats.get()), 0);
      ASSERT_EQ(launch(in, {narrow.get(), format()}), 0);
      const auto got = floats.Read();
      const auto rounded = narrow.Read();
      if (mixture == 0) want = got;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i] == want[i] ||
                    (std::isnan(got[i]) && std::isnan(want[i])))
            << got[i] << " is not " << want[i] << " at " << i << ", mixture "
            << mixture;
        const float value = FromBits(format(), rounded[i]);
        ASSERT_TRUE(rounded[i] == ToBits(format(), want[i]) ||
                    (std::isnan(value) && std::isnan(want[i])))
            << value << " is not " << want[i] << " at " << i << ", mixture "
            << mixture;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, GraphFormats,
                         testing::Values(GraphFormat::kF16, GraphFormat::kBf16),
                         [](const auto& test) {
                           return test.param == GraphFormat::kF16 ? "F16"
                                                                  : "Bf16";
                         });

// (x * row + column) / s, with and without runs of four.
TEST_P(GraphFormats, OfPrograms) {
  for (const int64_t width : {7, 8}) {
    Operands operands;
    operands.push_back(Random(15 * width, 1));
    operands.push_back(Random(width, 2));
    operands.push_back(Random(5, 3));
    operands.push_back(Random(1, 4));
    ExpectSame(operands, 15 * width, [&](const auto& in, ValuesOut out) {
      PointwiseArgs args{};
      args.rank = 3;
      args.num_operands = 4;
      args.num_instructions = 3;
      args.count = 15 * width;
      args.sizes[0] = 3;
      args.sizes[1] = 5;
      args.sizes[2] = width;
      std::copy(in.begin(), in.end(), args.x);
      args.strides[0][0] = 5 * width;
      args.strides[0][1] = width;
      args.strides[0][2] = args.strides[1][2] = args.strides[2][1] = 1;
      const Function none = Function::kNone;
      args.program[0] = {Operation::kMul, none, 0, 1, 0, 0};
      args.program[1] = {Operation::kAdd, none, 4, 2, 0, 0};
      args.program[2] = {Operation::kDiv, none, 5, 3, 0, 0};
      args.y = out;
      return GraphPointwise(nullptr, args);
    });
  }
}

TEST_P(GraphFormats, OfCopiesAndGathers) {
  Operands operands;
  operands.push_back(Random(2 * 5 * 8, 1));
  ExpectSame(operands, 80, [&](const auto& in, ValuesOut out) {
    CopyStridedArgs args{};  // transposed
    args.rank = 3;
    args.count = 80;
    args.sizes[0] = 2;
    args.sizes[1] = 8;
    args.sizes[2] = 5;
    args.from_strides[0] = args.to_strides[0] = 40;
    args.from_strides[1] = args.to_strides[2] = 1;
    args.from_strides[2] = 8;
    args.to_strides[1] = 5;
    args.from = in[0];
    args.to = out;
    return GraphCopyStrided(nullptr, args);
  });
  DeviceArray<int64_t> indices(std::vector<int64_t>{4, -5, 0});
  ExpectSame(operands, 2 * 3 * 8, [&](const auto& in, ValuesOut out) {
    return GraphGather(nullptr, {2, 5, 8, 3, indices.get(), true, in[0], out});
  });
}

TEST_P(GraphFormats, OfRows) {
  for (const int64_t inner : {1, 5}) {
    Operands operands;
    operands.push_back(Random(2 * 150 * inner, 1, 4));
    for (const bool logarithm : {false, true}) {
      ExpectSame(operands, 300 * inner, [&](const auto& in, ValuesOut out) {
        return GraphSoftmax(nullptr, {2, 150, inner, logarithm, in[0], out});
      });
    }
    for (const ReduceOf kind :
         {ReduceOf::kSum, ReduceOf::kMax, ReduceOf::kL2}) {
      ExpectSame(operands, 2 * inner, [&](const auto& in, ValuesOut out) {
        return GraphReduce(nullptr, {2, 150, inner, kind, in[0], out});
      });
    }
  }
  Operands operands;
  operands.push_back(Random(2 * 9 * 6, 2));
  DeviceArray<float> weight({1, 2, 3, 4, 5, 6});
  for (const int64_t groups : {1, 3}) {
    ExpectSame(operands, 108, [&](const auto& in, ValuesOut out) {
      return GraphNormalize(
          nullptr, {2, 9, 6, groups, groups == 3, weight.get(), nullptr, 1e-5f,
                    in[0], out});
    });
  }
}

TEST_P(GraphFormats, OfPools) {
  GraphPoolArgs args{};
  args.window = Of(kOdd);
  args.batch = 2;
  args.channels = 5;
  const int64_t outputs = 2 * Product(args.window.out) * 5;
  Operands operands;
  operands.push_back(Random(2 * Product(args.window.in) * 5, 1));
  for (const PoolOf kind : {PoolOf::kMax, PoolOf::kMeanPadded}) {
    ExpectSame(operands, outputs, [&](const auto& in, ValuesOut out) {
      args.kind = kind;
      args.x = in[0];
      args.y = out;
      return GraphPool(nullptr, args);
    });
  }
}

// A stack of products, of which B is packed where the stack has one, with a
// residual and a gate.
TEST_P(GraphFormats, OfProducts) {
  struct Case {
    int64_t stack, m, n, k;
    bool kn, packed;
  };
  for (const Case& c : {Case{2, 35, 20, 40, true, false},
                        {1, 67, 72, 96, false, true},
                        {3, 5, 9, 13, false, false},
                        {1, 40, 68, 33, false, true}}) {
    Operands operands;
    operands.push_back(Random(c.stack * c.m * c.k, 1));
    operands.push_back(Random(c.stack * c.k * c.n, 2));
    operands.push_back(Random(c.stack * c.m * c.n, 3));
    operands.push_back(Random(c.stack * c.m * c.n, 4));
    const auto weights = operands[1]->floats.Read();
    DeviceArray<std::byte> packed(
        PackFactors(precision(),
                    {.outputs = c.packed ? c.n : 0,
                     .channels = c.k,
                     .output_stride = c.kn ? 1 : c.k,
                     .channel_stride = c.kn ? c.n : 1},
                    weights.data()));
    for (const GraphPrecision by : {GraphPrecision::kF32, precision()}) {
      ExpectSame(operands, c.stack * c.m * c.n,
                 [&](const auto& in, ValuesOut out) {
                   ProductArgs args{};
                   args.precision = by;
                   if (c.packed && by != GraphPrecision::kF32) {
                     args.packed_b = {packed.get(), PackedRowBytes(by, c.k)};
                   }
                   args.a = in[0];
                   args.b = in[1];
                   args.y = out;
                   args.m = c.m;
                   args.n = c.n;
                   args.k = args.a_row = c.k;
                   args.a_k = 1;
                   args.b_k = c.kn ? c.n : 1;
                   args.b_n = c.kn ? 1 : c.k;
                   args.y_row = c.n;
                   args.rank = 1;
                   args.count = args.sizes[0] = c.stack;
                   args.a_strides[0] = c.m * c.k;
                   args.b_strides[0] = c.k * c.n;
                   args.y_strides[0] = c.m * c.n;
                   args.epilogue.residual = in[2];
                   args.epilogue.gate = in[3];
                   args.epilogue.f = Function::kRelu;
                   return GraphProduct(nullptr, args);
                 });
    }
  }
}

TEST_P(GraphFormats, OfConvolutions) {
  struct Case {
    Window window;
    int32_t channels, outputs, groups;
    bool transposed;
  };
  Window up = kFlat;
  up.transposed = true;
  up.stride = {1, 2, 1};
  for (const Case& c : {Case{kFlat, 16, 20, 1, false},
                        {kOdd, 3, 9, 1, false},
                        {kOdd, 6, 6, 6, false},
                        {kFlat, 4, 20, 2, false},
                        {kFlat, 32, 36, 2, false},
                        {up, 8, 12, 1, true}}) {
    GraphConvArgs args{};
    args.window = Of(c.window);
    args.batch = 2;
    args.channels = c.channels;
    args.outputs = c.outputs;
    args.groups = c.groups;
    args.transposed = c.transposed;
    const int64_t taps = Product(args.window.kernel);
    const int64_t count = 2 * Product(args.window.out) * c.outputs;
    const int64_t ci = c.channels / c.groups;
    Operands operands;
    operands.push_back(Random(2 * Product(args.window.in) * c.channels, 1));
    operands.push_back(Random(count, 2));
    const auto weights = Random(taps * c.channels * c.outputs / c.groups, 3);
    const auto values = weights->floats.Read();
    DeviceArray<std::byte> packed(PackFactors(
        precision(),
        {.outputs = GroupsOnTensors(c.groups, c.outputs) ? c.outputs : 0,
         .taps = taps,
         .channels = ci,
         .output_stride = c.transposed ? taps : ci * taps,
         .tap_stride = 1,
         .channel_stride = c.transposed ? c.outputs * taps : taps},
        values.data()));
    args.w = weights->floats.get();
    args.packed_w = {packed.get(), PackedRowBytes(precision(), taps * ci)};
    for (const GraphPrecision by : {GraphPrecision::kF32, precision()}) {
      ExpectSame(operands, count, [&](const auto& in, ValuesOut out) {
        args.precision = by;
        args.x = in[0];
        args.epilogue.residual = in[1];
        args.y = out;
        return GraphConv(nullptr, args);
      });
    }
  }
}

TEST_P(GraphFormats, OfAttention) {
  struct Case {
    int64_t heads, queries, keys, size;
  };
  for (const Case& c : {Case{2, 9, 70, 64}, {1, 5, 7, 33}, {1, 3, 6, 136}}) {
    Operands operands;
    operands.push_back(Random(c.queries * c.heads * c.size, 1));
    operands.push_back(Random(c.keys * c.heads * c.size, 2));
    operands.push_back(Random(c.keys * c.heads * c.size, 3));
    ExpectSame(operands, c.queries * c.heads * c.size,
               [&](const auto& in, ValuesOut out) {
                 GraphAttentionArgs args{};
                 args.precision = precision();
                 args.q = in[0];
                 args.k = in[1];
                 args.v = in[2];
                 args.out = out;
                 const int64_t token = c.heads * c.size;
                 args.q_at = args.out_at = {c.queries * token, token, c.size};
                 args.k_at = args.v_at = {c.keys * token, token, c.size};
                 args.items = args.mask_items = 1;
                 args.heads = args.key_heads = c.heads;
                 args.queries = c.queries;
                 args.keys = c.keys;
                 args.scale = 0.3f;
                 return GraphAttention(nullptr, args);
               });
  }
}

TEST(GraphFormatsOfHalves, FiniteValuesStayFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  DeviceArray<float> x({1e6f, -3.4e38f, inf, -inf, NAN, 65519, 1e-8f, 0.1f});
  DeviceArray<uint16_t> y(std::vector<uint16_t>(8));
  CopyStridedArgs args{};
  args.rank = 1;
  args.count = args.sizes[0] = 8;
  args.from_strides[0] = args.to_strides[0] = 1;
  args.from = x.get();
  args.to = {y.get(), GraphFormat::kF16};
  ASSERT_EQ(GraphCopyStrided(nullptr, args), 0);
  const auto got = y.Read();
  const std::vector<float> want = {kGreatestHalf, -kGreatestHalf, inf, -inf,
                                   NAN,           kGreatestHalf,  0};
  for (size_t i = 0; i < want.size(); ++i) {
    const float value = models::HalfToFloat(got[i]);
    EXPECT_TRUE(value == want[i] || (std::isnan(value) && std::isnan(want[i])))
        << value << " is not " << want[i];
  }
  EXPECT_NEAR(models::HalfToFloat(got[7]), 0.1, 0x1p-15);
}

}  // namespace
}  // namespace millrace::cuda
