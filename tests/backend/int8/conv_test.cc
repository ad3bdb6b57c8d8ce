// Products and convolutions of bytes against sums of 64 bits: every table must
// give the plain reference, bit for bit, with weights that overflow sixteen
// bits in pairs, ragged sizes, and every kind of epilogue.

#include <iterator>

#include "tests/backend/conv_shapes.h"
#if defined(__x86_64__)
#include "tests/backend/int8/amx_emulated.h"
#endif
#include "tests/backend/int8/int8.h"

namespace millrace::models {
namespace {

// Knows one table more: "amx_emulated".
class Int8Conv : public Int8Test {
#if defined(__x86_64__)
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "amx_emulated") return Int8Test::SetUp();
    const auto base = ChooseInt8("avx512vbmi");
    if (!base.ok()) GTEST_SKIP() << base.status().ToString();
    using Amx = EmulatedAmxInt8;
    emulated_ = **base;
    emulated_.name = "amx_emulated";
    emulated_.packed_bytes = [](const int8_t* w, int64_t n,
                                const Window& window, int64_t channels) {
      return Amx::Takes(n, window, channels)
                 ? Amx::PackedBytes(w, n, window, channels)
                 : Avx512VbmiInt8()->packed_bytes(w, n, window, channels);
    };
    emulated_.pack = [](const int8_t* w, int64_t n, const Window& window,
                        int64_t channels, int8_t* packed) {
      Amx::Takes(n, window, channels)
          ? Amx::Pack(w, n, window, channels, packed)
          : Avx512VbmiInt8()->pack(w, n, window, channels, packed);
    };
    emulated_.conv_scratch_bytes = [](const Window& window, int64_t out_width,
                                      int64_t channels) {
      return std::max(
          Amx::ScratchBytes(window, out_width, channels),
          Avx512VbmiInt8()->conv_scratch_bytes(window, out_width, channels));
    };
    emulated_.conv = [](const Int8ConvArgs& args) {
      if (!Amx::Takes(args.n, args.window, args.x.channels)) {
        return Avx512VbmiInt8()->conv(args);
      }
      EXPECT_TRUE(Amx::Conv(args));
    };
    set_table(&emulated_);
  }

 private:
  Int8Table emulated_;
#endif
};

// What only sums of bytes are sensitive to: long k, panels side by side, and
// matrices of few rows or of rows that are no multiple of four.
const ConvShape kOwnShapes[] = {
    {4, 4, 260, 32, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 4, 0},
    {12, 50, 4, 96, {3, 3, 1, 1, 1, 1, 1, 1}, 12, 50, 0},
    {1, 1, 64, 200, {}, 1, 1, 0},
    {1, 2, 37, 130, {}, 1, 2, 0},
    {1, 3, 61, 64, {}, 1, 3, 0},
    {1, 131, 30, 70, {}, 1, 131, 0},
    // Whole and partial blocks of rows, outputs and steps of tiles.
    {1, 7, 100, 40, {}, 1, 7, 0},
    {1, 15, 64, 16, {}, 1, 15, 0},
    {1, 16, 100, 48, {}, 1, 16, 0},
    {1, 30, 192, 80, {}, 1, 30, 0},
    {3, 15, 130, 47, {}, 3, 15, 6},
    {9, 64, 64, 96, {}, 9, 64, 0},
    {8, 8, 64, 33, {3, 3, 1, 1, 1, 1, 1, 1}, 8, 8, 0},
    // Pixels gathered for many panels; more rows than are copied at a time.
    {5, 9, 12, 140, {3, 3, 1, 1, 1, 1, 1, 1}, 5, 9, 0},
    {9, 11, 5, 140, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 6, 3},
    {70, 5, 4, 21, {3, 3, 1, 1, 1, 1, 1, 1}, 70, 5, 0},
    {75, 6, 8, 40, {2, 3, 2, 2, 2, 1, 1, 1}, 38, 3, 8},
    // Rows of a kernel that nearly fill steps, read in place: strided, of
    // several bands, more positions than go together, and dilated downwards.
    {15, 31, 96, 70, {3, 3, 2, 2, 1, 1, 1, 1}, 8, 16, 0},
    {30, 300, 32, 9, {3, 3, 1, 1, 1, 1, 1, 1}, 30, 300, 0},
    {7, 7, 128, 66, {3, 3, 1, 1, 1, 1, 1, 1}, 7, 7, 0},
    {10, 9, 64, 17, {3, 3, 1, 1, 2, 1, 2, 1}, 10, 9, 4},
    // Short rows of a kernel: a stem, and one of which a vector is full.
    {40, 45, 3, 64, {7, 7, 2, 2, 1, 1, 3, 3}, 20, 23, 0},
    {9, 20, 16, 40, {4, 4, 2, 1, 1, 1, 1, 2}, 4, 20, 0},
    // So wide that few rows fit, seven of bytes and three of words.
    {5, 704, 32, 2, {3, 3, 1, 1, 1, 1, 1, 1}, 5, 704, 0},
};

