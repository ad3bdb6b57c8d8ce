// Layers of the oneDNN module against sums in double precision: products and
// convolutions on f32, bf16 and bytes, of sizes that are no multiple of a
// vector, with what may stand behind the sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/onednn/onednn.h"

namespace millrace::models::onednn {
namespace {

// Any of the layer's operands, in memory and as numbers.
struct Values {
  std::vector<std::byte> bytes;
  std::vector<double> numbers;

  const void* data() const { return bytes.data(); }
};

int64_t BytesOf(Type type) {
  return type == Type::kU8 ? 1 : type == Type::kBf16 ? 2 : 4;
}

double NumberAt(const std::byte* bytes, Type type, int64_t i) {
  if (type == Type::kU8) return static_cast<double>(bytes[i]);
  if (type == Type::kBf16) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, 2);
    const uint32_t whole = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &whole, 4);
    return value;
  }
  float value;
  std::memcpy(&value, bytes + 4 * i, 4);
  return value;
}

class Random {
 public:
  // Of [-1, 1); what bf16 can hold where `type` is such; any bytes.
  Values Make(int64_t count, Type type) {
    Values values;
    values.bytes.resize(static_cast<size_t>(count * BytesOf(type)));
    for (int64_t i = 0; i < count; ++i) {
      std::byte* at = values.bytes.data() + i * BytesOf(type);
      if (type == Type::kU8) {
        *at = static_cast<std::byte>(random_() & 0xff);
      } else {
        const float value = uniform_(random_);
        const auto* from = reinterpret_cast<const std::byte*>(&value);
        std::memcpy(at, type == Type::kBf16 ? from + 2 : from,
                    static_cast<size_t>(BytesOf(type)));
      }
      values.numbers.push_back(NumberAt(values.bytes.data(), type, i));
    }
    return values;
  }
  // f32 that bf16 can hold, or bytes with sign.
  Values Weights(int64_t count, Type x) {
    Values values = Make(count, x == Type::kU8     ? Type::kU8
                                : x == Type::kBf16 ? Type::kBf16
                                                   : Type::kF32);
    if (x == Type::kU8) {
      for (double& number : values.numbers) {
        if (number > 127) number -= 256;
      }
    } else {
      values.bytes.resize(static_cast<size_t>(count) * 4);
      for (int64_t i = 0; i < count; ++i) {
        const auto value =
            static_cast<float>(values.numbers[static_cast<size_t>(i)]);
        std::memcpy(values.bytes.data() + 4 * i, &value, 4);
      }
    }
    return values;
  }

 private:
  std::mt19937 random_{7};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

double Function(const LayerSizes& s, double v) {
  switch (s.f) {
    case Unary::kNone:
      return v;
    case Unary::kRelu:
      return std::max(v, 0.0);
    case Unary::kClip:
      return std::min<double>(s.b, std::max<double>(s.a, v));
    case Unary::kLeakyRelu:
      return v < 0 ? s.a * v : v;
    case Unary::kSigmoid:
      return 1 / (1 + std::exp(-v));
    case Unary::kHardSigmoid:
      return std::min(1.0, std::max(0.0, s.a * v + s.b));
    case Unary::kHardSwish:
      return v * std::min(1.0, std::max(0.0, v / 6 + 0.5));
    case Unary::kSilu:
      return v / (1 + std::exp(-v));
    case Unary::kGeluErf:
      return v / 2 * (1 + std::erf(v * std::sqrt(0.5)));
    case Unary::kGeluTanh:
      return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) *
                               (v + 0.044715 * v * v * v)));
    case Unary::kTanh:
      return std::tanh(v);
    case Unary::kElu:
      return v > 0 ? v : s.a * std::expm1(v);
    case Unary::kMish:
      return v * std::tanh(std::log1p(std::exp(v)));
    default:
      ADD_FAILURE() << "the test has no such function";
      return v;
  }
}

constexpr int32_t kXZero = 120;
constexpr int32_t kYZero = 100;
constexpr float kScale = 1.0f / 4096;

