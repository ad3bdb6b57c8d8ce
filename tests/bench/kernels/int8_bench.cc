// Speed of the int8 kernels of graphs of one table on one thread, in GMAC/s
// beside the peak of the table's instructions, measured in registers in the
// same run. Run it on a quiet machine:
//
//   int8_bench [isa [weights [part]]]
//
//   isa       auto (default), scalar, avx2, avxvnni, avx512vnni, avx512vbmi,
//             amx
//   weights   normal (default): a hundred at three standard deviations;
//             small: at eight, as of trained networks; even: all bytes alike.
//             Tables without VNNI choose their products by them.
//   part      only what has this in its name
//
// Times are the best of many short runs, hot.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "models/cpu/isa.h"
#include "tests/bench/kernels/best.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

struct Weights {
  float deviation = 34.0f;  // 0: even

  std::vector<int8_t> Make(int64_t n) const {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::uniform_real_distribution<float> even(-127.5f, 127.5f);
    std::vector<int8_t> w(static_cast<size_t>(n));
    for (int8_t& v : w) {
      const float x = deviation > 0 ? normal(rng) : even(rng);
      v = static_cast<int8_t>(std::clamp(x, -127.0f, 127.0f));
    }
    return w;
  }
};

struct Buffer {
  explicit Buffer(int64_t bytes)
      : data(static_cast<uint8_t*>(std::aligned_alloc(
            64, static_cast<size_t>((bytes + 127) / 64 * 64)))) {
    std::fill(data, data + bytes, uint8_t{77});
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* data;
};

struct Bench {
  const Int8Table& t;
  const Weights weights_of;
  const std::string part;
  double peak;  // GMAC/s

  template <typename Body>
  void Time(const char* name, double macs, Body body) const {
    if (std::string_view(name).find(part) == std::string_view::npos) return;
    const double seconds = Best(body);
    const double gmacs = macs / seconds * 1e-9;
    std::printf("%-44s %9.1f us %7.1f GMAC/s", name, seconds * 1e6, gmacs);
    if (peak > 0) std::printf(" %5.1f %%", 100 * gmacs / peak);
    std::printf("\n");
    std::fflush(stdout);
  }

  void Conv(int64_t height, int64_t width, int64_t c, int64_t n, int64_t kernel,
            int64_t stride, bool residual = false, bool lookup = false) const {
    const int64_t out_h = (height - 1) / stride + 1;
    const int64_t out_w = (width - 1) / stride + 1;
    const int64_t k = kernel * kernel * c;
    const int64_t pad = kernel / 2;
    const Window window{.kernel_h = kernel,
                        .kernel_w = kernel,
                        .stride_h = stride,
                        .stride_w = stride,
                        .pad_top = pad,
                        .pad_left = pad};
    const auto w = weights_of.Make(n * k);
    Buffer x(height * width * c);
    Buffer y(out_h * out_w * n);
    Buffer r(out_h * out_w * n);
    Buffer packed(t.packed_bytes(w.data(), n, window, c));
    auto* weights = reinterpret_cast<int8_t*>(packed.data);
    t.pack(w.data(), n, window, c, weights);
    Buffer scratch(t.conv_scratch_bytes(window, out_w, c));
    const std::vector<float> scale(static_cast<size_t>(n), 1e-3f);
    const std::vector<float> bias(static_cast<size_t>(n), 1.0f);
    const std::vector<int32_t> offset(static_cast<size_t>(n), 1);
    Int8ConvArgs args{.x = {x.data, height, width, c, width * c, c, 0},
                      .window = window,
                      .out_width = out_w,
                      .pixel_end = out_h * out_w,
                      .w = weights,
                      .n = n,
                      .panel_end = (n + t.panel - 1) / t.panel,
                      .y = y.data,
                      .ld_y = n,
                      .epilogue = {.offset = offset.data(),
                                   .scale = scale.data(),
                                   .bias = bias.data(),
                                   .f = Unary::kRelu,
                                   .lookup = lookup ? x.data : nullptr},
                      .scratch = scratch.data};
    if (residual) {
      args.epilogue.middle_scale = 0.7f;
      args.epilogue.middle_low = -128;
      args.epilogue.middle_high = 127;
      args.epilogue.residual = r.data;
      args.epilogue.ld_residual = n;
      args.epilogue.residual_scale = 0.5f;
      args.epilogue.residual_first = true;
    }
    char name[80];
    std::snprintf(name, sizeof name, "conv %ldx%ldx%ld -> %ld, %ldx%ld/%ld%s%s",
                  long(height), long(width), long(c), long(n), long(kernel),
                  long(kernel), long(stride), residual ? " +r" : "",
                  lookup ? " lookup" : "");
    Time(name, static_cast<double>(out_h * out_w * n * k),
         [&] { t.conv(args); });
  }

