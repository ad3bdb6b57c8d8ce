// Arrays and pools of bytes on a GPU, and elementwise programs that read and
// write bytes, beside the same roundings in loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/cuda/graph_byte_kernels.h"
#include "tests/cuda_emulation/byte_values.h"
#include "tests/cuda_emulation/device_array.h"
#include "tests/cuda_emulation/windows.h"

namespace millrace::cuda {
namespace {

TEST(GraphBytes, ArraysAreQuantisedAndBack) {
  for (const int64_t count : {1, 3, 4, 1001, 8191, 40000}) {
    auto x = Floats(count, 3, 1);
    x[0] = std::numeric_limits<float>::quiet_NaN();
    DeviceArray<float> dx(x), back(std::vector<float>(x.size()));
    DeviceArray<uint8_t> q(std::vector<uint8_t>(x.size()));
    ASSERT_EQ(GraphQuantize(nullptr, {.count = count,
                                      .scale = 50,
                                      .zero = 120,
                                      .x = dx.get(),
                                      .y = q.get()}),
              0);
    ASSERT_EQ(GraphDequantize(nullptr, {.count = count,
                                        .scale = 0.02f,
                                        .zero = 120,
                                        .x_scale = nullptr,
                                        .x_zero = nullptr,
                                        .x = q.get(),
                                        .y = back.get()}),
              0);
    const auto table = Bytes(256, 3);
    DeviceArray<uint8_t> dtable(table), found(std::vector<uint8_t>(x.size()));
    ASSERT_EQ(GraphLookup(nullptr, {.count = count,
                                    .table = dtable.get(),
                                    .x = q.get(),
                                    .y = found.get()}),
              0);
    const auto bytes = q.Read();
    const auto floats = back.Read();
    const auto looked = found.Read();
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t want = i == 0 ? 0 : ByteOf(At(x, i), 50, 120);
      EXPECT_EQ(At(bytes, i), want) << i;
      EXPECT_EQ(At(floats, i), static_cast<float>(want - 120) * 0.02f);
      EXPECT_EQ(At(looked, i), table[want]);
    }
  }
}

TEST(GraphBytes, RangesAreMeasured) {
  struct Range {
    int64_t count;
    float least, most;
  };
  for (const Range& r : {Range{1, 0, 0}, Range{5, 1, 4}, Range{300, -3, -1},
                         Range{8192, -2, 5}, Range{1300000, -7, 3}}) {
    auto x = Floats(r.count, 1, 7);
    for (float& v : x) v = r.least + (v + 1) / 2 * (r.most - r.least);
    if (r.count > 5) x[3] = std::numeric_limits<float>::quiet_NaN();
    float low = 0, high = 0;
    for (const float v : x) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
    const float scale = (high == low ? 1.0f : high - low) / 255.0f;
    const auto zero = static_cast<int32_t>(
        std::nearbyint(std::clamp(0.0f - low / scale, 0.0f, 255.0f)));
    DeviceArray<float> dx(x), dscale({0});
    DeviceArray<uint8_t> y(std::vector<uint8_t>(x.size())), dzero({9});
    ASSERT_EQ(GraphMeasure(nullptr, {.count = r.count,
                                     .x = dx.get(),
                                     .y = y.get(),
                                     .scale = dscale.get(),
                                     .zero = dzero.get()}),
              0);
    EXPECT_EQ(dscale.Read()[0], scale);
    EXPECT_EQ(dzero.Read()[0], zero);
    const auto got = y.Read();
    DeviceArray<float> back(std::vector<float>(x.size()));
    GraphDequantizeArgs undo = {};
    undo.count = r.count;
    undo.x_scale = dscale.get();
    undo.x_zero = dzero.get();
    undo.x = y.get();
    undo.y = back.get();
    ASSERT_EQ(GraphDequantize(nullptr, undo), 0);
    const auto floats = back.Read();
    int64_t wrong = 0;
    for (int64_t i = 0; i < r.count; ++i) {
      const float v = At(x, i);
      wrong +=
          At(got, i) != (std::isnan(v) ? 0 : ByteOf(v, 1.0f / scale, zero));
      wrong += At(floats, i) != static_cast<float>(At(got, i) - zero) * scale;
    }
    EXPECT_EQ(wrong, 0) << r.count;
  }
}

TEST(GraphBytes, PoolsAreTheGreatestAndTheMean) {
  for (const Window& window : {kFlat, kOdd, kSignal}) {
    GraphBytePoolArgs args{};
    args.window = Of(window);
    args.batch = 2;
    args.channels = 35;
    const int64_t in = Product(args.window.in), out = Product(args.window.out);
    const auto x = Bytes(2 * in * 35, 1);
    DeviceArray<uint8_t> dx(x);
    DeviceArray<uint8_t> y(
        std::vector<uint8_t>(static_cast<size_t>(2 * out * 35), 7));
    args.x = dx.get();
    args.y = y.get();
    ASSERT_EQ(GraphByteMaxPool(nullptr, args), 0);
    GraphConvArgs terms{};  // of each channel by itself
    terms.window = args.window;
    terms.batch = 2;
    terms.channels = terms.outputs = terms.groups = 35;
    std::vector<uint8_t> want(static_cast<size_t>(2 * out * 35));
    EachTerm(terms, [&](int64_t from, int64_t, int64_t to) {
      uint8_t& best = want[static_cast<size_t>(to)];
      best = std::max(best, At(x, from));
    });
    EXPECT_EQ(y.Read(), want);

    GraphByteMeanArgs mean{};
    mean.batch = 2;
    mean.pixels = in;
    mean.channels = 35;
    mean.x_scale = 0.03f;
    mean.x_zero = 99;
    mean.y_scale = 80;
    mean.y_zero = 110;
    mean.x = dx.get();
    DeviceArray<uint8_t> bytes(std::vector<uint8_t>(70));
    DeviceArray<float> floats(std::vector<float>(70));
    mean.y = bytes.get();
    ASSERT_EQ(GraphByteMean(nullptr, mean), 0);
    mean.y = nullptr;
    mean.y_f32 = floats.get();
    ASSERT_EQ(GraphByteMean(nullptr, mean), 0);
    const auto got_bytes = bytes.Read();
    const auto got = floats.Read();
    for (int64_t i = 0; i < 70; ++i) {
      int64_t sum = 0;
      for (int64_t p = 0; p < in; ++p) {
        sum += At(x, (i / 35 * in + p) * 35 + i % 35) - 99;
      }
      const auto v = static_cast<float>(
          static_cast<double>(sum) * (double{0.03f} / static_cast<double>(in)));
      EXPECT_EQ(At(got, i), v);
      EXPECT_EQ(At(got_bytes, i), ByteOf(v, 80, 110));
    }
  }
}

TEST(GraphBytes, ProgramsReadAndWriteBytes) {
  const auto a = Bytes(6 * 50, 1);
  const auto b = Floats(50, 2, 2);
  DeviceArray<uint8_t> da(a), y(std::vector<uint8_t>(a.size()));
  DeviceArray<float> db(b);
  PointwiseArgs args{};
  args.rank = 2;
  args.num_operands = 2;
  args.num_instructions = 2;
  args.count = 300;
  args.sizes[0] = 6;
  args.sizes[1] = 50;
  args.strides[0][0] = 50;
  args.strides[0][1] = args.strides[1][1] = 1;
  args.x[0] = da.get();
  args.x[1] = db.get();
  args.scales[0] = 0.02f;
  args.zeros[0] = 130;
  args.program[0] = {Operation::kMul, Function::kNone, 0, 1, 0, 0};
  args.program[1] = {Operation::kFunction, Function::kRelu, 2, 0, 0, 0};
  args.y = y.get();
  args.y_scale = 60;
  args.y_zero = 4;
  ASSERT_EQ(GraphPointwise(nullptr, args), 0);
  const auto got = y.Read();
  for (int64_t i = 0; i < 300; ++i) {
    const float x = static_cast<float>(At(a, i) - 130) * 0.02f;
    EXPECT_EQ(At(got, i), ByteOf(std::max(0.0f, x * At(b, i % 50)), 60, 4));
  }
}

TEST(GraphBytes, CopiesMoveBytes) {
  const auto x = Bytes(6, 1);
  DeviceArray<uint8_t> dx(x), y(std::vector<uint8_t>(6));
  CopyStridedArgs args{};  // [2][3] transposed
  args.rank = 2;
  args.count = 6;
  args.sizes[0] = 3;
  args.sizes[1] = 2;
  args.from_strides[0] = 1;
  args.from_strides[1] = 3;
  args.to_strides[0] = 2;
  args.to_strides[1] = 1;
  args.from = dx.get();
  args.to = y.get();
  ASSERT_EQ(GraphCopyStrided(nullptr, args), 0);
  EXPECT_EQ(y.Read(),
            (std::vector<uint8_t>{x[0], x[3], x[1], x[4], x[2], x[5]}));
}

}  // namespace
}  // namespace millrace::cuda
