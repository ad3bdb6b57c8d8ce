// Speed of paged attention on a GPU, in the heads of an 8 B model: rows behind
// 131072 keys in all, as one sequence or as many, and prompts. Steps are cut as
// the runner cuts them. Each line is the median of a few runs of several
// launches one after the other.
//
//   cuda_attention_bench [KEYS]
//
// The module is libmillrace_cuda.so beside the program, or the file that
// MILLRACE_CUDA_MODULE names.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "models/llm/cuda/step_message.h"
#include "tests/bench/kernels/on_gpu.h"

namespace millrace::bench {
namespace {

using namespace millrace::models;  // NOLINT: a program, not a header

constexpr int kLaunches = 10;

struct Heads {
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
  cuda::KvFormat format = cuda::KvFormat::kF16;
  cuda::KvCache Kv() const { return cuda::KvCacheOf(format, 1, kv_heads, dim); }
  const char* FormatName() const {
    return format == cuda::KvFormat::kF32   ? "f32"
           : format == cuda::KvFormat::kF16 ? "f16"
                                            : "int8";
  }
};

class Bench {
 public:
  Bench() : context_(OpenGpu()) {}
  const cuda::Device& device() const { return context_->device(); }

  // Microseconds of a launch: `seqs` sequences, each with the last `rows` of
  // `length` positions.
  double Time(const Heads& heads, int32_t seqs, int32_t length, int32_t rows,
              bool prompt) {
    const int32_t pages = (length + kPageTokens - 1) / kPageTokens;
    const StepLimits limits = {.max_tokens = seqs * rows,
                               .max_seqs = seqs,
                               .max_pages_per_seq = pages,
                               .max_samples = 1};
    BackendShape shape;
    shape.heads = heads.heads;
    shape.kv_heads = heads.kv_heads;
    shape.head_dim = heads.dim;
    StepMessage message(shape, limits, heads.format,
                        4 * device().multiprocessors, false);
    const size_t window = message.AddWindow(0);
    StepBatch batch(limits);
    batch.num_seqs = seqs;
    batch.num_tokens = seqs * rows;
    for (int32_t seq = 0; seq < seqs; ++seq) {
      const auto s = static_cast<size_t>(seq);
      batch.q_start()[s + 1] = (seq + 1) * rows;
      batch.kv_len()[s] = length;
      batch.prompt_rows()[s] = prompt ? rows : 0;
      for (int32_t i = 0; i < rows; ++i) {
        batch.positions()[static_cast<size_t>(seq * rows + i)] =
            length - rows + i;
      }
      for (int32_t i = 0; i < pages; ++i) {
        batch.pages(seq)[static_cast<size_t>(i)] = PageId{seq * pages + i};
      }
    }
    std::vector<int32_t> words(static_cast<size_t>(message.most_bytes() / 4));
    message.Fill(batch, {}, words.data());
    const CudaBuffer step = Fill(message.bytes(), true);
    Must(context_->Upload(step.data(), words.data(), message.bytes()));

    cuda::KvCache kv = heads.Kv();
    // d of int8 are floats, and any bytes are int8.
    const CudaBuffer pool = Fill(seqs * pages * kv.page_bytes,
                                 heads.format != cuda::KvFormat::kF16);
    kv.base = pool.data();
    const int64_t width = int64_t{heads.heads} * heads.dim;
    const CudaBuffer q = Fill(batch.num_tokens * width * 4, true);
    const CudaBuffer out = Fill(batch.num_tokens * width * 4, true);
    const int64_t partials =
        int64_t{StepMessage::kMostPartials} * heads.heads * 4;
    const CudaBuffer most = Fill(partials, true), sum = Fill(partials, true),
                     values = Fill(partials * heads.dim, true);
    const StepMessage::Work& work = message.work(window);
    const auto* at = step.as<int32_t>();
    const cuda::AttendArgs args = {
        .kv = kv,
        .heads = heads.heads,
        .q = q.as<float>(),
        .pitch = width,
        .row_positions = at + message.positions,
        .pages = at + message.pages,
        .items = reinterpret_cast<const cuda::AttendItem*>(at + work.items),
        .num_items = work.num_items,
        .prompt_items =
            reinterpret_cast<const cuda::AttendItem*>(at + work.prompt_items),
        .num_prompt_items = work.num_prompt_items,
        .merges = reinterpret_cast<const cuda::AttendMerge*>(at + work.merges),
        .num_merges = work.num_merges,
        .partial_max = most.as<float>(),
        .partial_sum = sum.as<float>(),
        .partial_out = values.as<float>(),
        .out = out.as<float>(),
        .out_pitch = width};
    return MedianMicros(*context_,
                        [&] {
                          for (int i = 0; i < kLaunches; ++i) {
                            Must(context_->Launched(context_->module().attend(
                                device().stream, args)));
                          }
                        }) /
           kLaunches;
  }