std::vector<ConvShape> Shapes() {
  std::vector<ConvShape> all(std::begin(kConvShapes), std::end(kConvShapes));
  all.insert(all.end(), std::begin(kOwnShapes), std::end(kOwnShapes));
  return all;
}

struct Case {
  Case(const ConvShape& shape, WeightKind kind, std::mt19937& rng)
      : s(shape),
        k(s.window.kernel_h * s.window.kernel_w * s.channels),
        pixels(s.out_height * s.out_width),
        ld_pixel(s.channels + s.extra),
        x(RandomBytes(rng, (s.height * s.width - 1) * ld_pixel + s.channels)),
        w(RandomWeights(rng, s.n * k, kind)),
        scale(RandomFloats(rng, s.n, 1e-3f)),
        bias(RandomFloats(rng, s.n, 20.0f)),
        residual(RandomBytes(rng, pixels * s.n)),
        residual_f32(RandomFloats(rng, pixels * s.n, 20.0f)),
        lookup(RandomBytes(rng, 256)),
        sums(static_cast<size_t>(pixels * s.n)) {
    std::uniform_int_distribution<int32_t> some(-5000, 5000);
    for (int64_t i = 0; i < s.n; ++i) offset.push_back(some(rng));
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t n = 0; n < s.n; ++n) sums[p * s.n + n] = Sum(p, n);
    }
  }

  int64_t Sum(int64_t pixel, int64_t n) const {
    const Window& v = s.window;
    const int64_t oh = pixel / s.out_width, ow = pixel % s.out_width;
    int64_t sum = 0;
    for (int64_t i = 0; i < v.kernel_h; ++i) {
      for (int64_t j = 0; j < v.kernel_w; ++j) {
        const int64_t h = oh * v.stride_h - v.pad_top + i * v.dilation_h;
        const int64_t c = ow * v.stride_w - v.pad_left + j * v.dilation_w;
        const bool outside = h < 0 || h >= s.height || c < 0 || c >= s.width;
        for (int64_t channel = 0; channel < s.channels; ++channel) {
          const int64_t value =
              outside ? kZero : x[(h * s.width + c) * ld_pixel + channel];
          sum +=
              value *
              w[((n * v.kernel_h + i) * v.kernel_w + j) * s.channels + channel];
        }
      }
    }
    return sum;
  }

  Int8ConvArgs Args(const Int8Table& t, const int8_t* packed,
                    uint8_t* scratch) const {
    return {.x = {x.data(), s.height, s.width, s.channels, s.width * ld_pixel,
                  ld_pixel, kZero},
            .window = s.window,
            .out_width = s.out_width,
            .pixel_end = pixels,
            .w = packed,
            .n = s.n,
            .panel_end = (s.n + t.panel - 1) / t.panel,
            .ld_y = s.n,
            .epilogue = {.offset = offset.data(), .scale = scale.data()},
            .scratch = scratch};
  }

  // Every kind of epilogue that gives bytes.
  std::vector<Int8Epilogue> Epilogues() const {
    std::vector<Int8Epilogue> all;
    const Int8Epilogue plain{.offset = offset.data(), .scale = scale.data()};
    all.push_back(plain);
    Int8Epilogue e = plain;
    e.bias = bias.data();
    e.y_zero = 117;
    e.f = Unary::kRelu;
    all.push_back(e);
    e.f = Unary::kClip;
    e.a = -20;
    e.b = 60;
    all.push_back(e);
    e.a = -1000;  // beyond what a byte holds
    e.b = -500;
    all.push_back(e);
    e.f = Unary::kRelu;
    e.residual = residual.data();
    e.ld_residual = s.n;
    e.residual_scale = 0.7f;
    e.residual_zero = 99;
    e.residual_first = true;
    all.push_back(e);
    e.middle_scale = 1.3f;
    e.middle_low = -120;
    e.middle_high = 135;
    all.push_back(e);
    e.y_scale = 0.37f;
    e.middle_bias = bias.data();
    all.push_back(e);
    e.f = Unary::kNone;
    e.residual_first = false;
    all.push_back(e);
    e.residual = nullptr;
    e.residual_f32 = residual_f32.data();
    e.middle_scale = 0;
    all.push_back(e);
    e.residual_f32 = nullptr;
    e.y_scale = 1;
    e.lookup = lookup.data();
    all.push_back(e);
    return all;
  }

  static constexpr uint8_t kZero = 131;
  const ConvShape& s;
  int64_t k, pixels, ld_pixel;
  Bytes x;
  Weights w;
  std::vector<float> scale, bias;
  Bytes residual;
  std::vector<float> residual_f32;
  Bytes lookup;
  std::vector<int64_t> sums;
  std::vector<int32_t> offset;
};

