// Layers of ResNet-50 and BERT base at batch 1 and 8: our kernels of graphs
// beside oneDNN's, both on a team of our own. Run it on a quiet machine:
//
//   onednn_bench [threads [rounds]]     0 (default): one for each core; 9
//
// Every member of the team runs its own share of the rows: whole images at
// batch 8, else rows of the image or of the matrix. oneDNN computes such a
// share by a primitive of its own, on one thread, with weights packed before in
// the layout it asks for (format_tag::any). Both read and write what layers
// hand on: f32, bf16 or bytes, with a bias and ReLU; memory is hot.
//
// Ways take turns within each round. Printed: GMAC/s of the median round, ours
// / oneDNN's; then the sums of whole networks by medians and by best rounds. At
// last: whether a row's results depend on how many rows stand beside it.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "config/topology.h"
#include "models/cpu/compute_pool.h"
#include "models/cpu/isa.h"
#include "tests/bench/kernels/onednn_primitive.h"
#include "tests/bench/kernels/roofline.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr Layer kLayers[] = {{"ResNet-50", 1, 224, 224, 3, 64, 7, 2},
                             {"ResNet-50", 1, 56, 56, 64, 64},
                             {"ResNet-50", 3, 56, 56, 64, 64, 3},
                             {"ResNet-50", 4, 56, 56, 64, 256},
                             {"ResNet-50", 2, 56, 56, 256, 64},
                             {"ResNet-50", 1, 56, 56, 256, 128},
                             {"ResNet-50", 1, 56, 56, 128, 128, 3, 2},
                             {"ResNet-50", 1, 56, 56, 256, 512, 1, 2},
                             {"ResNet-50", 4, 28, 28, 128, 512},
                             {"ResNet-50", 3, 28, 28, 512, 128},
                             {"ResNet-50", 3, 28, 28, 128, 128, 3},
                             {"ResNet-50", 1, 28, 28, 512, 256},
                             {"ResNet-50", 1, 28, 28, 256, 256, 3, 2},
                             {"ResNet-50", 1, 28, 28, 512, 1024, 1, 2},
                             {"ResNet-50", 6, 14, 14, 256, 1024},
                             {"ResNet-50", 5, 14, 14, 1024, 256},
                             {"ResNet-50", 5, 14, 14, 256, 256, 3},
                             {"ResNet-50", 1, 14, 14, 1024, 512},
                             {"ResNet-50", 1, 14, 14, 512, 512, 3, 2},
                             {"ResNet-50", 1, 14, 14, 1024, 2048, 1, 2},
                             {"ResNet-50", 3, 7, 7, 512, 2048},
                             {"ResNet-50", 2, 7, 7, 2048, 512},
                             {"ResNet-50", 2, 7, 7, 512, 512, 3},
                             {"ResNet-50", 1, 1, 1, 2048, 1000},
                             {"BERT base", 48, 1, 128, 768, 768},
                             {"BERT base", 12, 1, 128, 768, 3072},
                             {"BERT base", 12, 1, 128, 3072, 768}};

// All members get as much; what that is more than the layer is left out of the
// rate, so that an uneven share costs what it costs in a network.
Share ShareOf(const Layer& layer, int64_t batch, int64_t members) {
  const auto part = [&](int64_t n) { return (n + members - 1) / members; };
  if (layer.is_matrix()) {
    const int64_t rows = part(batch * layer.width);
    return {1, 1, rows, 1, rows, 0};
  }
  Share share{1,
              layer.Out(layer.height),
              layer.Out(layer.width),
              layer.height,
              layer.width,
              layer.kernel / 2};
  if (batch >= members) {
    share.images = part(batch);
    return share;
  }
  share.out_height = part(share.out_height);
  share.in_height =
      std::min(layer.height, (share.out_height - 1) * layer.stride +
                                 layer.kernel - share.pad);
  return share;
}

// One member's work by one way; keeps what it needs.
using Work = std::function<void()>;