 private:
  CudaBuffer Fill(int64_t bytes, bool f32) {
    return RandomOnGpu(*context_, bytes, f32 ? kFloats : kHalves);
  }

  const std::shared_ptr<CudaContext> context_;
};

void Run(int32_t tokens) {
  Bench bench;
  std::printf("%s, %d multiprocessors\n", bench.device().name,
              bench.device().multiprocessors);
  for (const Heads& heads :
       {Heads{32, 8, 128}, Heads{64, 8, 128}, Heads{32, 32, 128},
        Heads{16, 8, 64}, Heads{8, 4, 256},
        Heads{32, 8, 128, cuda::KvFormat::kInt8},
        Heads{16, 8, 64, cuda::KvFormat::kInt8},
        Heads{8, 4, 256, cuda::KvFormat::kInt8},
        Heads{32, 8, 128, cuda::KvFormat::kF32}}) {
    double least = 0, most = 0;
    for (int32_t seqs = 1; seqs <= 128; seqs *= 4) {
      const int32_t length = tokens / seqs;
      const double us = bench.Time(heads, seqs, length, 1, false);
      const double bytes = static_cast<double>(heads.Kv().page_bytes) /
                           kPageTokens * seqs * length;
      std::printf(
          "rows    %2d/%2d heads of %3d %-4s %4d x %6d keys  %8.1f us "
          "%6.0f GB/s\n",
          heads.heads, heads.kv_heads, heads.dim, heads.FormatName(), seqs,
          length, us, bytes / us * 1e-3);
      least = seqs == 1 ? us : std::min(least, us);
      most = std::max(most, us);
    }
    std::printf("        greatest / least time: %.2f\n", most / least);
  }
  for (const Heads& heads :
       {Heads{32, 8, 128}, Heads{16, 8, 64}, Heads{8, 4, 256},
        Heads{32, 8, 128, cuda::KvFormat::kInt8}}) {
    struct Chunk {
      int32_t length, rows;
    };
    for (const Chunk& chunk :
         {Chunk{tokens / 64, tokens / 64}, Chunk{tokens / 16, tokens / 64},
          Chunk{tokens, tokens / 64}, Chunk{tokens, 32}}) {
      const double us = bench.Time(heads, 1, chunk.length, chunk.rows, true);
      const double macs = 2.0 * heads.heads * heads.dim * chunk.rows *
                          (chunk.length - (chunk.rows - 1) / 2.0);
      std::printf(
          "prompts %2d/%2d heads of %3d %-4s %5d rows, %6d keys  "
          "%8.1f us %6.1f TFLOP/s\n",
          heads.heads, heads.kv_heads, heads.dim, heads.FormatName(),
          chunk.rows, chunk.length, us, 2 * macs / us * 1e-6);
    }
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  millrace::bench::Run(argc > 1 ? std::max(std::atoi(argv[1]), 128) : 131072);
}
