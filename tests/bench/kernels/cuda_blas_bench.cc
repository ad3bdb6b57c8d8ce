// Speed of products of prompts by weights in BF16 and F16 on a GPU, in shapes
// of an 8 B model: this program's kernel beside cuBLASLt with all that it takes
// to give a row the same bits. How far their outputs are apart is told of the
// greatest one. Each figure is the median of a few runs of a captured graph,
// whose launches go round enough weights that no cache holds them.
//
//   MILLRACE_CUDA_MODULE=build/release/bin/libmillrace_cuda.so cuda_blas_bench
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "models/gpu/blas_products.h"
#include "models/llm/cuda/pack_rows.h"
#include "tests/bench/kernels/on_gpu.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int64_t kBeyondCaches = int64_t{400} << 20;
constexpr int32_t kMostRows = 2048;
constexpr int32_t kMostOutputs = 24576;

class Bench {
 public:
  Bench() : context_(OpenGpu()), blas_(Must(BlasProducts::Open(context_))) {
    Must(blas_->Bind(kMostRows, kMostOutputs));
    std::printf("%s, cuBLASLt %s\n", context_->device().name,
                blas_->VersionText().c_str());
  }

  void Run(bool bf16, int32_t outputs, int32_t inputs) {
    const auto format =
        bf16 ? cuda::WeightFormat::kBF16 : cuda::WeightFormat::kF16;
    const int64_t row_bytes = CudaRowBytes(format, inputs);
    const int64_t matrix = row_bytes * outputs;
    copies_ = std::max<int64_t>(2, kBeyondCaches / matrix);
    weights_ = RandomOnGpu(*context_, matrix * copies_, kHalves);
    args_ = {
        .weights = {.data = weights_.data(),
                    .row_bytes = row_bytes,
                    .inputs = inputs,
                    .outputs = outputs,
                    .format = format},
        .rounded_bytes = cuda::RoundedBytes(
            bf16 ? cuda::InputFormat::kBF16 : cuda::InputFormat::kF16, inputs),
        .out_pitch = outputs};
    // Calls read whole tiles of rows.
    const int64_t room =
        (kMostRows + BlasProducts::kTileRows) * args_.rounded_bytes;
    const CudaBuffer probe = RandomOnGpu(*context_, room, kHalves);
    product_ = Must(
        blas_->Choose({.factors = bf16 ? BlasFactors::kBf16 : BlasFactors::kF16,
                       .outputs = outputs,
                       .inputs = inputs,
                       .weights_pitch = row_bytes / 2,
                       .x_pitch = args_.rounded_bytes / 2},
                      weights_.data(), probe.data()));
    const char* name = bf16 ? "BF16" : "F16";
    if (product_ == nullptr) {
      std::printf("%-4s %6d x %-6d no algorithm gives equal bits\n", name,
                  outputs, inputs);
      return;
    }
    const CudaBuffer x = RandomOnGpu(*context_, room, kHalves);
    args_.rounded = x.data();
    for (const int32_t rows : {16, 128, 512, kMostRows}) {
      args_.rows = rows;
      const int64_t values = int64_t{rows} * outputs;
      const auto by_kernel = Time(values, [&](const cuda::LinearArgs& args) {
        return context_->module().multiply_on_tensors(stream(), args);
      });
      const auto by_blas = Time(values, [&](const cuda::LinearArgs& args) {
        return blas_->Multiply(*product_, args, 0, rows);
      });
      double most = 0, apart = 0;
      for (size_t i = 0; i < by_blas.y.size(); ++i) {
        const double expected = by_kernel.y[i];
        most = std::max(most, std::fabs(expected));
        apart = std::max(apart, std::fabs(expected - double{by_blas.y[i]}));
      }
      const auto rate = [&](double us) {
        return 2.0 * static_cast<double>(values) * inputs / us * 1e-6;
      };
      std::printf(
          "%-4s %6d x %-6d %4d rows  kernel %8.1f us %6.1f TFLOP/s  cuBLASLt "
          "%8.1f us %6.1f TFLOP/s  %5.2f times as fast, apart %.1e\n",
          name, outputs, inputs, rows, by_kernel.us, rate(by_kernel.us),
          by_blas.us, rate(by_blas.us), by_kernel.us / by_blas.us,
          apart / most);
      std::fflush(stdout);
    }
  }

 private:
  struct Timed {
    double us;
    std::vector<float> y;
  };
  cuda::Stream stream() const { return context_->device().stream; }

  // One product with each copy of the weights.
  template <typename Multiply>
  Timed Time(int64_t values, Multiply multiply) {
    const CudaBuffer y = RandomOnGpu(*context_, values * 4, 0);
    const CudaGraph graph = Must(context_->Capture([&] {
      for (int64_t i = 0; i < copies_; ++i) {
        cuda::LinearArgs args = args_;
        args.weights.data += i * args.weights.row_bytes * args.weights.outputs;
        args.y = y.as<float>();
        if (const int error = multiply(args)) {
          RETURN_IF_ERROR(blas_->TakeFailure());
          RETURN_IF_ERROR(context_->Launched(error));
        }
      }
      return OkStatus();
    }));
    Timed timed;
    timed.us = MedianMicros(*context_, [&] { Must(context_->Run(graph)); }) /
               static_cast<double>(copies_);
    timed.y.resize(static_cast<size_t>(values));
    Must(context_->Download(timed.y.data(), y.data(), values * 4));
    Must(context_->Wait());
    return timed;
  }

  const std::shared_ptr<CudaContext> context_;
  const std::unique_ptr<BlasProducts> blas_;
  int64_t copies_ = 0;
  CudaBuffer weights_;
  cuda::LinearArgs args_;
  const BlasProduct* product_ = nullptr;
};

int Main() {
  Bench bench;
  for (const bool bf16 : {true, false}) {
    bench.Run(bf16, 6144, 4096);
    bench.Run(bf16, 4096, 4096);
    bench.Run(bf16, kMostOutputs, 4096);
    bench.Run(bf16, 4096, 12288);
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main() { return millrace::bench::Main(); }
