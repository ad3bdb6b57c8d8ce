// Load time: weights, constants, memory on the device.
#include "models/llm/cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {
namespace {

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Blocks that keep a multiprocessor busy while others wait for memory.
constexpr int32_t kBlocksOfMultiprocessor = 4;

// Rows are rows of a grid, which has no more.
constexpr int32_t kMostRows = 65535;

}  // namespace

int64_t CudaPageBytes(const BackendShape& shape, cuda::KvFormat format) {
  return cuda::KvCacheOf(format, shape.layers, shape.kv_heads, shape.head_dim)
      .page_bytes;
}

int64_t CudaStepBytes(const BackendShape& shape, const StepLimits& limits) {
  const int64_t q = int64_t{shape.heads} * shape.head_dim;
  const int64_t qkv = q + 2 * int64_t{shape.kv_heads} * shape.head_dim;
  const int64_t rows = std::max(limits.max_tokens, limits.max_samples);
  // That of a shared expert, if there is one.
  const int64_t ffn = std::max(shape.ffn, shape.expert_ffn);
  const int64_t widest = std::max<int64_t>({shape.hidden, ffn, q});
  // x, its norm and a branch; q, k, v; attention; gate and up; what comes of
  // them; rounded rows of the widest.
  const int64_t of_row = 3 * int64_t{shape.hidden} + qkv + q + 3 * ffn + widest;
  // Of a rank: its own logits, then those of all, with room for one group more.
  const int64_t of_group =
      shape.logits.count() == 0
          ? 0
          : shape.logits.count() + int64_t{shape.vocab} + 2 * kLogitGroup;
  const int64_t of_sample =
      int64_t{shape.hidden} + q + LogitsWidth(shape) + of_group;
  const int64_t of_partial =
      int64_t{shape.heads} * (int64_t{shape.head_dim} + 2);
  // Of an expert: gate and up, what comes of them and its rounded row, what is
  // added up, and weighted rows.
  const int64_t uses = rows * shape.experts_used;
  const int64_t of_use =
      4 * int64_t{shape.expert_ffn} + 2 * int64_t{shape.hidden};
  return 4 * (rows * of_row + limits.max_samples * of_sample +
              StepMessage::kMostPartials * of_partial + uses * of_use) +
         CudaLoraBytes(shape, limits);
}

CudaBackend::CudaBackend(const CudaBackendOptions& options)
    : Backend(options.shape),
      limits_(options.limits),
      context_(options.context),
      module_(context_->module()),
      gpus_(options.gpus),
      blas_(options.blas),
      kv_format_(options.kv_format),
      compute_(options.compute),
      ahead_(options.ahead && options.gpus == nullptr),
      threads_(options.threads),
      q_dim_(int64_t{shape().heads} * shape().head_dim),
      qkv_dim_(q_dim_ + 2 * int64_t{shape().kv_heads} * shape().head_dim),
      message_(shape(), limits_, kv_format_,
               kBlocksOfMultiprocessor * context_->device().multiprocessors,
               options.graphs),
      graphs_(*context_, gpus_ != nullptr),
      launched_({Launched(*context_), Launched(*context_)}) {
  for (const RopeTable& rope : shape().ropes) {
    frequencies_.push_back(AddConstant(rope.frequencies));
  }
}

CudaBackend::~CudaBackend() = default;

CudaBackend::CudaLinear* CudaBackend::NewLinear(
    int64_t inputs, int64_t outputs, Rounding rounding,
    std::span<const WeightRows> parts, std::span<const float> bias) {
  linears_.push_back(std::make_unique<CudaLinear>(inputs, outputs, rounding));
  CudaLinear* linear = linears_.back().get();
  int64_t first = 0;
  for (const WeightRows& rows : parts) {
    if (rows.num_rows == 0) continue;
    const GgmlType type = rows.quantize.value_or(rows.type);
    const cuda::WeightFormat format = CudaFormatOf(type);
    linear->parts.push_back({.source = rows,
                             .type = type,
                             .format = format,
                             .first_output = first,
                             .row_bytes = CudaRowBytes(format, inputs)});
    first += rows.num_rows;
  }
  if (!bias.empty()) linear->bias = AddConstant(bias);
  return linear;
}