TEST_P(Int8Conv, GivesThePlainReferenceBitForBit) {
  std::mt19937 rng(1);
  const std::vector<ConvShape> shapes = Shapes();
  for (const ConvShape& shape : shapes) {
    for (const WeightKind kind :
         {WeightKind::kAll, WeightKind::kExtreme, WeightKind::kSmall}) {
      const Case c(shape, kind, rng);
      Aligned<int8_t> packed(table().packed_bytes(
          c.w.data(), shape.n, shape.window, shape.channels));
      table().pack(c.w.data(), shape.n, shape.window, shape.channels,
                   packed.data);
      const int64_t scratch_bytes = table().conv_scratch_bytes(
          shape.window, shape.out_width, shape.channels);
      Aligned<uint8_t> scratch(scratch_bytes + 64);
      const uint8_t behind = 0xa5;
      std::fill_n(scratch.data + scratch_bytes, 64, behind);
      const auto epilogues = c.Epilogues();
      for (size_t i = 0; i < epilogues.size(); ++i) {
        const Int8Epilogue& e = epilogues[i];
        Bytes y(static_cast<size_t>(c.pixels * shape.n));
        std::vector<float> floats(y.size());
        Int8ConvArgs args = c.Args(table(), packed.data, scratch.data);
        args.epilogue = e;
        args.y = y.data();
        table().conv(args);
        args.y = nullptr;
        args.y_f32 = floats.data();
        table().conv(args);
        for (int64_t p = 0; p < c.pixels; ++p) {
          for (int64_t n = 0; n < shape.n; ++n) {
            const auto at = static_cast<size_t>(p * shape.n + n);
            const float want = Finished(c.sums[at], e, p, n);
            ASSERT_EQ(floats[at], want)
                << "shape " << &shape - shapes.data() << " epilogue " << i
                << " pixel " << p << " output " << n;
            uint8_t byte = AsByte(want, e.y_scale, e.y_zero);
            if (e.lookup != nullptr) byte = e.lookup[byte];
            ASSERT_EQ(int{y[at]}, int{byte})
                << "shape " << &shape - shapes.data() << " epilogue " << i
                << " pixel " << p << " output " << n;
          }
        }
      }
      const uint8_t* end = scratch.data + scratch_bytes;
      EXPECT_EQ(std::count(end, end + 64, behind), 64)
          << "shape " << &shape - shapes.data() << " needs more scratch";
    }
  }
}

TEST_P(Int8Conv, PixelKeepsItsBytesInEveryRange) {
  std::mt19937 rng(2);
  const std::vector<ConvShape> shapes = Shapes();
  for (const ConvShape& shape : shapes) {
    const Case c(shape, WeightKind::kSmall, rng);
    Aligned<int8_t> packed(table().packed_bytes(c.w.data(), shape.n,
                                                shape.window, shape.channels));
    table().pack(c.w.data(), shape.n, shape.window, shape.channels,
                 packed.data);
    Aligned<uint8_t> scratch(table().conv_scratch_bytes(
        shape.window, shape.out_width, shape.channels));
    Bytes whole(static_cast<size_t>(c.pixels * shape.n));
    Int8ConvArgs args = c.Args(table(), packed.data, scratch.data);
    const int64_t panels = args.panel_end;
    args.y = whole.data();
    table().conv(args);
    for (const int64_t step : {1, 5, 13}) {
      Bytes y(whole.size(), 1);
      args.y = y.data();
      for (int64_t p = 0; p < c.pixels; p += step) {
        for (int64_t panel = 0; panel < panels; ++panel) {
          args.pixel_begin = p;
          args.pixel_end = std::min(c.pixels, p + step);
          args.panel_begin = panel;
          args.panel_end = panel + 1;
          table().conv(args);
        }
      }
      ASSERT_EQ(y, whole) << "shape " << &shape - shapes.data() << " by "
                          << step;
    }
  }
}

