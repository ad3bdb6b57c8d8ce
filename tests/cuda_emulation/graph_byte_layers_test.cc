// Layers of quantised graphs beside loops over integers. Sums are exact and
// what follows them is one chain of roundings, so results are equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/cuda/graph_byte_kernels.h"
#include "tests/cuda_emulation/byte_values.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/windows.h"

namespace millrace::cuda {
namespace {

// What may stand behind a sum.
enum class End {
  kPlain,     // floats, no bias
  kBytes,     // a bias
  kRelu,      // a residual in bytes before it
  kMiddle,    // rounded, a bias, a function, a residual in floats
  kLookup,    // a table
  kMeasured,  // of an x whose scale comes in the run
};
constexpr End kEnds[] = {End::kPlain,  End::kBytes,  End::kRelu,
                         End::kMiddle, End::kLookup, End::kMeasured};

// An epilogue on the device, and the same by the chain of graph_byte_kernels.h.
struct Behind {
  Behind(End end, int64_t outputs, int64_t count, const std::vector<int32_t>& w,
         int32_t zero)
      : kind(end),
        offset(w),
        scale(Floats(outputs, 0.004f, 21)),
        bias(Floats(outputs, 9, 22)),
        residual(Bytes(count, 23)),
        residual_f32(Floats(count, 30, 24)),
        table(Bytes(256, 25)),
        x_zero(1, static_cast<uint8_t>(zero)),
        d_offset(offset),
        d_scale(scale),
        d_bias(bias),
        d_residual(residual),
        d_residual_f32(residual_f32),
        d_table(table),
        d_x_scale({0.75f}),
        d_x_zero(x_zero) {}

  bool floats() const { return kind == End::kPlain || kind == End::kMeasured; }
  GraphByteEpilogue On() {
    GraphByteEpilogue e = {};
    e.offset = d_offset.get();
    e.scale = d_scale.get();
    e.y_scale = 1;
    if (kind == End::kPlain) return e;
    e.bias = d_bias.get();
    e.y_zero = 100;
    if (kind == End::kRelu) {
      e.f = Function::kRelu;
      e.residual = d_residual.get();
      e.residual_scale = 0.3f;
      e.residual_zero = 120;
      e.residual_first = true;
      e.y_zero = 3;
    }
    if (kind == End::kMiddle) {
      e.middle_scale = 0.7f;
      e.middle_low = -30;
      e.middle_high = 40;
      e.middle_bias = d_bias.get();
      e.f = Function::kHardSwish;
      e.residual_f32 = d_residual_f32.get();
      e.residual_scale = 0.5f;
      e.y_scale = 1.25f;
    }
    if (kind == End::kLookup) e.lookup = d_table.get();
    if (kind == End::kMeasured) {
      e.x_scale = d_x_scale.get();
      e.x_zero = d_x_zero.get();
    }
    return e;
  }
  // `sum` is of x without its zero point.
  float Value(int32_t sum, int64_t output, int64_t at) const {
    const auto s = static_cast<float>(sum);
    const float by = At(scale, output);
    switch (kind) {
      case End::kPlain:
        return s * by;
      case End::kMeasured:
        return std::fma(s, 0.75f * by, At(bias, output));
      case End::kRelu: {
        const float v = std::fma(static_cast<float>(At(residual, at)) - 120,
                                 0.3f, std::fma(s, by, At(bias, output)));
        return std::max(0.0f, v);
      }
      case End::kMiddle: {
        float v = std::fma(s, by, At(bias, output));
        v = std::clamp(std::nearbyint(v), -30.0f, 40.0f);
        v = std::fma(v, 0.7f, At(bias, output));
        v *= std::clamp(std::fma(1.0f / 6, v, 0.5f), 0.0f, 1.0f);
        return std::fma(At(residual_f32, at), 0.5f, v);
      }
      case End::kBytes:
      case End::kLookup:
        break;
    }
    return std::fma(s, by, At(bias, output));
  }
  uint8_t Byte(int32_t sum, int64_t output, int64_t at) const {
    const uint8_t byte =
        ByteOf(Value(sum, output, at), kind == End::kMiddle ? 1.25f : 1,
               kind == End::kRelu ? 3 : 100);
    return kind == End::kLookup ? At(table, byte) : byte;
  }