const Linear* CudaBackend::DoAddLinear(const WeightRows& rows,
                                       Rounding rounding,
                                       std::vector<float> bias) {
  return NewLinear(rows.k, rows.num_rows, rounding, std::array{rows}, bias);
}

const Linear* CudaBackend::DoAddQkv(const WeightRows& q, const WeightRows& k,
                                    const WeightRows& v,
                                    std::vector<float> bias_qkv,
                                    Rounding rounding) {
  return NewLinear(q.k, qkv_dim_, rounding, std::array{q, k, v}, bias_qkv);
}

const Linear* CudaBackend::DoAddGateUp(const WeightRows& gate,
                                       const WeightRows& up, Rounding rounding,
                                       std::span<const float> bias_gate,
                                       std::span<const float> bias_up) {
  std::vector<float> bias(bias_gate.begin(), bias_gate.end());
  bias.insert(bias.end(), bias_up.begin(), bias_up.end());
  return NewLinear(gate.k, 2 * gate.num_rows, rounding, std::array{gate, up},
                   bias);
}

const Linear* CudaBackend::DoAddUp(const WeightRows& up,
                                   std::vector<float> bias, Rounding rounding) {
  return NewLinear(up.k, up.num_rows, rounding, std::array{up}, bias);
}

const Linear* CudaBackend::DoAddRouter(const WeightRows& router,
                                       const WeightRows& last,
                                       std::vector<float> bias) {
  CudaLinear* linear =
      NewLinear(router.k, router.num_rows + last.num_rows, Rounding::kTwice,
                std::array{router, last}, bias);
  linear->exact = true;
  return linear;
}

int64_t CudaBackend::AddConstant(std::span<const float> values) {
  const auto at = static_cast<int64_t>(constants_.size());
  constants_.insert(constants_.end(), values.begin(), values.end());
  constants_.resize(
      static_cast<size_t>(RoundUp(static_cast<int64_t>(constants_.size()), 8)));
  return at;
}

CudaBackend::NormAt CudaBackend::AddNorm(const Norm& norm) {
  NormAt at;
  if (!norm.weight.empty()) at.weight = AddConstant(norm.weight);
  if (!norm.bias.empty()) at.bias = AddConstant(norm.bias);
  return at;
}

// ---- weights ----

void CudaBackend::CudaLinear::Part::Pack(int64_t row,
                                         std::byte* weights) const {
  const std::byte* from = source.data + row * source.row_bytes;
  std::byte* to = weights + at + row * row_bytes;
  if (type == source.type) return PackCudaRow(type, from, source.k, to);
  std::vector<float> values(static_cast<size_t>(source.k));
  std::vector<std::byte> rounded(static_cast<size_t>(
      source.k / InfoOf(type).block_values * InfoOf(type).block_bytes));
  CHECK(DequantizeRow(source.type, from, source.k, values.data()) &&
            QuantizeRow(type, values.data(), source.k, rounded.data()),
        "weights are quantised from floats to a type that exists");
  PackCudaRow(type, rounded.data(), source.k, to);
}

int64_t CudaBackend::PlaceWeights() {
  weight_bytes_ = 0;
  for (const auto& linear : linears_) {
    for (CudaLinear::Part& part : linear->parts) {
      part.at = weight_bytes_;
      weight_bytes_ += part.row_bytes * part.source.num_rows;
    }
  }
  packed_.assign(static_cast<size_t>(weight_bytes_), std::byte{0});
  return weight_bytes_;
}

