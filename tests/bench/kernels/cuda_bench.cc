// Speed of the CUDA kernels of language models, one by one, on a GPU, in shapes
// of an 8 B model. Each line runs a captured graph of launches that go round
// enough weights (or keys and values) that no cache holds them, and tells the
// median of a few. Beside it: what loads alone read, what tensor cores
// multiply.
//
//   MILLRACE_CUDA_MODULE=build/release/bin/libmillrace_cuda.so cuda_bench
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "models/llm/cuda/pack_rows.h"
#include "tests/bench/kernels/on_gpu.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int64_t kBeyondCaches = int64_t{400} << 20;

class Bench {
 public:
  Bench() : context_(OpenGpu()), module_(context_->module()) {}

  // Microseconds of one of `count` launches.
  double Time(int count, const std::function<int(int)>& launch) {
    const CudaGraph graph = Must(context_->Capture([&] {
      for (int i = 0; i < count; ++i) {
        RETURN_IF_ERROR(context_->Launched(launch(i)));
      }
      return OkStatus();
    }));
    return MedianMicros(*context_, [&] { Must(context_->Run(graph)); }) / count;
  }

  CudaBuffer Fill(int64_t bytes, uint32_t mask) {
    return RandomOnGpu(*context_, bytes, mask);
  }

  template <typename T>
  CudaBuffer Copy(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    CudaBuffer buffer = Must(context_->Allocate(bytes, "a benchmark"));
    Must(context_->Upload(buffer.data(), values.data(), bytes));
    Must(context_->Wait());
    return buffer;
  }

  cuda::Stream stream() const { return context_->device().stream; }
  const cuda::Module& module() const { return module_; }
  const cuda::Device& device() const { return context_->device(); }

 private:
  const std::shared_ptr<CudaContext> context_;
  const cuda::Module& module_;
};

void Peaks(Bench& bench) {
  const int64_t bytes = int64_t{2} << 30;
  const CudaBuffer data = bench.Fill(bytes, ~0u);
  const CudaBuffer sink = bench.Fill(16, 0);
  const cuda::PeakArgs args = {.data = data.data(),
                               .bytes = bytes,
                               .repeats = 4000,
                               .blocks = 8 * bench.device().multiprocessors,
                               .sink = sink.as<uint32_t>()};
  const double read = bench.Time(
      1, [&](int) { return bench.module().read_bytes(bench.stream(), args); });
  const double macs = bench.Time(1, [&](int) {
    return bench.module().multiply_fragments(bench.stream(), args);
  });
  std::printf(
      "%s, %d multiprocessors. Peaks: %.0f GB/s read, %.0f TFLOP/s mma\n",
      bench.device().name, bench.device().multiprocessors,
      static_cast<double>(bytes) / read * 1e-3,
      2 * cuda::MacsOfFragments(args) / macs * 1e-6);
}