// The plain reference knows no exp; the scalar table's functions are tested on
// their own.
TEST_P(Int8Conv, FunctionsGiveTheScalarTablesBytes) {
  std::mt19937 rng(3);
  const ConvShape shapes[] = {
      {1, 37, 64, 80, {}, 1, 37, 0},
      {6, 9, 20, 41, {3, 3, 1, 1, 1, 1, 1, 1}, 6, 9, 0}};
  for (const ConvShape& shape : shapes) {
    const Case c(shape, WeightKind::kSmall, rng);
    const auto bytes_of = [&](const Int8Table& t, const Int8Epilogue& e) {
      Aligned<int8_t> packed(
          t.packed_bytes(c.w.data(), shape.n, shape.window, shape.channels));
      t.pack(c.w.data(), shape.n, shape.window, shape.channels, packed.data);
      Aligned<uint8_t> scratch(
          t.conv_scratch_bytes(shape.window, shape.out_width, shape.channels));
      Bytes y(static_cast<size_t>(c.pixels * shape.n));
      Int8ConvArgs args = c.Args(t, packed.data, scratch.data);
      args.epilogue = e;
      args.y = y.data();
      t.conv(args);
      return y;
    };
    for (const Unary f : {Unary::kGeluErf, Unary::kHardSwish, Unary::kRelu}) {
      for (const bool middle : {false, true}) {
        Int8Epilogue e{.offset = c.offset.data(), .scale = c.scale.data()};
        e.f = f;
        e.y_scale = 9.7f;
        e.y_zero = 40;
        if (middle) {
          e.middle_scale = 0.31f;
          e.middle_low = -100;
          e.middle_high = 155;
          e.middle_bias = c.bias.data();
        } else {
          e.bias = c.bias.data();
          e.lookup = c.lookup.data();
        }
        ASSERT_EQ(bytes_of(table(), e), bytes_of(*ScalarInt8(), e))
            << "function " << static_cast<int>(f) << " middle " << middle;
      }
    }
  }
}

// Four weights of one output, where a lane of sixteen bits would add their
// products: 255 * 128 fits and 255 * 129 does not.
TEST_P(Int8Conv, AddsExactlyAtTheLimitsOfSixteenBits) {
  const int8_t fours[][4] = {
      {127, 1, 0, 0},      {32, 32, 32, 32},        {127, 1, 1, 0},
      {1, 0, 127, 1},      {-128, 0, 0, 0},         {-64, -64, 0, 0},
      {0, -1, 0, -128},    {127, 127, 127, 127},    {-127, -127, -127, -127},
      {127, -128, 127, 1}, {-128, -128, -128, -128}};
  const int64_t n = std::ssize(fours), k = 80;
  Weights w(static_cast<size_t>(n * k));
  for (int64_t j = 0; j < n; ++j) {
    const int64_t at = j * k + 64;  // of a row; in two lanes
    for (const int64_t lane : {0, 2}) {
      w[at + lane] = fours[j][0];
      w[at + lane + 1] = fours[j][1];
      w[at + lane + 4] = fours[j][2];
      w[at + lane + 5] = fours[j][3];
    }
  }
  Aligned<int8_t> packed(table().packed_bytes(w.data(), n, {}, k));
  table().pack(w.data(), n, {}, k, packed.data);
  Aligned<uint8_t> scratch(table().conv_scratch_bytes({}, 1, k));
  const Bytes x(static_cast<size_t>(k), 255);
  const std::vector<int32_t> offset(static_cast<size_t>(n), 0);
  const std::vector<float> scale(static_cast<size_t>(n), 1.0f);
  std::vector<float> y(static_cast<size_t>(n));
  table().conv({.x = {x.data(), 1, 1, k, k, k, 0},
                .window = {},
                .out_width = 1,
                .pixel_end = 1,
                .w = packed.data,
                .n = n,
                .panel_end = (n + table().panel - 1) / table().panel,
                .y_f32 = y.data(),
                .ld_y = n,
                .epilogue = {.offset = offset.data(), .scale = scale.data()},
                .scratch = scratch.data});
  for (int64_t j = 0; j < n; ++j) {
    int64_t sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += 255 * w[j * k + i];
    EXPECT_EQ(y[j], static_cast<float>(sum)) << "output " << j;
  }
  if (std::string(table().name) == "avx2") {
    // A list of what did not fit, where equal weights would take words.
    const Weights even(w.size(), 127);
    EXPECT_GT(table().packed_bytes(w.data(), n, {}, k),
              table().packed_bytes(even.data(), n, {}, k));
  }
}

INSTANTIATE_INT8_TESTS(Int8Conv);
#if defined(__x86_64__)
INSTANTIATE_TEST_SUITE_P(Emulated, Int8Conv, ::testing::Values("amx_emulated"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });
#endif

}  // namespace
}  // namespace millrace::models
