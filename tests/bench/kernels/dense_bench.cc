// Speed of the dense f32 kernels of one table on one thread, in GFLOP/s beside
// the peak measured in registers in the same run. Run it on a quiet machine:
//
//   dense_bench [isa [part]]    isa: auto (default), scalar, avx2, avx512;
//                               part: gemm, …, only those lines; bf16: gemm
//                               and conv at that precision, beside the same
//                               peak
//
// Times are the best of many short runs, hot: what a graph's layer reads has
// just been written. Products of one to four rows read cold weights.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "models/cpu/isa.h"
#include "tests/bench/kernels/best.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

// Memory in 2 MiB pages, as the runner keeps weights and activations.
class Memory {
 public:
  explicit Memory(int64_t floats, float fill = 0.0f)
      : bytes_((floats * 4 + (2 << 20)) & ~((2 << 20) - 1)),
        data_(static_cast<float*>(
            std::aligned_alloc(2 << 20, static_cast<size_t>(bytes_)))) {
    madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    std::fill(data_, data_ + floats, fill);
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* data() { return data_; }

 private:
  int64_t bytes_;
  float* data_;
};

struct Random : Memory {
  explicit Random(int64_t floats, float scale = 1.0f) : Memory(floats) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t i = 0; i < floats; ++i) data()[i] = normal(rng);
  }
};

struct Bench {
  const DenseTable& t;
  const DenseProducts& products;
  double peak;  // GFLOP/s, of f32

  void Print(const std::string& name, double flops, double seconds) const {
    const double rate = flops / seconds * 1e-9;
    std::printf("%-44s %9.1f us %7.1f GFLOP/s %5.1f %%\n", name.c_str(),
                seconds * 1e6, rate, 100 * rate / peak);
    std::fflush(stdout);
  }

  void Product(int64_t m, int64_t n, int64_t k, Unary f = Unary::kNone,
               bool joins = false) const {
    Random x(m * k);
    Memory residual(joins ? m * n : 1);
    Random w(n * k, 0.05f);
    Memory y(m * n);
    Random bias(n);
    const int64_t floats = products.packed_floats(n, k);
    const int64_t copies =
        m <= 4 ? std::max<int64_t>(1, (128 << 20) / (floats * 4)) : 1;
    Memory packed(floats * copies);
    GemmArgs args{.x = x.data(),
                  .ld_x = k,
                  .row_end = m,
                  .n = n,
                  .k = k,
                  .panel_end = (n + products.panel - 1) / products.panel,
                  .y = y.data(),
                  .ld_y = n,
                  .epilogue = {.bias = bias.data(),
                               .f = f,
                               .residual = joins ? residual.data() : nullptr,
                               .ld_residual = n,
                               .residual_first = true}};
    Memory scratch(products.gemm_scratch_floats(args));
    args.scratch = scratch.data();
    for (int64_t i = 0; i < copies; ++i) {
      products.pack(w.data(), n, k, {.n = k, .k = 1}, 0, args.panel_end,
                    packed.data() + i * floats);
    }
    int64_t turn = 0;
    const double seconds = Best([&] {
      args.w = packed.data() + turn * floats;
      turn = (turn + 1) % copies;
      products.gemm(args);
    });
    char name[80];
    std::snprintf(name, sizeof name, "gemm %ld x %ld x %ld%s%s", long(m),
                  long(n), long(k), f == Unary::kGeluErf ? " gelu" : "",
                  joins ? " +residual" : "");
    Print(name, 2.0 * m * n * k, seconds);
    if (m <= 4) std::printf("%54.1f GB/s\n", floats * 4 / seconds * 1e-9);
  }

  void Products() const {
    for (int64_t m : {96, 128, 197, 512}) {
      for (auto [n, k] : {std::pair<int64_t, int64_t>{256, 256},
                          {768, 768},
                          {384, 1536},
                          {3072, 768},
                          {1024, 1024}}) {
        Product(m, n, k);
      }
    }
    Product(128, 1536, 384, Unary::kGeluErf);
    Product(3136, 256, 64);
    Product(3136, 64, 256);
    Product(784, 512, 128);
    Product(196, 1024, 256);
    Product(49, 2048, 512);
    Product(49, 512, 2048);
    // Batches of maps, from memory.
    Product(100352, 64, 128);
    Product(25088, 128, 96);
    Product(25088, 128, 224);
    Product(25088, 256, 64);
    Product(25088, 256, 64, Unary::kRelu, true);
    for (int64_t m : {1, 2, 4, 5, 8, 16, 32}) Product(m, 1024, 1024);
  }