// terms(i, o, add): calls add(index of x or -1, index of the weight) for each
// term of output `o` of row or pixel `i`.
template <typename Terms>
void Check(LayerSizes s, int64_t num_x, int64_t num_w, int64_t num_rows,
           int64_t outputs, int64_t num_terms, Terms terms) {
  static const bool opens = Open().ok();
  ASSERT_TRUE(opens) << Open().status().ToString();
  const auto layer = (*Open())->Make(s, nullptr);
  if (layer == nullptr) {
    // Bytes want VNNI; all else must be there on any CPU with AVX2.
    if (s.x == Type::kF32) ADD_FAILURE() << "no such layer";
    GTEST_SKIP() << "no such layer on this CPU";
  }
  Random random;
  const Values x = random.Make(num_x, s.x);
  const Values w = random.Weights(num_w, s.x);
  const Values bias = random.Make(outputs, Type::kF32);
  const Values gate = random.Make(num_rows * outputs, Type::kF32);
  const Values residual = random.Make(
      num_rows * outputs, s.residual == Type::kNone ? Type::kF32 : s.residual);
  const std::vector<float> scales(static_cast<size_t>(outputs), kScale);
  auto* packed = std::aligned_alloc(
      64, static_cast<size_t>(layer->packed_bytes() + 127) / 64 * 64);
  auto* scratch = std::aligned_alloc(
      64, static_cast<size_t>(layer->scratch_bytes() + 127) / 64 * 64);
  ASSERT_TRUE(layer->Pack(w.data(), packed));
  std::vector<std::byte> y(
      static_cast<size_t>(num_rows * outputs * BytesOf(s.y)));
  LayerArgs args{.x = x.data(),
                 .weights = packed,
                 .bias = static_cast<const float*>(bias.data()),
                 .residual = residual.data(),
                 .gate = static_cast<const float*>(gate.data()),
                 .y = y.data(),
                 .scratch = scratch,
                 .scales = scales.data(),
                 .x_zero = kXZero,
                 .y_zero = kYZero};
  const bool bytes = s.x == Type::kU8;
  if (bytes && s.residual != Type::kNone) {
    y = residual.bytes;
    args.y = y.data();
    args.residual = args.y;
  }
  ASSERT_TRUE(layer->Run(args));
  std::free(packed);
  std::free(scratch);
  // A sum of n terms below 1 errs by n roundings of at most n / 2 ulps; what
  // stands behind it by some more; bf16 is rounded at last, bytes to a step.
  const double of_sum =
      0x1p-24 * static_cast<double>(num_terms) * static_cast<double>(num_terms);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t o = 0; o < outputs; ++o) {
      double v = 0;
      terms(row, o, [&](int64_t at_x, int64_t at_w) {
        if (at_x < 0) return;
        const double zero = bytes ? kXZero : 0;
        v += (x.numbers[static_cast<size_t>(at_x)] - zero) *
             w.numbers[static_cast<size_t>(at_w)];
      });
      const auto i = static_cast<size_t>(row * outputs + o);
      const double r =
          s.residual == Type::kNone
              ? 0
              : s.residual_scale * (residual.numbers[i] - s.residual_zero);
      if (bytes) v *= kScale;
      if (s.has_bias) v += bias.numbers[static_cast<size_t>(o)];
      if (s.residual_first) v += r;
      v = Function(s, v);
      if (s.has_gate) v *= gate.numbers[i];
      if (!s.residual_first) v += r;
      double tolerance = (bytes ? 0 : of_sum) + 2e-5 * (1 + std::abs(v));
      if (s.y == Type::kBf16) tolerance += std::abs(v) / 256;
      if (s.y == Type::kU8) {
        v = std::clamp(std::nearbyint(v / s.y_scale) + kYZero, 0.0, 255.0);
        tolerance = 1;
      }
      ASSERT_NEAR(NumberAt(y.data(), s.y, static_cast<int64_t>(i)), v,
                  tolerance)
          << layer->Implementation() << ", row " << row << ", output " << o;
    }
  }
}

void CheckProduct(const LayerSizes& s) {
  Check(s, s.rows * s.k, s.n * s.k, s.rows, s.n, s.k,
        [&](int64_t row, int64_t o, auto add) {
          for (int64_t k = 0; k < s.k; ++k) {
            add(row * s.k + k, s.weight_kn ? k * s.n + o : o * s.k + k);
          }
        });
}

void CheckConvolution(LayerSizes s) {
  s.kind = Kind::kConvolution;
  const auto out = [](int64_t in, int64_t pads, int64_t kernel,
                      int64_t dilation, int64_t stride) {
    return (in + pads - (kernel - 1) * dilation - 1) / stride + 1;
  };
  s.out_height = out(s.height, s.pad_top + s.pad_bottom, s.kernel_h,
                     s.dilation_h, s.stride_h);
  s.out_width = out(s.width, s.pad_left + s.pad_right, s.kernel_w, s.dilation_w,
                    s.stride_w);
  const int64_t each = s.channels / s.groups;
  const int64_t taps = s.kernel_h * s.kernel_w;
  Check(s, s.height * s.width * s.channels, s.outputs * each * taps,
        s.out_height * s.out_width, s.outputs, each * taps,
        [&](int64_t pixel, int64_t o, auto add) {
          const int64_t group = o / (s.outputs / s.groups);
          for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
            for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const int64_t h = pixel / s.out_width * s.stride_h - s.pad_top +
                                kh * s.dilation_h;
              const int64_t w = pixel % s.out_width * s.stride_w - s.pad_left +
                                kw * s.dilation_w;
              const bool in = h >= 0 && h < s.height && w >= 0 && w < s.width;
              for (int64_t c = 0; c < each; ++c) {
                add(in ? (h * s.width + w) * s.channels + group * each + c : -1,
                    ((o * each + c) * s.kernel_h + kh) * s.kernel_w + kw);
              }
            }
          }
        });
}