class Maker {
 public:
  Maker(const Layer& layer, const Share& share) : l_(layer), s_(share) {
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    weights_.resize(static_cast<size_t>(l_.outputs * l_.k()));
    for (float& w : weights_) w = 0.05f * uniform(rng);
  }

  Work Dense(const DenseProducts& products) const {
    const bool bf16 = products.round != nullptr;
    const int64_t panels = Panels(products.panel);
    ConvArgs args{.x = {nullptr, s_.in_height, s_.in_width, l_.channels,
                        s_.in_width * l_.channels, l_.channels},
                  .window = OurWindow(),
                  .out_width = s_.out_width,
                  .pixel_end = s_.out_height * s_.out_width,
                  .n = l_.outputs,
                  .panel_end = panels,
                  .ld_y = l_.outputs,
                  .epilogue = {.f = Unary::kRelu}};
    auto own = std::make_shared<Buffers>();
    const auto add = [&](int64_t bytes) {
      own->push_back(std::make_unique<Buffer>(bytes));
      return own->back()->data;
    };
    const int64_t value = bf16 ? 2 : 4;
    std::byte* const x = add(InputValues() * value);
    std::memset(x, 0x3f, static_cast<size_t>(InputValues() * value));
    std::byte* const y = add(OutputValues() * value);
    auto* packed = reinterpret_cast<float*>(
        add(products.packed_floats(l_.outputs, l_.k()) * 4));
    products.pack(weights_.data(), l_.outputs, l_.k(), {.n = l_.k(), .k = 1}, 0,
                  panels, packed);
    args.w = packed;
    args.epilogue.bias = reinterpret_cast<float*>(add(l_.outputs * 4));
    args.scratch =
        reinterpret_cast<float*>(add(products.conv_scratch_floats(args) * 4));
    return [args, own, x, y, bf16, this_share = s_, layer = l_,
            &products]() mutable {
      for (int64_t image = 0; image < this_share.images; ++image) {
        const int64_t from =
            image * this_share.in_height * this_share.in_width * layer.channels;
        const int64_t to = image * this_share.out_height *
                           this_share.out_width * layer.outputs;
        if (bf16) {
          args.x_bf16 = reinterpret_cast<Bf16*>(x) + from;
          args.y_bf16 = reinterpret_cast<Bf16*>(y) + to;
        } else {
          args.x.data = reinterpret_cast<float*>(x) + from;
          args.y = reinterpret_cast<float*>(y) + to;
        }
        products.conv(args);
      }
    };
  }

  Work Int8(const Int8Table& int8) const {
    auto own = std::make_shared<Buffers>();
    const auto add = [&](int64_t bytes) {
      own->push_back(std::make_unique<Buffer>(bytes));
      return own->back()->data;
    };
    std::vector<int8_t> w(weights_.size());
    std::transform(weights_.begin(), weights_.end(), w.begin(),
                   [](float v) { return static_cast<int8_t>(2000 * v); });
    auto* packed = reinterpret_cast<int8_t*>(
        add(int8.packed_bytes(w.data(), l_.outputs, OurWindow(), l_.channels)));
    int8.pack(w.data(), l_.outputs, OurWindow(), l_.channels, packed);
    auto* const x = reinterpret_cast<uint8_t*>(add(InputValues()));
    std::memset(x, 0x3f, static_cast<size_t>(InputValues()));
    auto* const y = reinterpret_cast<uint8_t*>(add(OutputValues()));
    auto* scale = reinterpret_cast<float*>(add(l_.outputs * 4));
    std::fill_n(scale, l_.outputs, 1e-3f);
    Int8ConvArgs args{
        .x = {x, s_.in_height, s_.in_width, l_.channels,
              s_.in_width * l_.channels, l_.channels, 0},
        .window = OurWindow(),
        .out_width = s_.out_width,
        .pixel_end = s_.out_height * s_.out_width,
        .w = packed,
        .n = l_.outputs,
        .panel_end = Panels(int8.panel),
        .ld_y = l_.outputs,
        .epilogue = {.offset = reinterpret_cast<int32_t*>(add(l_.outputs * 4)),
                     .scale = scale,
                     .bias = reinterpret_cast<float*>(add(l_.outputs * 4)),
                     .f = Unary::kRelu},
        .scratch = reinterpret_cast<uint8_t*>(add(
            int8.conv_scratch_bytes(OurWindow(), s_.out_width, l_.channels)))};
    return [args, own, x, y, share = s_, layer = l_,
            run = int8.conv]() mutable {
      for (int64_t image = 0; image < share.images; ++image) {
        args.x.data =
            x + image * share.in_height * share.in_width * layer.channels;
        args.y = y + image * share.out_height * share.out_width * layer.outputs;
        run(args);
      }
    };
  }