Status CudaBackend::PackWeights(const std::function<void(double)>& progress) {
  PlaceWeights();
  // Runs of rows, handed out to threads, each to one.
  constexpr int64_t kRun = 64;
  struct Run {
    const CudaLinear::Part* part;
    int64_t first;
  };
  std::vector<Run> runs;
  for (const auto& linear : linears_) {
    for (const CudaLinear::Part& part : linear->parts) {
      for (int64_t row = 0; row < part.source.num_rows; row += kRun) {
        runs.push_back({&part, row});
      }
    }
  }
  std::atomic<size_t> next{0};
  const auto work = [&](bool reports) {
    // Relaxed: an index is claimed once; the joins publish what was written.
    for (size_t i = 0;
         (i = next.fetch_add(1, std::memory_order_relaxed)) < runs.size();) {
      const Run& run = runs[i];
      const int64_t end = std::min(run.first + kRun, run.part->source.num_rows);
      for (int64_t row = run.first; row < end; ++row) {
        run.part->Pack(row, packed_.data());
      }
      if (reports && progress) {
        progress(static_cast<double>(i + 1) / static_cast<double>(runs.size()));
      }
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int32_t i = 1; i < threads_; ++i) helpers.emplace_back(work, false);
  } catch (const std::system_error&) {
    // Fewer helpers: slower, nothing else.
  }
  work(true);
  for (std::thread& helper : helpers) helper.join();
  if (progress) progress(1.0);
  return OkStatus();
}

std::string CudaBackend::PackedLayout() const {
  // FNV-1a, 64 bits, of shapes and formats in order.
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ (static_cast<uint64_t>(value) >> shift & 255)) *
             0x100000001b3;
    }
  };
  for (const auto& linear : linears_) {
    for (const CudaLinear::Part& part : linear->parts) {
      add(linear->inputs());
      add(part.source.num_rows);
      add(static_cast<int64_t>(part.source.type));
      add(static_cast<int64_t>(part.type));
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(hash));
  return std::string("cuda-planes/") + text;
}

Status CudaBackend::TakePacked(std::span<const std::byte> bytes,
                               const std::function<void(double)>& progress) {
  if (PlaceWeights() != static_cast<int64_t>(bytes.size())) {
    return InvalidArgument("packed weights have " +
                           std::to_string(bytes.size()) + " bytes; expected " +
                           std::to_string(weight_bytes_));
  }
  std::memcpy(packed_.data(), bytes.data(), bytes.size());
  if (progress) progress(1.0);
  return OkStatus();
}

// ---- memory on the device ----

Status CudaBackend::AllocateRows(RowsOnDevice& rows, int64_t count,
                                 int64_t width) {
  rows.pitch = RoundUp(width, 8);
  ASSIGN_OR_RETURN(rows.memory, context_->Allocate(count * rows.pitch * 4,
                                                   "the buffers of a step"));
  return OkStatus();
}

