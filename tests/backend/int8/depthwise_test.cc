// Depthwise convolutions of bytes against sums of 64 bits, bit for bit:
// channels that fill pieces, share them and leave them ragged, ranges of
// pieces, and every kind of epilogue.

#include "tests/backend/int8/window_shapes.h"

namespace millrace::models {
namespace {

class Int8Depthwise : public Int8Test {};

constexpr uint8_t kZero = 77;

struct Case {
  Case(const WindowShape& shape, std::mt19937& rng)
      : s(shape),
        taps(s.window.kernel_h * s.window.kernel_w),
        pixels(s.out_height * s.out_width),
        x(RandomBytes(rng, s.height * s.width * s.channels)),
        w(RandomWeights(rng, taps * s.channels, WeightKind::kExtreme)),
        scale(RandomFloats(rng, s.channels, 1e-2f)),
        bias(RandomFloats(rng, s.channels, 20.0f)),
        offset(static_cast<size_t>(s.channels), -777),
        residual(RandomBytes(rng, pixels * s.channels)),
        residual_f32(RandomFloats(rng, pixels * s.channels, 9.0f)),
        lookup(RandomBytes(rng, 256)) {}

  int64_t Sum(int64_t pixel, int64_t c) const {
    const Window& v = s.window;
    int64_t sum = 0;
    for (int64_t i = 0; i < v.kernel_h; ++i) {
      for (int64_t j = 0; j < v.kernel_w; ++j) {
        const int64_t h =
            pixel / s.out_width * v.stride_h - v.pad_top + i * v.dilation_h;
        const int64_t u =
            pixel % s.out_width * v.stride_w - v.pad_left + j * v.dilation_w;
        const bool outside = h < 0 || h >= s.height || u < 0 || u >= s.width;
        sum += (outside ? int{kZero}
                        : int{x[(h * s.width + u) * s.channels + c]}) *
               w[c * taps + i * v.kernel_w + j];
      }
    }
    return sum;
  }

  template <typename T>
  std::vector<T> Ordered(const Int8DepthwiseTable& t,
                         const std::vector<T>& of_channels) const {
    std::vector<T> out(static_cast<size_t>(t.ordered(s.channels)));
    t.order(of_channels.data(), s.channels, out.data());
    return out;
  }

  // In three ranges, each with a scratch of its own.
  void Run(const Int8DepthwiseTable& t, const Int8Epilogue& e, uint8_t* y,
           float* y_f32) const {
    Aligned<int8_t> packed(t.packed_bytes(s.window, s.channels));
    t.pack(w.data(), s.window, s.channels, packed.data);
    const auto offsets = Ordered(t, offset);
    const auto scales = Ordered(t, scale);
    const auto biases = Ordered(t, bias);
    const int64_t all = s.out_height * t.pieces(s.out_width, s.channels);
    const int64_t cuts[] = {0, all / 3, all / 3 + (all > 1 ? 1 : 0), all};
    for (int i = 0; i < 3; ++i) {
      Aligned<uint8_t> scratch(
          t.scratch_bytes(s.window, s.out_width, s.channels));
      t.run({.x = {x.data(), s.height, s.width, s.channels,
                   s.width * s.channels, s.channels, kZero},
             .window = s.window,
             .out_width = s.out_width,
             .begin = cuts[i],
             .end = cuts[i + 1],
             .w = packed.data,
             .offset = offsets.data(),
             .scale = scales.data(),
             .bias = biases.data(),
             .y = y,
             .y_f32 = y_f32,
             .epilogue = e,
             .scratch = scratch.data});
    }
  }

  Int8Epilogue Plain() const {
    return {.offset = offset.data(),
            .scale = scale.data(),
            .bias = bias.data(),
            .y_zero = 3};
  }

  const WindowShape& s;
  const int64_t taps;
  const int64_t pixels;
  const Bytes x;
  const Weights w;
  const std::vector<float> scale;
  const std::vector<float> bias;
  const std::vector<int32_t> offset;
  const Bytes residual;
  const std::vector<float> residual_f32;
  const Bytes lookup;
};

std::vector<Int8Epilogue> Epilogues(const Case& c) {
  std::vector<Int8Epilogue> all(6, c.Plain());
  all[1].f = Unary::kRelu;
  all[1].lookup = c.lookup.data();
  all[2].f = Unary::kClip;
  all[2].a = -9;
  all[2].b = 60.5f;
  all[3].f = Unary::kRelu;  // counted in steps that are not those of y
  all[3].y_scale = 0.9f;
  all[4].residual = c.residual.data();
  all[4].ld_residual = c.s.channels;
  all[4].residual_scale = 0.6f;
  all[4].residual_zero = 120;
  all[5].middle_scale = 0.7f;
  all[5].middle_low = -100;
  all[5].middle_high = 155;
  all[5].residual_f32 = c.residual_f32.data();
  all[5].ld_residual = c.s.channels;
  all[5].residual_scale = 0.25f;
  all[5].residual_first = true;
  all[5].f = Unary::kRelu;
  return all;
}

TEST_P(Int8Depthwise, GivesThePlainReferenceBitForBit) {
  std::mt19937 rng(3);
  for (const WindowShape& s : kWindowShapes) {
    const Case c(s, rng);
    for (const Int8Epilogue& e : Epilogues(c)) {
      Bytes y(static_cast<size_t>(c.pixels * s.channels));
      std::vector<float> floats(y.size());
      c.Run(table().depthwise, e, y.data(), nullptr);
      c.Run(table().depthwise, e, nullptr, floats.data());
      for (int64_t p = 0; p < c.pixels; ++p) {
        for (int64_t n = 0; n < s.channels; ++n) {
          const float want = Finished(c.Sum(p, n), e, p, n);
          uint8_t byte = AsByte(want, e.y_scale, e.y_zero);
          if (e.lookup != nullptr) byte = e.lookup[byte];
          const int64_t at = p * s.channels + n;
          ASSERT_EQ(floats[at], want)
              << "shape " << &s - kWindowShapes << " at " << at;
          ASSERT_EQ(int{y[at]}, int{byte})
              << "shape " << &s - kWindowShapes << " at " << at;
        }
      }
    }
  }
}

INSTANTIATE_INT8_TESTS(Int8Depthwise);

}  // namespace
}  // namespace millrace::models