  const Layer& layer() const { return l_; }
  const Share& share() const { return s_; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  Window OurWindow() const {
    return {.kernel_h = l_.kernel,
            .kernel_w = l_.kernel,
            .stride_h = l_.stride,
            .stride_w = l_.stride,
            .pad_top = s_.pad,
            .pad_left = s_.pad};
  }
  int64_t Panels(int64_t panel) const {
    return (l_.outputs + panel - 1) / panel;
  }
  int64_t InputValues() const {
    return s_.images * s_.in_height * s_.in_width * l_.channels;
  }
  int64_t OutputValues() const { return s_.pixels() * l_.outputs; }

  const Layer l_;
  const Share s_;
  std::vector<float> weights_;  // [outputs][kernel][kernel][channels]
};

// ---- timing ----

struct Way {
  std::string name;
  std::vector<Work> work;       // of each member
  std::vector<double> seconds;  // of one call, in each round

  double Median() const {
    if (seconds.empty()) return 0;
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double Least() const {
    return seconds.empty() ? 0
                           : *std::min_element(seconds.begin(), seconds.end());
  }
};

double Calls(ComputePool& pool, const Way& way, int calls) {
  double seconds = 0;
  pool.Run([&](Worker& worker) {
    const Work& work = way.work[static_cast<size_t>(worker.index())];
    worker.Barrier();
    const double begun = Now();
    for (int i = 0; i < calls; ++i) work();
    worker.Barrier();
    if (worker.index() == 0) seconds = Now() - begun;
  });
  return seconds / calls;
}

void TakeTurns(ComputePool& pool, std::vector<Way>& ways, int rounds) {
  std::vector<int> calls;
  for (const Way& way : ways) {
    if (way.work.empty()) {
      calls.push_back(0);
      continue;
    }
    Calls(pool, way, 1);
    calls.push_back(std::max(1, static_cast<int>(1e-3 / Calls(pool, way, 2))));
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      if (calls[i] > 0) {
        ways[i].seconds.push_back(Calls(pool, ways[i], calls[i]));
      }
    }
  }
}

enum { kF32, kBf16, kInt8, kTheirBf16, kTheirInt8, kNumWays };

struct Sums {
  double median[kNumWays] = {};
  double least[kNumWays] = {};
};

struct Tables {
  const DenseTable& f32;
  const DenseProducts* bf16;
  const Int8Table& int8;
};

// The primitives that can do the layer; the fastest one counts.
std::vector<Way> TheirWays(const Maker& maker, Type type, int members) {
  std::vector<Way> ways;
  for (const Primitive kind : {Primitive::kConvolution,
                               Primitive::kInnerProduct, Primitive::kMatmul}) {
    const Layer& l = maker.layer();
    const bool one_by_one = l.kernel == 1 && l.stride == 1;
    if (kind != Primitive::kConvolution && !one_by_one) continue;
    Way way;
    for (int i = 0; i < members; ++i) {
      const auto primitive = std::make_shared<OneDnn>(
          kind, type, type, maker.layer(), maker.share(), maker.weights());
      way.name = primitive->name();
      way.work.push_back([primitive] { primitive->Run(); });
    }
    ways.push_back(std::move(way));
  }
  return ways;
}

void TimeLayer(ComputePool& pool, const Tables& tables, const Layer& layer,
               int64_t batch, int rounds, Sums& sums) {
  const int members = pool.size();
  const Maker maker(layer, ShareOf(layer, batch, members));
  std::vector<Way> ways(3);
  for (int i = 0; i < members; ++i) {
    ways[kF32].work.push_back(maker.Dense(tables.f32));
    if (tables.bf16 != nullptr) {
      ways[kBf16].work.push_back(maker.Dense(*tables.bf16));
    }
    ways[kInt8].work.push_back(maker.Int8(tables.int8));
  }
  std::vector<Way> theirs = TheirWays(maker, Type::bf16, members);
  const size_t num_bf16 = theirs.size();
  for (Way& way : TheirWays(maker, Type::u8, members)) {
    theirs.push_back(std::move(way));
  }
  ways.insert(ways.end(), theirs.begin(), theirs.end());
  TakeTurns(pool, ways, rounds);
  const auto by_median = [](const Way& a, const Way& b) {
    return a.Median() < b.Median();
  };
  const auto first = ways.begin() + 3;
  const auto middle = first + static_cast<int64_t>(num_bf16);
  const Way* of[kNumWays] = {&ways[0], &ways[1], &ways[2],
                             &*std::min_element(first, middle, by_median),
                             &*std::min_element(middle, ways.end(), by_median)};
  const double macs =
      static_cast<double>(batch * layer.Out(layer.height) *
                          layer.Out(layer.width) * layer.outputs * layer.k());
  double rate[kNumWays];
  for (int i = 0; i < kNumWays; ++i) {
    const double median = of[i]->Median();
    rate[i] = median > 0 ? macs / median * 1e-9 : 0;
    sums.median[i] += layer.count * median * 1e3;
    sums.least[i] += layer.count * of[i]->Least() * 1e3;
  }
  char name[80];
  std::snprintf(name, sizeof name, "%d x %ldx%ldx%ld -> %ld, %ldx%ld/%ld",
                layer.count, long(layer.height), long(layer.width),
                long(layer.channels), long(layer.outputs), long(layer.kernel),
                long(layer.kernel), long(layer.stride));
  std::printf("%-32s %7.0f | %7.0f %7.0f %5.2f | %7.0f %7.0f %5.2f | %s, %s\n",
              name, rate[kF32], rate[kBf16], rate[kTheirBf16],
              rate[kBf16] / rate[kTheirBf16], rate[kInt8], rate[kTheirInt8],
              rate[kInt8] / rate[kTheirInt8], of[kTheirBf16]->name.c_str(),
              of[kTheirInt8]->name.c_str());
  std::fflush(stdout);
}

void PrintSums(const char* what, const double (&ms)[kNumWays]) {
  const auto ratio = [&](int theirs, int ours) {
    return ms[ours] > 0 ? ms[theirs] / ms[ours] : 0;
  };
  std::printf("%-32s %7.2f | %7.2f %7.2f %5.2f | %7.2f %7.2f %5.2f\n", what,
              ms[kF32], ms[kBf16], ms[kTheirBf16], ratio(kTheirBf16, kBf16),
              ms[kInt8], ms[kTheirInt8], ratio(kTheirInt8, kInt8));
}

// ---- bits ----

// Rows of m whose sums are others than where 128 rows were computed.
int RowsThatDiffer(Primitive kind, Type type, int64_t k, int64_t m) {
  constexpr int64_t kOutputs = 768;
  const Layer layer{"", 1, 1, 128, k, kOutputs};
  const Type to = type == Type::u8 ? Type::u8 : Type::f32;
  const int64_t row_bytes = kOutputs * (to == Type::f32 ? 4 : 1);
  const auto run = [&](int64_t rows) {
    const Share share{1, 1, rows, 1, rows, 0};
    OneDnn primitive(kind, type, to, layer, share,
                     Maker(layer, share).weights());
    std::mt19937 rng(7);
    for (int64_t i = 0; i < rows * k; ++i) {
      const auto x = static_cast<float>(rng() % 65536) / 65536 - 0.5f;
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      if (type == Type::f32) {
        reinterpret_cast<float*>(primitive.src())[i] = x;
      } else if (type == Type::u8) {
        primitive.src()[i] = static_cast<std::byte>(bits >> 12);
      } else {
        reinterpret_cast<uint16_t*>(primitive.src())[i] =
            static_cast<uint16_t>(bits >> 16);
      }
    }
    primitive.Run();
    return std::vector<std::byte>(primitive.dst(),
                                  primitive.dst() + rows * row_bytes);
  };
  const auto all = run(128);
  const auto some = run(m);
  int differ = 0;
  for (int64_t row = 0; row < m; ++row) {
    differ +=
        std::memcmp(all.data() + row * row_bytes, some.data() + row * row_bytes,
                    static_cast<size_t>(row_bytes)) != 0;
  }
  return differ;
}

void PrintBits() {
  std::printf(
      "\noneDNN, K -> 768: rows of M whose bits are not those that they have "
      "among 128\n%-27s",
      "M");
  constexpr int64_t kRows[] = {1, 7, 16, 64, 128};
  for (const int64_t m : kRows) std::printf(" %5ld", long(m));
  std::printf("\n");
  const std::pair<Type, const char*> types[] = {
      {Type::f32, "f32"}, {Type::bf16, "bf16"}, {Type::u8, "int8"}};
  const std::pair<Primitive, const char*> kinds[] = {
      {Primitive::kConvolution, "convolution"},
      {Primitive::kInnerProduct, "inner_product"},
      {Primitive::kMatmul, "matmul"}};
  for (const auto& [type, type_name] : types) {
    for (const auto& [kind, kind_name] : kinds) {
      for (const int64_t k : {768, 3072}) {
        std::printf("%-4s %-17s %4ld", type_name, kind_name, long(k));
        for (const int64_t m : kRows) {
          std::printf(" %5d", RowsThatDiffer(kind, type, k, m));
        }
        std::printf("\n");
      }
    }
  }
}

int Main(int threads, int rounds) {
  const auto topology = config::Topology::Detect();
  const auto f32 = ChooseDense("auto");
  const auto int8 = ChooseInt8("auto");
  if (!topology.ok() || !f32.ok() || !int8.ok()) return 2;
  ComputePool pool(topology->PhysicalCores(threads), "bench");
  // oneDNN's own threads: one, in the team of each member.
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(
          dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
    pool.Run([&](Worker&) { set(1); });
  }
  const Tables tables{**f32, FindBf16Products("auto"), **int8};
  std::printf(
      "%d threads; f32 by %s, int8 by %s; GMAC/s, medians of %d rounds\n",
      pool.size(), tables.f32.name, tables.int8.name, rounds);
  for (const int64_t batch : {1, 8}) {
    Sums sums;
    for (const Layer& layer : kLayers) {
      const Layer* next = &layer + 1;
      if (&layer == kLayers ||
          std::strcmp(layer.network, (&layer - 1)->network) != 0) {
        sums = {};
        std::printf("\n%-32s %7s | %7s %7s %5s | %7s %7s %5s |\n",
                    (layer.network + (" x " + std::to_string(batch))).c_str(),
                    "f32", "bf16", "oneDNN", "ratio", "int8", "oneDNN",
                    "ratio");
      }
      TimeLayer(pool, tables, layer, batch, rounds, sums);
      if (next == std::end(kLayers) ||
          std::strcmp(layer.network, next->network) != 0) {
        PrintSums("all of them, ms, medians", sums.median);
        PrintSums("all of them, ms, best rounds", sums.least);
      }
    }
  }
  PrintBits();
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? std::atoi(argv[1]) : 0,
                               argc > 2 ? std::atoi(argv[2]) : 9);
}