  const End kind;
  const std::vector<int32_t> offset;
  const std::vector<float> scale, bias;
  const std::vector<uint8_t> residual;
  const std::vector<float> residual_f32;
  const std::vector<uint8_t> table, x_zero;
  DeviceArray<int32_t> d_offset;
  DeviceArray<float> d_scale, d_bias;
  DeviceArray<uint8_t> d_residual;
  DeviceArray<float> d_residual_f32;
  DeviceArray<uint8_t> d_table;
  DeviceArray<float> d_x_scale;
  DeviceArray<uint8_t> d_x_zero;
};

struct Case {
  Window window;
  int64_t batch;
  int32_t channels, outputs, groups;
};

// Outputs by outputs, [taps][channels of a group], filled up; of depthwise ones
// [four taps][channels][4].
std::vector<int8_t> Packed(const GraphByteLayerArgs& c,
                           const std::vector<int8_t>& w, bool depthwise) {
  const int64_t taps = Product(c.window.kernel);
  const int64_t ci = c.channels / c.groups, co = c.outputs / c.groups;
  std::vector<int8_t> packed(static_cast<size_t>(
      depthwise ? (taps + 3) / 4 * 4 * c.channels : c.outputs * c.row_bytes));
  for (int64_t o = 0; o < c.outputs; ++o) {
    for (int64_t i = 0; i < ci; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t outer =
            c.transposed ? (o / co * ci + i) * co + o % co : o * ci + i;
        const int64_t to = depthwise ? (tap / 4 * c.channels + o) * 4 + tap % 4
                                     : o * c.row_bytes + tap * ci + i;
        packed[static_cast<size_t>(to)] = At(w, outer * taps + tap);
      }
    }
  }
  return packed;
}

void ExpectLayer(const Case& c, End end, GraphTile tile, bool depthwise) {
  constexpr int32_t kZero = 77;
  GraphByteLayerArgs args{};
  args.window = Of(c.window);
  args.transposed = c.window.transposed;
  args.batch = c.batch;
  args.channels = c.channels;
  args.outputs = c.outputs;
  args.groups = c.groups;
  args.tile = tile;
  args.zero = kZero;
  const int64_t taps = Product(args.window.kernel);
  const int64_t inputs = taps * c.channels / c.groups;
  args.row_bytes = (inputs + kPackedUnit - 1) / kPackedUnit * kPackedUnit;
  const int64_t pixels = Product(args.window.out);
  const int64_t count = c.batch * pixels * c.outputs;
  const auto x = Bytes(c.batch * Product(args.window.in) * c.channels, 1);
  const auto w = RandomInts<int8_t>(inputs * c.outputs, -128, 127, 2);
  std::vector<int32_t> sums(static_cast<size_t>(count));
  EachTerm(args, [&](int64_t in, int64_t weight, int64_t out) {
    sums[static_cast<size_t>(out)] += (At(x, in) - kZero) * At(w, weight);
  });
  const auto packed = Packed(args, w, depthwise);
  std::vector<int32_t> offset(static_cast<size_t>(c.outputs));
  for (int64_t o = 0; o < c.outputs; ++o) {
    int32_t sum = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      sum += depthwise ? packed[static_cast<size_t>(
                             (i / 4 * c.channels + o) * 4 + i % 4)]
                       : packed[static_cast<size_t>(o * args.row_bytes + i)];
    }
    offset[static_cast<size_t>(o)] =
        end == End::kMeasured ? -sum : -kZero * sum;
  }
  Behind behind(end, c.outputs, count, offset, kZero);
  DeviceArray<uint8_t> dx(x), padding(std::vector<uint8_t>(16, kZero));
  DeviceArray<int8_t> dw(packed);
  DeviceArray<uint8_t> y(std::vector<uint8_t>(static_cast<size_t>(count), 7));
  DeviceArray<float> y_f32(std::vector<float>(static_cast<size_t>(count), 7));
  args.x = dx.get();
  args.w = dw.get();
  args.padding = padding.get();
  args.epilogue = behind.On();
  if (behind.floats()) {
    args.y_f32 = y_f32.get();
  } else {
    args.y = y.get();
  }
  ASSERT_EQ(depthwise ? GraphByteDepthwise(nullptr, args)
                      : GraphByteLayer(nullptr, args),
            0);
  const auto bytes = y.Read();
  const auto floats = y_f32.Read();
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t o = i % c.outputs;
    const int32_t sum = At(sums, i);
    if (behind.floats()) {
      wrong += At(floats, i) != behind.Value(sum, o, i);
    } else {
      wrong += At(bytes, i) != behind.Byte(sum, o, i);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << count << ", end " << static_cast<int>(end)
                      << ", tile " << static_cast<int>(tile) << ", "
                      << c.channels << " channels, " << c.outputs << " outputs";
}

const Window kUp = {{1, 4, 5}, {1, 3, 2}, {1, 2, 3}, {1, 2, 1},
                    {0, 1, 0}, {0, 2, 1}, true};
const Window kPoint = {{1, 5, 7}, {1, 1, 1}, {1, 1, 1},
                       {1, 1, 1}, {0, 0, 0}, {0, 0, 0}};
const Window kSkips = {{1, 5, 7}, {1, 1, 1}, {1, 2, 2},
                       {1, 1, 1}, {0, 0, 0}, {0, 0, 0}};

class GraphByteLayerBy : public testing::TestWithParam<GraphTile> {};
TEST_P(GraphByteLayerBy, IsThatOfIntegers) {
  const Case cases[] = {{kFlat, 2, 3, 5, 1},    {kFlat, 1, 16, 70, 1},
                        {kOdd, 2, 32, 36, 1},   {kOdd, 1, 6, 8, 2},
                        {kSignal, 2, 32, 6, 2}, {kUp, 2, 6, 9, 1},
                        {kUp, 1, 16, 36, 1},    {kPoint, 2, 80, 132, 1},
                        {kPoint, 5, 30, 40, 1}, {kSkips, 2, 48, 20, 1}};
  for (const Case& c : cases) {
    for (const End end : kEnds) ExpectLayer(c, end, GetParam(), false);
  }
}
INSTANTIATE_TEST_SUITE_P(All, GraphByteLayerBy,
                         testing::Values(GraphTile::kChosen, GraphTile::kMiddle,
                                         GraphTile::kTall, GraphTile::kLarge),
                         [](const auto& tile) {
                           return "Tile" +
                                  std::to_string(static_cast<int>(tile.param));
                         });

TEST(GraphByteDepthwise, IsThatOfIntegers) {
  for (const Window& window : {kFlat, kOdd, kSignal, kPoint}) {
    for (const int32_t channels : {5, 12, 64}) {
      for (const End end : kEnds) {
        ExpectLayer({window, 2, channels, channels, channels}, end,
                    GraphTile::kChosen, true);
      }
    }
  }
}

// As many terms as the engine takes.
TEST(GraphByteLayer, TheGreatestSumsFit) {
  GraphByteLayerArgs args{};
  args.window = Of(kPoint);
  args.window.in[1] = args.window.in[2] = 1;
  args.window.out[1] = args.window.out[2] = 1;
  args.batch = args.outputs = args.groups = 1;
  args.channels = 64992;
  args.row_bytes = args.channels;
  DeviceArray<uint8_t> x(
      std::vector<uint8_t>(static_cast<size_t>(args.channels), 255));
  DeviceArray<int8_t> w(
      std::vector<int8_t>(static_cast<size_t>(args.channels), -128));
  DeviceArray<int32_t> offset({0});
  DeviceArray<float> scale({1}), y({0});
  args.x = x.get();
  args.w = w.get();
  args.y_f32 = y.get();
  args.epilogue.offset = offset.get();
  args.epilogue.scale = scale.get();
  ASSERT_EQ(GraphByteLayer(nullptr, args), 0);
  EXPECT_EQ(y.Read()[0], static_cast<float>(-255 * 128 * 64992));
}

}  // namespace
}  // namespace millrace::cuda