  // A square image and kernel, padded so that stride 1 keeps the size.
  void Convolution(int64_t size, int64_t c, int64_t n, int64_t kernel,
                   int64_t stride) const {
    const int64_t out = (size - 1) / stride + 1;
    const int64_t k = kernel * kernel * c;
    Random x(size * size * c);
    Random w(n * k, 0.05f);
    Random bias(n);
    Memory y(out * out * n);
    Memory packed(products.packed_floats(n, k));
    const int64_t panels = (n + products.panel - 1) / products.panel;
    products.pack(w.data(), n, k, {.n = k, .k = 1}, 0, panels, packed.data());
    ConvArgs args{.x = {x.data(), size, size, c, size * c, c},
                  .window = {.kernel_h = kernel,
                             .kernel_w = kernel,
                             .stride_h = stride,
                             .stride_w = stride,
                             .pad_top = kernel / 2,
                             .pad_left = kernel / 2},
                  .out_width = out,
                  .pixel_end = out * out,
                  .w = packed.data(),
                  .n = n,
                  .panel_end = panels,
                  .y = y.data(),
                  .ld_y = n,
                  .epilogue = {.bias = bias.data(), .f = Unary::kRelu}};
    Memory scratch(products.conv_scratch_floats(args));
    args.scratch = scratch.data();
    char name[80];
    std::snprintf(name, sizeof name, "conv %ld^2 x %ld -> %ld, %ld x %ld / %ld",
                  long(size), long(c), long(n), long(kernel), long(kernel),
                  long(stride));
    Print(name, 2.0 * out * out * n * k, Best([&] { products.conv(args); }));
  }

  void Convolutions() const {
    Convolution(224, 3, 64, 7, 2);
    Convolution(224, 32, 32, 3, 1);
    Convolution(112, 128, 64, 3, 1);
    Convolution(56, 64, 64, 3, 1);
    Convolution(56, 128, 32, 3, 1);
    Convolution(28, 128, 128, 3, 1);
    Convolution(14, 256, 256, 3, 1);
    Convolution(7, 512, 512, 3, 1);
    Convolution(56, 128, 128, 3, 2);
    Convolution(56, 256, 512, 1, 2);
    Convolution(56, 64, 256, 1, 1);
  }

  // Depthwise, padded so that stride 1 keeps the size.
  void Depthwise(int64_t size, int64_t c, int64_t kernel,
                 int64_t stride) const {
    const int64_t out = (size - 1) / stride + 1;
    Random x(size * size * c);
    Random w(kernel * kernel * c);
    Random bias(c);
    Memory y(out * out * c);
    const DepthwiseArgs args{
        .x = {x.data(), size, size, c, size * c, c},
        .window = {.kernel_h = kernel,
                   .kernel_w = kernel,
                   .stride_h = stride,
                   .stride_w = stride,
                   .pad_top = kernel / 2,
                   .pad_left = kernel / 2},
        .w = w.data(),
        .out_width = out,
        .row_end = out,
        .channel_end = c,
        .y = y.data(),
        .ld_y = c,
        .epilogue = {.bias = bias.data(), .f = Unary::kHardSwish}};
    char name[80];
    std::snprintf(name, sizeof name, "depthwise %ld^2 x %ld, %ld x %ld / %ld",
                  long(size), long(c), long(kernel), long(kernel),
                  long(stride));
    Print(name, 2.0 * out * out * c * kernel * kernel,
          Best([&] { t.depthwise(args); }));
  }

