// Speed of layers of graphs on a GPU. Linear layers of BERT base, by this
// program's kernel beside cuBLASLt with all that it takes to give a row the
// same bits; convolutions with groups, on tensor cores beside plain FMAs in
// f32, which tells how few outputs of a group the first are worth it for. Each
// figure is the median of a few runs of a captured graph of some launches.
//
//   MILLRACE_CUDA_MODULE=build/release/bin/libmillrace_cuda.so cuda_graph_bench
//
// With an argument sizes are divided by it, so that the emulated module takes
// seconds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/cuda/blas_layers.h"
#include "models/graph/cuda/pack_factors.h"
#include "tests/bench/kernels/on_gpu.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;         // NOLINT: a program, not a header
using namespace millrace::models::graph;  // NOLINT: likewise
using cuda::GraphPrecision;

class GraphBench {
 public:
  explicit GraphBench(int64_t divisor)
      : divisor_(divisor), context_(OpenGpu()) {
    std::printf("%s\n", context_->device().name);
    StatusOr<std::unique_ptr<BlasLayers>> blas =
        BlasLayers::Open(&context_->module(), 0);
    if (blas.ok()) {
      blas_ = std::move(blas).value();
    } else {
      std::printf("no cuBLASLt: %s\n", blas.status().ToString().c_str());
    }
  }

  void Linear(GraphPrecision precision, int64_t rows, int64_t inputs,
              int64_t outputs) {
    rows = Divided(rows);
    inputs = Divided(inputs);
    outputs = Divided(outputs);
    const bool halves = precision == GraphPrecision::kF16;
    const int64_t bytes = halves ? 2 : 4;
    const uint32_t mask = halves ? kHalves : kFloats;
    // A call of cuBLASLt reads whole tiles of rows.
    const CudaBuffer a = RandomOnGpu(
        *context_, (rows + BlasMatmul::kTileRows) * inputs * bytes, mask);
    const CudaBuffer weights =
        RandomOnGpu(*context_, outputs * inputs * bytes, mask);
    const CudaBuffer bias = RandomOnGpu(*context_, outputs * 4, kFloats);
    const CudaBuffer y = RandomOnGpu(*context_, rows * outputs * bytes, 0);
    const auto format =
        halves ? cuda::GraphFormat::kF16 : cuda::GraphFormat::kF32;
    cuda::ProductArgs args = {};
    args.precision = precision;
    args.packed_b = {weights.data(), inputs * bytes};
    args.a = {a.data(), format};
    args.y = {y.data(), format};
    args.m = rows;
    args.n = args.y_row = outputs;
    args.k = args.a_row = inputs;
    args.a_k = args.b_k = 1;
    args.b_n = inputs;
    args.count = 1;
    args.epilogue.bias = bias.as<float>();
    args.epilogue.f = cuda::Function::kGeluErf;
    const double flops =
        2.0 * static_cast<double>(rows * outputs) * static_cast<double>(inputs);
    std::printf("%-5s Linear %5ld x %4ld -> %4ld", halves ? "f16" : "tf32",
                static_cast<long>(rows), static_cast<long>(inputs),
                static_cast<long>(outputs));
    Tell("kernel", flops,
         [&] { return context_->module().graph_product(stream(), args); });
    const auto shape = BlasLayers::ShapeOf(args, format);
    const BlasProduct* product =
        blas_ != nullptr && shape ? blas_->Choose(*shape) : nullptr;
    if (product != nullptr) {
      const CudaBuffer scratch =
          Must(context_->Allocate(BlasLayers::ScratchBytes(*product), "sums"));
      Tell("cuBLASLt", flops, [&] {
        return std::abs(blas_->Multiply(*product, args, context_->module(),
                                        stream(), scratch.data()));
      });
    }
    std::printf("\n");
  }

  // 3 x 3 over images of `size` pixels squared, channels as many as outputs.
  void Groups(int64_t size, int64_t outputs, int64_t groups) {
    const int64_t batch = Divided(32);
    const int64_t of_group = outputs / groups;
    const int64_t values = batch * size * size * outputs;
    const CudaBuffer x = RandomOnGpu(*context_, values * 2, kHalves);
    const CudaBuffer y = RandomOnGpu(*context_, values * 2, 0);
    const CudaBuffer w =
        RandomOnGpu(*context_, outputs * of_group * 9 * 4, kFloats);
    const int64_t row_bytes =
        PackedRowBytes(GraphPrecision::kF16, 9 * of_group);
    const CudaBuffer packed =
        RandomOnGpu(*context_, outputs * row_bytes, kHalves);
    const auto side = static_cast<int32_t>(size);
    cuda::GraphConvArgs args = {};
    args.packed_w = {packed.data(), row_bytes};
    args.window = {{1, side, side}, {1, side, side}, {1, 3, 3}, {1, 1, 1},
                   {1, 1, 1},       {0, 1, 1},       {0, 1, 1}};
    args.batch = batch;
    args.channels = args.outputs = static_cast<int32_t>(outputs);
    args.groups = static_cast<int32_t>(groups);
    args.x = {x.data(), cuda::GraphFormat::kF16};
    args.w = w.as<float>();
    args.y = {y.data(), cuda::GraphFormat::kF16};
    std::printf("f16   Conv 3x3 %2ld x %ldx%ldx%ld, %3ld groups of %2ld",
                static_cast<long>(batch), static_cast<long>(size),
                static_cast<long>(size), static_cast<long>(outputs),
                static_cast<long>(groups), static_cast<long>(of_group));
    for (const auto& [name, precision] :
         {std::pair{"tensor cores", GraphPrecision::kF16},
          std::pair{"f32", GraphPrecision::kF32}}) {
      args.precision = precision;
      const bool is_there = precision == GraphPrecision::kF32 ||
                            cuda::GroupsOnTensors(groups, outputs);
      if (!is_there) continue;
      Tell(name, 18.0 * static_cast<double>(values * of_group),
           [&] { return context_->module().graph_conv(stream(), args); });
    }
    std::printf("\n");
  }

 private:
  cuda::Stream stream() const { return context_->device().stream; }
  int64_t Divided(int64_t size) const {
    return std::max<int64_t>(size / divisor_ / 8 * 8, 8);
  }
  void Tell(const char* name, double flops,
            const std::function<int()>& launch) {
    const int64_t launches = divisor_ > 1 ? 1 : 20;
    const CudaGraph graph = Must(context_->Capture([&] {
      for (int64_t i = 0; i < launches; ++i) {
        RETURN_IF_ERROR(context_->Launched(launch()));
      }
      return OkStatus();
    }));
    const double us =
        MedianMicros(*context_, [&] { Must(context_->Run(graph)); }) /
        static_cast<double>(launches);
    std::printf("  %s %8.1f us %6.1f TFLOP/s", name, us, flops / us * 1e-6);
    std::fflush(stdout);
  }

  const int64_t divisor_;
  const std::shared_ptr<CudaContext> context_;
  std::unique_ptr<BlasLayers> blas_;
};

int Main(int64_t divisor) {
  GraphBench bench(divisor);
  for (const GraphPrecision precision :
       {GraphPrecision::kF16, GraphPrecision::kTf32}) {
    for (const int64_t rows : {128, 1024, 4096}) {
      bench.Linear(precision, rows, 768, 768);
      bench.Linear(precision, rows, 768, 3072);
      bench.Linear(precision, rows, 3072, 768);
    }
  }
  for (const int64_t groups : {32, 16, 8, 4, 2}) bench.Groups(14, 512, groups);
  bench.Groups(14, 512, 64);
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::bench::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1);
}