  void Depthwise(int64_t size, int64_t c, int64_t kernel, int64_t stride,
                 bool lookup = false) const {
    const int64_t out = (size - 1) / stride + 1;
    const Window window{.kernel_h = kernel,
                        .kernel_w = kernel,
                        .stride_h = stride,
                        .stride_w = stride,
                        .pad_top = kernel / 2,
                        .pad_left = kernel / 2};
    const Int8DepthwiseTable& d = t.depthwise;
    Buffer x(size * size * c);
    Buffer y(out * out * c);
    Buffer packed(d.packed_bytes(window, c));
    auto* weights = reinterpret_cast<int8_t*>(packed.data);
    d.pack(weights_of.Make(kernel * kernel * c).data(), window, c, weights);
    Buffer scratch(d.scratch_bytes(window, out, c));
    const auto ordered = static_cast<size_t>(d.ordered(c));
    const std::vector<float> scale(ordered, 1e-3f);
    const std::vector<float> bias(ordered, 1.0f);
    const std::vector<int32_t> offset(ordered, 1);
    const Int8DepthwiseArgs args{
        .x = {x.data, size, size, c, size * c, c, 0},
        .window = window,
        .out_width = out,
        .end = out * d.pieces(out, c),
        .w = weights,
        .offset = offset.data(),
        .scale = scale.data(),
        .bias = bias.data(),
        .y = y.data,
        .epilogue = {.offset = offset.data(),
                     .scale = scale.data(),
                     .bias = bias.data(),
                     .lookup = lookup ? x.data : nullptr},
        .scratch = scratch.data};
    char name[80];
    std::snprintf(name, sizeof name, "depthwise %ld^2 x %ld, %ld x %ld / %ld%s",
                  long(size), long(c), long(kernel), long(kernel), long(stride),
                  lookup ? " lookup" : "");
    Time(name, static_cast<double>(out * out * c * kernel * kernel),
         [&] { d.run(args); });
  }
};

int Main(const char* isa, const std::string& weights, const char* part) {
  Weights of;
  if (weights == "small") of.deviation = 12.5f;
  if (weights == "even") of.deviation = 0;

  const auto chosen = ChooseInt8(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 2;
  }
  const Bench bench{**chosen, of, part,
                    MeasureRoofline((*chosen)->name).integer_gmacs};
  std::printf("table %s, one thread, peak %.0f GMAC/s\n", bench.t.name,
              bench.peak);
  bench.Conv(224, 224, 3, 64, 7, 2);
  bench.Conv(112, 112, 32, 32, 3, 1);
  bench.Conv(112, 112, 64, 32, 3, 1);
  bench.Conv(28, 28, 128, 32, 3, 1);
  bench.Conv(112, 112, 16, 16, 1, 1, true);
  bench.Conv(112, 112, 16, 64, 1, 1);
  bench.Conv(112, 112, 16, 64, 1, 1, false, true);
  bench.Conv(56, 56, 72, 24, 1, 1);
  bench.Conv(56, 56, 64, 64, 1, 1);
  bench.Conv(56, 56, 64, 64, 3, 1);
  bench.Conv(56, 56, 64, 256, 1, 1, true);
  bench.Conv(56, 56, 256, 64, 1, 1);
  bench.Conv(56, 56, 256, 512, 1, 2);
  bench.Conv(28, 28, 128, 128, 3, 1);
  bench.Conv(28, 28, 128, 512, 1, 1, true);
  bench.Conv(28, 28, 512, 128, 1, 1);
  bench.Conv(14, 14, 256, 256, 3, 1);
  bench.Conv(14, 14, 256, 1024, 1, 1, true);
  bench.Conv(14, 14, 1024, 256, 1, 1);
  bench.Conv(7, 7, 512, 512, 3, 1);
  bench.Conv(7, 7, 512, 2048, 1, 1, true);
  bench.Conv(7, 7, 2048, 512, 1, 1);
  bench.Conv(1, 128, 384, 1536, 1, 1);
  bench.Conv(1, 128, 1536, 384, 1, 1);
  bench.Conv(1, 128, 768, 3072, 1, 1);
  bench.Conv(1, 1, 2048, 1000, 1, 1);
  bench.Depthwise(112, 16, 3, 1);
  bench.Depthwise(112, 16, 3, 1, true);
  bench.Depthwise(112, 64, 3, 2);
  bench.Depthwise(112, 32, 3, 1);
  bench.Depthwise(56, 72, 3, 1);
  bench.Depthwise(56, 144, 3, 1);
  bench.Depthwise(14, 480, 3, 1);
  bench.Depthwise(14, 672, 5, 1);
  bench.Depthwise(7, 960, 5, 1);
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "auto",
                               argc > 2 ? argv[2] : "normal",
                               argc > 3 ? argv[3] : "");
}