  // One head, packing told apart: it is paid once for all rows.
  void Attention(int64_t rows, int64_t keys, int64_t d) const {
    Random q(rows * d);
    Random k(keys * d);
    Random v(keys * d);
    Random mask(keys);
    Memory out(rows * d);
    Memory packed_k(products.packed_floats(keys, d));
    Memory packed_v(products.packed_floats(d, keys));
    Memory scratch(products.attention_scratch_floats(d, d));
    const auto panels = [&](int64_t n) {
      return (n + products.panel - 1) / products.panel;
    };
    const double packing = Best([&] {
      products.pack(k.data(), keys, d, {.n = d, .k = 1}, 0, panels(keys),
                    packed_k.data());
      products.pack(v.data(), d, keys, {.n = 1, .k = d}, 0, panels(d),
                    packed_v.data());
    });
    const AttentionArgs args{.q = q.data(),
                             .ld_q = d,
                             .row_end = rows,
                             .d = d,
                             .dv = d,
                             .num_keys = keys,
                             .k = packed_k.data(),
                             .v = packed_v.data(),
                             .scale = 0.125f,
                             .mask = mask.data(),
                             .out = out.data(),
                             .ld_out = d,
                             .scratch = scratch.data()};
    char name[80];
    std::snprintf(name, sizeof name, "attention %ld x %ld x %ld", long(rows),
                  long(keys), long(d));
    Print(name, 4.0 * rows * keys * d, Best([&] { products.attention(args); }));
    std::printf("%44s %9.1f us\n", "packing its keys and values",
                packing * 1e6);
  }

  // Values a nanosecond of what is done to rows and arrays in L1.
  void Values() const {
    constexpr int64_t kN = 768;
    Random x(kN);
    Random weight(kN);
    Memory y(kN);
    const auto print = [&](const char* name, double seconds) {
      std::printf("%-44s %9.0f ns %7.2f values/ns\n", name, seconds * 1e9,
                  kN / seconds * 1e-9);
    };
    const NormArgs norm{.x = x.data(),
                        .row_end = 1,
                        .n = kN,
                        .weight = weight.data(),
                        .bias = weight.data(),
                        .eps = 1e-5f,
                        .y = y.data()};
    print("layer_norm 768", Best([&] { t.layer_norm(norm); }));
    print("rms_norm 768", Best([&] { t.rms_norm(norm); }));
    const SoftmaxArgs softmax{
        .x = x.data(), .row_end = 1, .n = kN, .y = y.data()};
    print("softmax 768", Best([&] { t.softmax(softmax); }));
    const auto unary = [&](const char* name, Unary f) {
      print(name, Best([&] { t.unary(f, 1, 1, x.data(), kN, y.data()); }));
    };
    unary("gelu 768", Unary::kGeluErf);
    unary("gelu tanh 768", Unary::kGeluTanh);
    unary("silu 768", Unary::kSilu);
    unary("tanh 768", Unary::kTanh);
    unary("exp 768", Unary::kExp);
    unary("log 768", Unary::kLog);
    unary("mish 768", Unary::kMish);
    print("add 768", Best([&] {
            t.binary(Binary::kAdd, x.data(), 1, weight.data(), 1, kN, y.data());
          }));
  }
};

int Main(const char* isa, const std::string& only) {
  const auto chosen = ChooseDense(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 2;
  }
  const bool bf16 = only == "bf16";
  const DenseProducts* products = bf16 ? FindBf16Products(isa) : *chosen;
  if (products == nullptr) {
    std::fprintf(stderr, "this table has no products of bf16\n");
    return 2;
  }
  const Bench bench{**chosen, *products,
                    2 * MeasureRoofline((*chosen)->name).float_gmacs};
  std::printf("table %s, one thread, peak %.0f GFLOP/s\n", bench.t.name,
              bench.peak);
  if (only.empty() || only == "gemm" || bf16) bench.Products();
  if (only.empty() || only == "conv" || bf16) bench.Convolutions();
  if (only.empty() || only == "depthwise") {
    bench.Depthwise(112, 32, 3, 1);
    bench.Depthwise(56, 144, 3, 1);
    bench.Depthwise(56, 144, 5, 2);
    bench.Depthwise(14, 480, 3, 1);
    bench.Depthwise(14, 672, 5, 1);
    bench.Depthwise(56, 96, 7, 1);
  }
  if (only.empty() || only == "attention" || bf16) {
    for (int64_t keys : {16, 64, 128, 197, 512, 2048}) {
      bench.Attention(keys, keys, 64);
    }
    bench.Attention(128, 128, 32);
  }
  if (only.empty() || only == "values") bench.Values();
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "auto",
                               argc > 2 ? argv[2] : "");
}