void Products(Bench& bench) {
  struct Shape {
    int32_t outputs, inputs;
  };
  const auto run = [&](cuda::WeightFormat format, const char* name, Shape shape,
                       int32_t rows, const char* kernel, auto multiply,
                       cuda::InputFormat input) {
    const int64_t row_bytes = CudaRowBytes(format, shape.inputs);
    const int64_t matrix = row_bytes * shape.outputs;
    const auto copies =
        static_cast<int>(std::max<int64_t>(2, kBeyondCaches / matrix));
    const CudaBuffer weights = bench.Fill(matrix * copies, kHalves);
    const int64_t pitch = shape.inputs;
    const CudaBuffer x = bench.Fill(rows * pitch * 4, kFloats);
    const int64_t rounded_bytes = cuda::RoundedBytes(input, shape.inputs);
    const CudaBuffer rounded = bench.Fill(rows * rounded_bytes, kHalves);
    const CudaBuffer y = bench.Fill(int64_t{rows} * shape.outputs * 4, kFloats);
    const double us = bench.Time(copies, [&](int i) {
      return multiply(
          bench.stream(),
          cuda::LinearArgs{.weights = {.data = weights.data() + i * matrix,
                                       .row_bytes = row_bytes,
                                       .inputs = shape.inputs,
                                       .outputs = shape.outputs,
                                       .format = format},
                           .x = x.as<float>(),
                           .pitch = pitch,
                           .rounded = rounded.data(),
                           .rounded_bytes = rounded_bytes,
                           .rows = rows,
                           .y = y.as<float>(),
                           .out_pitch = shape.outputs});
    });
    std::printf(
        "%-5s %6d x %-6d %4d rows  %-7s %8.1f us %6.0f GB/s %6.1f TFLOP/s\n",
        name, shape.outputs, shape.inputs, rows, kernel, us,
        static_cast<double>(matrix) / us * 1e-3,
        2.0 * rows * shape.outputs * shape.inputs / us * 1e-6);
    std::fflush(stdout);
  };
  using cuda::InputFormat;
  using cuda::WeightFormat;
  const cuda::Module& m = bench.module();
  constexpr Shape kShapes[] = {
      {6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};
  const std::pair<WeightFormat, const char*> kQuantised[] = {
      {WeightFormat::kQ4_K, "Q4_K"},
      {WeightFormat::kQ8_0, "Q8_0"},
      {WeightFormat::kQ6_K, "Q6_K"},
      {WeightFormat::kQ4_0, "Q4_0"}};
  for (const auto& [format, name] : kQuantised) {
    for (const Shape& shape : kShapes) {
      run(format, name, shape, 1, "int8", m.multiply_int8, InputFormat::kInt8);
    }
    for (const int32_t rows : {4, 8, 16, 32, 64}) {
      run(format, name, kShapes[2], rows, "int8", m.multiply_int8,
          InputFormat::kInt8);
    }
    for (const int32_t rows : {64, 512, 2048}) {
      run(format, name, kShapes[2], rows, "tensor", m.multiply_on_tensors,
          InputFormat::kF16);
    }
  }
  for (const int32_t rows : {1, 8, 64}) {
    run(WeightFormat::kF16, "F16", kShapes[2], rows, "f32", m.multiply_rows,
        InputFormat::kF16);
  }
  run(WeightFormat::kQ6_K, "Q6_K", {151936, 4096}, 1, "f32", m.multiply_rows,
      InputFormat::kF16);
  run(WeightFormat::kQ8_0, "Q8_0", {151936, 4096}, 1, "f32", m.multiply_rows,
      InputFormat::kF16);
  for (const int32_t rows : {64, 512, 2048}) {
    run(WeightFormat::kF16, "F16", kShapes[2], rows, "tensor",
        m.multiply_on_tensors, InputFormat::kF16);
  }
}

// Gate of a mixture as Qwen3-30B-A3B's: 8 of 128 experts a row, drawn evenly.
void Experts(Bench& bench) {
  constexpr int32_t kExperts = 128, kUsed = 8, kOutputs = 768, kInputs = 2048;
  constexpr cuda::WeightFormat kFormat = cuda::WeightFormat::kQ4_K;
  const int64_t row_bytes = CudaRowBytes(kFormat, kInputs);
  const int64_t matrix = row_bytes * kOutputs;
  const auto copies =
      static_cast<int32_t>(kBeyondCaches / (kExperts * matrix) + 1);
  const CudaBuffer weights = bench.Fill(matrix * kExperts * copies, kHalves);
  std::vector<const std::byte*> pointers;
  for (int64_t i = 0; i < kExperts * copies; ++i) {
    pointers.push_back(weights.data() + i * matrix);
  }
  const CudaBuffer matrices = bench.Copy(pointers);
  std::mt19937_64 random(1);
  const auto run = [&](int32_t rows, const char* kernel, auto multiply,
                       cuda::InputFormat input) {
    const int32_t uses = rows * kUsed;
    const int32_t tile_rows = input == cuda::InputFormat::kInt8
                                  ? cuda::TileRows(rows)
                                  : cuda::TensorTileRows(uses, kExperts);
    std::vector<int32_t> chosen;
    std::vector<int32_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    for (int32_t row = 0; row < rows; ++row) {
      std::ranges::shuffle(all, random);
      chosen.insert(chosen.end(), all.begin(), all.begin() + kUsed);
    }
    const CudaBuffer on_chosen = bench.Copy(chosen);
    const CudaBuffer order = bench.Fill(int64_t{uses} * 4, 0);
    const CudaBuffer counts = bench.Fill(kExperts * 4, 0);
    const int32_t num_tiles = cuda::MostTiles(uses, kExperts, tile_rows);
    const CudaBuffer tiles = bench.Fill(
        num_tiles * static_cast<int64_t>(sizeof(cuda::ExpertTile)), 0);
    const CudaBuffer num_read = bench.Fill(16, 0);
    const auto sort = [&](int) {
      return bench.module().order_uses(bench.stream(),
                                       {.chosen = on_chosen.as<int32_t>(),
                                        .uses = uses,
                                        .experts = kExperts,
                                        .tile_rows = tile_rows,
                                        .order = order.as<int32_t>(),
                                        .counts = counts.as<int32_t>(),
                                        .num_read = num_read.as<int32_t>(),
                                        .tiles = tiles.as<cuda::ExpertTile>(),
                                        .num_tiles = num_tiles});
    };
    const double sort_us = bench.Time(20, sort);
    const int64_t rounded_bytes = cuda::RoundedBytes(input, kInputs);
    const CudaBuffer rounded = bench.Fill(rows * rounded_bytes, kHalves);
    const CudaBuffer y = bench.Fill(int64_t{uses} * kOutputs * 4, kFloats);
    const double us = bench.Time(copies, [&](int i) {
      return multiply(
          bench.stream(),
          cuda::LinearArgs{.weights = {.data = nullptr,
                                       .row_bytes = row_bytes,
                                       .inputs = kInputs,
                                       .outputs = kOutputs,
                                       .format = kFormat},
                           .rounded = rounded.data(),
                           .rounded_bytes = rounded_bytes,
                           .rows = tile_rows,
                           .y = y.as<float>(),
                           .out_pitch = kOutputs,
                           .tiles = tiles.as<cuda::ExpertTile>(),
                           .num_tiles = num_tiles,
                           .order = order.as<int32_t>(),
                           .matrices = matrices.as<const std::byte*>() +
                                       int64_t{i} * kExperts,
                           .uses_of_row = kUsed});
    });
    std::ranges::sort(chosen);
    const auto read = std::ranges::unique(chosen).begin() - chosen.begin();
    std::printf(
        "experts %d of %d, %4d rows  %-7s %8.1f us %6.0f GB/s %6.1f TFLOP/s"
        ", ordering %.1f us\n",
        kUsed, kExperts, rows, kernel, us,
        static_cast<double>(read * matrix) / us * 1e-3,
        2.0 * uses * kOutputs * kInputs / us * 1e-6, sort_us);
    std::fflush(stdout);
  };
  const cuda::Module& m = bench.module();
  for (const int32_t rows : {1, 8, 64}) {
    run(rows, "int8", m.multiply_int8, cuda::InputFormat::kInt8);
  }
  for (const int32_t rows : {64, 512, 4096}) {
    run(rows, "tensor", m.multiply_on_tensors, cuda::InputFormat::kF16);
  }
}

void Small(Bench& bench) {
  const CudaBuffer x = bench.Fill(int64_t{64} * 151936 * 4, kFloats);
  const CudaBuffer y = bench.Fill(int64_t{64} * 32768 * 4, kFloats);
  const CudaBuffer ids = bench.Fill(4096, 0);
  for (const int32_t rows : {1, 64}) {
    const auto tell = [&](const char* what,
                          const std::function<int(int)>& run) {
      std::printf("%-28s %4d rows %8.1f us\n", what, rows, bench.Time(50, run));
    };
    tell("norm of 4096", [&](int) {
      return bench.module().norm_rows(bench.stream(), {.x = x.as<float>(),
                                                       .pitch = 4096,
                                                       .weight = x.as<float>(),
                                                       .eps = 1e-6f,
                                                       .width = 4096,
                                                       .rows = rows,
                                                       .out = y.as<float>(),
                                                       .out_pitch = 4096});
    });
    for (const int32_t width : {4096, 12288}) {
      tell(("int8 of " + std::to_string(width)).c_str(), [&](int) {
        return bench.module().round_rows(
            bench.stream(),
            {.x = x.as<float>(),
             .pitch = width,
             .rows = rows,
             .rounded = {.format = cuda::InputFormat::kInt8,
                         .inputs = width,
                         .data = y.data(),
                         .bytes = cuda::RoundedBytes(cuda::InputFormat::kInt8,
                                                     width)}});
      });
    }
    tell("SwiGLU of 12288", [&](int) {
      return bench.module().activate(bench.stream(), {.x = x.as<float>(),
                                                      .pitch = 24576,
                                                      .width = 12288,
                                                      .rows = rows,
                                                      .out = y.as<float>(),
                                                      .out_pitch = 12288});
    });
    tell("greatest of 151936", [&](int) {
      return bench.module().finish_logits(bench.stream(),
                                          {.logits = x.as<float>(),
                                           .pitch = 151936,
                                           .vocab = 151936,
                                           .rows = rows,
                                           .parts = y.as<cuda::Greatest>(),
                                           .ids = ids.as<int32_t>()});
    });
    // Logits are uniform: top-p keeps most of them, the slow way.
    for (const auto& [what, draw] :
         {std::pair("draw of 40 of 151936",
                    cuda::DrawRow{.inverse_temperature = 1, .top_k = 40}),
          std::pair("draw of 0.9 of 151936",
                    cuda::DrawRow{.inverse_temperature = 1, .top_p = 0.9f})}) {
      const std::vector<cuda::DrawRow> all(static_cast<size_t>(rows), draw);
      const CudaBuffer draws = bench.Copy(all);
      tell(what, [&](int) {
        return bench.module().draw_tokens(bench.stream(),
                                          {.logits = x.as<float>(),
                                           .pitch = 151936,
                                           .vocab = 151936,
                                           .rows = rows,
                                           .draws = draws.as<cuda::DrawRow>(),
                                           .ids = ids.as<int32_t>()});
      });
    }
  }
}

// q, k and v with adapters of one rank, each of so many rows, in turns.
void Adapters(Bench& bench) {
  constexpr int32_t kInputs = 4096, kOutputs = 6144;
  const auto run = [&](int32_t rank, int32_t rows, int32_t adapters) {
    const int64_t bytes = int64_t{2} * rank * (3 * kInputs + kOutputs);
    const auto copies = static_cast<int>(
        std::max<int64_t>(2, kBeyondCaches / (bytes * adapters)));
    const CudaBuffer factors = bench.Fill(bytes * adapters * copies, kHalves);
    std::vector<cuda::LoraFactors> table;
    for (int i = 0; i < copies * adapters; ++i) {
      const std::byte* a = factors.data() + i * bytes;
      const std::byte* b = a + int64_t{2} * rank * 3 * kInputs;
      for (const int32_t outputs : {4096, 1024, 1024}) {
        table.push_back({a, b, rank, 1});
        a += int64_t{2} * rank * kInputs;
        b += int64_t{2} * rank * outputs;
      }
    }
    const CudaBuffer tables = bench.Copy(table);
    std::vector<cuda::LoraTile> tiles;
    std::vector<int32_t> order;
    for (int i = 0; i < copies * adapters; ++i) {
      const int32_t first = i % adapters * rows;
      for (int32_t row = 0; row < rows; row += cuda::kLoraTileRows) {
        tiles.push_back({tables.as<cuda::LoraFactors>() + 3 * i, first + row,
                         std::min(cuda::kLoraTileRows, rows - row)});
      }
    }
    for (int32_t i = 0; i < rows * adapters; ++i) order.push_back(i);
    const CudaBuffer on_tiles = bench.Copy(tiles);
    const CudaBuffer on_order = bench.Copy(order);
    const int32_t all = rows * adapters;
    const CudaBuffer x = bench.Fill(int64_t{all} * kInputs * 4, kFloats);
    const CudaBuffer y = bench.Fill(int64_t{all} * kOutputs * 4, kFloats);
    const CudaBuffer hidden = bench.Fill(
        int64_t{all} * 3 * cuda::LoraSplits(kInputs) * rank * 4, kFloats);
    const auto of_launch = static_cast<int32_t>(tiles.size()) / copies;
    const double us = bench.Time(copies, [&](int i) {
      return bench.module().add_lora(
          bench.stream(),
          {.tiles = on_tiles.as<cuda::LoraTile>() + i * of_launch,
           .num_tiles = of_launch,
           .order = on_order.as<int32_t>(),
           .num_targets = 3,
           .targets = {{0, 4096}, {4096, 1024}, {5120, 1024}},
           .most_rank = rank,
           .inputs = kInputs,
           .x = x.as<float>(),
           .pitch = kInputs,
           .shares_splits = all <= 64,
           .hidden = hidden.as<float>(),
           .y = y.as<float>(),
           .out_pitch = kOutputs});
    });
    std::printf(
        "LoRA of q, k, v, rank %-3d %2d adapters of %4d rows %8.1f us %6.0f "
        "GB/s %6.1f TFLOP/s\n",
        rank, adapters, rows, us,
        static_cast<double>(bytes * adapters) / us * 1e-3,
        2.0 * all * rank * (3 * kInputs + kOutputs) / us * 1e-6);
    std::fflush(stdout);
  };
  for (const int32_t rank : {16, 64}) {
    run(rank, 1, 1);
    run(rank, 1, 16);
    run(rank, 8, 8);
    run(rank, 2048, 1);
  }
}

int Main() {
  Bench bench;
  Peaks(bench);
  Products(bench);
  Experts(bench);
  Adapters(bench);
  Small(bench);
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main() { return millrace::bench::Main(); }
