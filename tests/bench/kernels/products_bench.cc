// Products of two matrices that are only known when a graph runs, on one
// thread: the dense kernels with B packed each time, and oneDNN's matmul (a
// call for each matrix, and one for the whole stack).
//
//   products_bench [isa]    auto (default), avx2, avx512
//
// GFLOP/s, the best of many short runs, hot. `t` behind a shape: B lies
// transposed, as keys do; `h`: both matrices are heads inside rows of tokens.
// oneDNN takes what the CPU has, or what ONEDNN_MAX_CPU_ISA leaves of it.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/isa.h"
#include "tests/bench/kernels/best.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header
using dnnl::memory;

struct Case {
  int64_t batch, m, k, n;
  bool transposed = false;
  bool heads = false;
};

struct Aligned {
  explicit Aligned(int64_t count)
      : data(static_cast<float*>(std::aligned_alloc(
            2 << 20,
            static_cast<size_t>((count * 4 + (2 << 20)) & ~((2 << 20) - 1))))) {
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < count; ++i) data[i] = uniform(rng);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  float* data;
};

// Distances in floats.
struct Strides {
  int64_t batch, row, col;
};

class OneDnn {
 public:
  OneDnn(const Case& c, int64_t batch, Strides a, Strides b)
      : a_desc_({batch, c.m, c.k}, memory::data_type::f32,
                memory::dims{a.batch, a.row, a.col}),
        b_desc_({batch, c.k, c.n}, memory::data_type::f32,
                memory::dims{b.batch, b.row, b.col}),
        y_desc_({batch, c.m, c.n}, memory::data_type::f32,
                memory::dims{c.m * c.n, c.n, 1}),
        a_(a_desc_, Engine(), nullptr),
        b_(b_desc_, Engine(), nullptr),
        y_(y_desc_, Engine(), nullptr) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc desc(Engine(), a_desc_, b_desc_, y_desc_,
                                            attr);
    name = desc.impl_info_str();
    scratch_ = memory(desc.scratchpad_desc(), Engine());
    matmul_ = dnnl::matmul(desc);
    args_ = {{DNNL_ARG_SRC, a_},
             {DNNL_ARG_WEIGHTS, b_},
             {DNNL_ARG_DST, y_},
             {DNNL_ARG_SCRATCHPAD, scratch_}};
  }

  void Run(float* a, float* b, float* y) {
    a_.set_data_handle(a);
    b_.set_data_handle(b);
    y_.set_data_handle(y);
    matmul_.execute(stream_, args_);
  }

  std::string name;

 private:
  static dnnl::engine& Engine() {
    static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
  }

  memory::desc a_desc_, b_desc_, y_desc_;
  memory a_, b_, y_, scratch_;
  dnnl::stream stream_{Engine()};
  dnnl::matmul matmul_;
  std::unordered_map<int, memory> args_;
};

void Time(const DenseTable& dense, const Case& c) {
  Strides a{c.m * c.k, c.k, 1};
  Strides b{c.k * c.n, c.n, 1};
  if (c.transposed) b = {c.k * c.n, 1, c.k};
  if (c.heads) {
    a = {c.k, c.batch * c.k, 1};
    b = {c.n, c.batch * c.n, 1};
    if (c.transposed) b = {c.k, 1, c.batch * c.k};
  }
  const Aligned x(c.batch * c.m * c.k);
  const Aligned w(c.batch * c.k * c.n);
  const Aligned y(c.batch * c.m * c.n);
  const double flops = 2e-9 * static_cast<double>(c.batch * c.m * c.k * c.n);

  const int64_t panels = (c.n + dense.panel - 1) / dense.panel;
  const Aligned packed(dense.packed_floats(c.n, c.k));
  const double ours = Best([&] {
    for (int64_t i = 0; i < c.batch; ++i) {
      dense.pack(w.data + i * b.batch, c.n, c.k, {.n = b.col, .k = b.row}, 0,
                 panels, packed.data);
      dense.gemm({.x = x.data + i * a.batch,
                  .ld_x = a.row,
                  .row_end = c.m,
                  .w = packed.data,
                  .n = c.n,
                  .k = c.k,
                  .panel_end = panels,
                  .y = y.data + i * c.m * c.n,
                  .ld_y = c.n});
    }
  });
  OneDnn each(c, 1, a, b);
  const double by_matrix = Best([&] {
    for (int64_t i = 0; i < c.batch; ++i) {
      each.Run(x.data + i * a.batch, w.data + i * b.batch,
               y.data + i * c.m * c.n);
    }
  });
  OneDnn all(c, c.batch, a, b);
  const double whole = Best([&] { all.Run(x.data, w.data, y.data); });
  char name[64];
  std::snprintf(name, sizeof name, "%ld of %ld x %ld x %ld%s%s", long(c.batch),
                long(c.m), long(c.k), long(c.n), c.transposed ? " t" : "",
                c.heads ? " h" : "");
  std::printf("%-28s %7.1f %7.1f %7.1f   %s\n", name, flops / ours,
              flops / by_matrix, flops / whole, all.name.c_str());
  std::fflush(stdout);
}

int Main(const char* isa) {
  // A team of one in each call.
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(
          dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
    set(1);
  }
  const auto dense = ChooseDense(isa);
  if (!dense.ok()) {
    std::fprintf(stderr, "%s\n", dense.status().ToString().c_str());
    return 2;
  }
  std::printf("table %s, peak %.0f GFLOP/s\n", (*dense)->name,
              2 * MeasureRoofline((*dense)->name).float_gmacs);
  std::printf("%-28s %7s %7s %7s\n", "batch of m x k x n", "dense", "oneDNN",
              "stack");
  for (const Case& c :
       std::initializer_list<Case>{{96, 49, 32, 49},
                                   {96, 49, 32, 49, true},
                                   {96, 49, 32, 49, true, true},
                                   {96, 49, 49, 32},
                                   {96, 49, 49, 32, false, true},
                                   {12, 128, 64, 128},
                                   {12, 128, 64, 128, true},
                                   {12, 128, 64, 128, true, true},
                                   {12, 128, 128, 64},
                                   {12, 128, 128, 64, false, true},
                                   {8, 512, 64, 512},
                                   {8, 512, 64, 512, true, true},
                                   {8, 512, 512, 64},
                                   {12, 197, 64, 197, true},
                                   {12, 197, 197, 64},
                                   {6, 100, 32, 850, true},
                                   {1, 256, 256, 256},
                                   {1, 256, 256, 256, true},
                                   {1, 1024, 1024, 1024},
                                   {1, 27, 128, 27, true},
                                   {64, 27, 128, 27, true},
                                   {12, 1, 64, 128, true},
                                   {12, 1, 128, 64},
                                   {1, 1, 1024, 1024},
                                   {1, 1, 1024, 1024, true},
                                   {1, 4, 1024, 1024, true},
                                   {1, 1024, 1024, 1}}) {
    Time(**dense, c);
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? argv[1] : "auto");
}