Status CudaBackend::Bind(int32_t num_pages) {
  if (shape().head_dim > cuda::kMostHeadDim || shape().head_dim % 2 != 0) {
    unsupported_ = "heads of " + std::to_string(shape().head_dim) + " values";
  }
  if (std::max(int64_t{shape().hidden}, q_dim_) > cuda::kMostNormWidth) {
    unsupported_ = "norms of more than " +
                   std::to_string(cuda::kMostNormWidth) + " values";
  }
  if (!unsupported_.empty()) {
    return Unimplemented("there are no CUDA kernels for " + unsupported_ +
                         "; set device to cpu")
        .At("device");
  }
  if (limits_.max_tokens > kMostRows) {
    return InvalidArgument("max_num_batched_tokens is " +
                           std::to_string(limits_.max_tokens) +
                           ", a GPU takes " + std::to_string(kMostRows) +
                           " at most; lower it")
        .At("max_num_batched_tokens");
  }
  const int64_t rows = limits_.max_tokens;
  const int64_t samples = limits_.max_samples;
  const int64_t both = std::max(rows, samples);
  const int64_t hidden = shape().hidden;
  ASSIGN_OR_RETURN(weights_, context_->Allocate(weight_bytes_, "the weights"));
  RETURN_IF_ERROR(
      context_->Upload(weights_.data(), packed_.data(), weight_bytes_));
  const auto constant_bytes = static_cast<int64_t>(constants_.size() * 4);
  ASSIGN_OR_RETURN(constants_on_device_,
                   context_->Allocate(constant_bytes + 16, "the norms"));
  RETURN_IF_ERROR(context_->Upload(constants_on_device_.data(),
                                   constants_.data(), constant_bytes));
  ASSIGN_OR_RETURN(
      pages_, context_->Allocate(num_pages * CudaPageBytes(shape(), kv_format_),
                                 "keys and values"));
  RETURN_IF_ERROR(AllocateRows(x_, rows, hidden));
  RETURN_IF_ERROR(AllocateRows(x_kept_, samples, hidden));
  RETURN_IF_ERROR(AllocateRows(normed_, both, hidden));
  RETURN_IF_ERROR(AllocateRows(qkv_, rows, qkv_dim_));
  RETURN_IF_ERROR(AllocateRows(attn_, rows, q_dim_));
  RETURN_IF_ERROR(AllocateRows(attn_kept_, samples, q_dim_));
  const int64_t ffn = std::max(int64_t{shape().ffn}, SharedFfn());
  RETURN_IF_ERROR(AllocateRows(gate_up_, both, 2 * ffn));
  RETURN_IF_ERROR(AllocateRows(ffn_, both, ffn));
  int64_t rounded_bytes = 0;  // of a row
  for (const auto& linear : linears_) {
    for (const CudaLinear::Part& part : linear->parts) {
      for (const bool prompt : {false, true}) {
        const cuda::InputFormat input = InputOf(*linear, part.format, prompt);
        if (input == cuda::InputFormat::kF32) continue;
        rounded_bytes =
            std::max(rounded_bytes,
                     cuda::RoundedBytes(input, CudaInputs(linear->inputs())));
      }
    }
  }
  RETURN_IF_ERROR(BindExperts(both));
  const int64_t all_rounded_bytes =
      (both + BlasRows()) *
      std::max(rounded_bytes, UsedExperts() * RoundedUseBytes());
  if (all_rounded_bytes > 0) {
    ASSIGN_OR_RETURN(rounded_, context_->Allocate(all_rounded_bytes,
                                                  "the buffers of a step"));
  }
  RETURN_IF_ERROR(BindBlas());
  RETURN_IF_ERROR(BindAdapters());
  RETURN_IF_ERROR(BindGroup());
  if (has_branch_) RETURN_IF_ERROR(AllocateRows(branch_, both, hidden));
  RETURN_IF_ERROR(AllocateRows(logits_, samples, LogitsWidth(shape())));

  const std::string what = "the buffers of a step";
  const int64_t partials = StepMessage::kMostPartials * int64_t{shape().heads};
  ASSIGN_OR_RETURN(partial_max_, context_->Allocate(partials * 4, what));
  ASSIGN_OR_RETURN(partial_sum_, context_->Allocate(partials * 4, what));
  ASSIGN_OR_RETURN(partial_out_,
                   context_->Allocate(partials * 4 * shape().head_dim, what));
  ASSIGN_OR_RETURN(
      head_parts_,
      context_->Allocate(samples * cuda::PartsOfHead(shape().vocab) *
                             static_cast<int64_t>(sizeof(cuda::Greatest)),
                         what));
  const int64_t id_bytes = (num_counts() + samples) * 4;
  ASSIGN_OR_RETURN(ids_, context_->Allocate(id_bytes, what));
  ASSIGN_OR_RETURN(step_, context_->Allocate(message_.most_bytes(), what));
  for (Launched& launched : launched_) {
    ASSIGN_OR_RETURN(launched.message,
                     context_->AllocateHost(message_.most_bytes(), what));
    ASSIGN_OR_RETURN(launched.ids, context_->AllocateHost(id_bytes, what));
    ASSIGN_OR_RETURN(launched.end, context_->NewEvent());
  }
  ASSIGN_OR_RETURN(logits_on_host_,
                   context_->AllocateHost(samples * logits_.pitch * 4, what));
  RETURN_IF_ERROR(context_->Wait());
  std::vector<std::byte>().swap(packed_);
  std::vector<float>().swap(constants_);
  return OkStatus();
}

}  // namespace millrace::models