class OneDnnLayer : public testing::TestWithParam<Type> {
 protected:
  // Of this type, with results of `y`.
  LayerSizes Sizes(Type y = Type::kF32) const {
    LayerSizes s;
    s.x = GetParam();
    s.y = GetParam() == Type::kF32 ? Type::kF32 : y;
    s.y_scale = s.y == Type::kU8 ? 0.05f : 1;
    return s;
  }
};

TEST_P(OneDnnLayer, ProductOfRaggedSizes) {
  for (const int64_t rows : {1, 3, 16, 64}) {
    for (const auto& [k, n] :
         {std::pair<int64_t, int64_t>{33, 17}, {160, 96}, {7, 1}, {64, 130}}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(k) + " -> " +
                   std::to_string(n));
      LayerSizes s = Sizes();
      s.rows = rows;
      s.k = k;
      s.n = n;
      CheckProduct(s);
      s.weight_kn = true;
      s.has_bias = true;
      CheckProduct(s);
    }
  }
}

TEST_P(OneDnnLayer, FunctionsBehindAProduct) {
  LayerSizes s = Sizes();
  s.rows = 5;
  s.k = 40;
  s.n = 37;
  s.has_bias = true;
  struct Row {
    Unary f;
    float a = 0;
    float b = 0;
  };
  for (const Row& row : {Row{Unary::kRelu},
                         {Unary::kClip, 0, 6},
                         {Unary::kLeakyRelu, 0.1f},
                         {Unary::kSigmoid},
                         {Unary::kHardSigmoid, 0.2f, 0.5f},
                         {Unary::kHardSwish},
                         {Unary::kSilu},
                         {Unary::kGeluErf},
                         {Unary::kGeluTanh},
                         {Unary::kTanh},
                         {Unary::kElu, 0.7f},
                         {Unary::kMish}}) {
    SCOPED_TRACE(static_cast<int>(row.f));
    s.f = row.f;
    s.a = row.a;
    s.b = row.b;
    CheckProduct(s);
  }
}

TEST_P(OneDnnLayer, ResidualAndGateBehindAProduct) {
  for (const bool first : {false, true}) {
    LayerSizes s = Sizes(GetParam());
    s.rows = 9;
    s.k = 40;
    s.n = 37;
    s.has_bias = true;
    s.residual = s.y;
    s.residual_first = first;
    if (s.y == Type::kU8) {
      s.residual_scale = 0.03f;
      s.residual_zero = 90;
    }
    s.f = Unary::kRelu;
    s.has_gate = GetParam() != Type::kU8;
    CheckProduct(s);
  }
}

TEST_P(OneDnnLayer, Convolutions) {
  LayerSizes of = Sizes();
  of.has_bias = true;
  of.f = Unary::kRelu;
  of.height = 9;
  of.width = 7;
  of.channels = 24;
  of.outputs = 20;
  CheckConvolution(of);
  LayerSizes s = of;
  s.kernel_h = s.kernel_w = 3;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 1;
  CheckConvolution(s);
  s.stride_h = s.stride_w = 2;
  s.pad_top = 0;  // as a band of an image has it
  CheckConvolution(s);
  s.dilation_h = s.dilation_w = 2;
  CheckConvolution(s);
  s = of;
  s.channels = 3;
  s.kernel_h = s.kernel_w = 5;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 2;
  CheckConvolution(s);
}

TEST_P(OneDnnLayer, GroupedConvolutions) {
  LayerSizes s = Sizes();
  s.height = 8;
  s.width = 6;
  s.channels = 48;
  s.outputs = 48;
  s.kernel_h = s.kernel_w = 3;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 1;
  s.groups = 48;
  CheckConvolution(s);
  s.groups = 3;
  CheckConvolution(s);
}

TEST_P(OneDnnLayer, ConvolutionWithAResidual) {
  for (const bool first : {false, true}) {
    LayerSizes s = Sizes(GetParam());
    s.height = 6;
    s.width = 5;
    s.channels = 32;
    s.outputs = 48;
    s.has_bias = true;
    s.residual = s.y;
    s.residual_first = first;
    if (s.y == Type::kU8) {
      s.residual_scale = 0.03f;
      s.residual_zero = 90;
    }
    s.f = Unary::kRelu;
    CheckConvolution(s);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OneDnnLayer,
                         testing::Values(Type::kF32, Type::kBf16, Type::kU8),
                         [](const auto& of) {
                           return of.param == Type::kF32    ? "f32"
                                  : of.param == Type::kBf16 ? "bf16"
                                                            : "u8";
                         });

}  // namespace
}  // namespace millrace::models::onednn
