// Load time: which rows go where, packing on every CPU, and the recording of
// phases. What a reader would guess wrong: weights are packed by plain threads,
// not by the compute team, because the team's worker 0 is whoever calls Run
// first, for ever, and that is not the thread that loads.
#include "models/backend/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace millrace::models {
namespace {

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

int TeamSize(const config::CpuSet& cpus) {
  return std::max<int>(1, static_cast<int>(cpus.size()));
}

}  // namespace

CpuBackend::CpuBackend(const CpuBackendOptions& options)
    : Backend(options.shape),
      limits_(options.limits),
      kernels_(*options.kernels),
      cpus_(options.cpus),
      compute_f32_(options.compute_f32),
      huge_pages_(options.huge_pages),
      q_dim_(int64_t{shape().heads} * shape().head_dim),
      qkv_dim_(q_dim_ + 2 * int64_t{shape().kv_heads} * shape().head_dim),
      padded_ffn_(RoundUp(shape().ffn, 32)),
      attention_(shape(), kernels_, TeamSize(cpus_)),
      kv_{options.kv_format, shape().layers, shape().kv_heads, shape().head_dim,
          nullptr},
      ld_logits_(RoundUp(shape().vocab, 16)),
      ld_y_(std::max({RoundUp(shape().hidden, 16), 2 * padded_ffn_, qkv_dim_})),
      pool_(cpus_, "llm") {
  const auto rows = static_cast<size_t>(limits_.max_tokens);
  const auto samples = static_cast<size_t>(limits_.max_samples);
  const auto hidden = static_cast<size_t>(shape().hidden);
  const auto half = static_cast<size_t>(shape().head_dim / 2);
  seq_of_row_.resize(rows);
  x_.resize(rows * hidden);
  x_kept_.resize(samples * hidden);
  qkv_.resize(rows * static_cast<size_t>(qkv_dim_));
  attn_.resize(rows * static_cast<size_t>(q_dim_));
  cos_.resize(rows * half);
  sin_.resize(rows * half);
  logits_.resize(samples * static_cast<size_t>(ld_logits_));
  const int64_t widest = std::max<int64_t>(shape().hidden, q_dim_);
  wide_act_.Allocate(std::max(limits_.max_tokens, limits_.max_samples), widest);
  ffn_act_.Allocate(std::max(limits_.max_tokens, limits_.max_samples),
                    padded_ffn_);
  private_.resize(static_cast<size_t>(TeamSize(cpus_)));
  for (Private& own : private_) {
    own.act.Allocate(kFewRows, widest);
    own.y.resize(static_cast<size_t>(kRowTile * ld_y_));
  }
}

CpuBackend::~CpuBackend() = default;

CpuLinear* CpuBackend::NewLinear(int64_t inputs, int64_t outputs,
                                 Rounding rounding) {
  linears_.push_back(std::make_unique<CpuLinear>(inputs, outputs, kernels_,
                                                 compute_f32_, rounding));
  return linears_.back().get();
}

const Linear* CpuBackend::DoAddLinear(const WeightRows& rows,
                                      Rounding rounding) {
  CpuLinear* linear = NewLinear(rows.k, rows.num_rows, rounding);
  linear->AddRows(rows);
  return linear;
}

const Linear* CpuBackend::DoAddQkv(const WeightRows& q, const WeightRows& k,
                                   const WeightRows& v,
                                   std::vector<float> bias_qkv,
                                   Rounding rounding) {
  CpuLinear* linear = NewLinear(q.k, qkv_dim_, rounding);
  linear->AddRows(q);
  const int64_t d = shape().head_dim;
  const auto head = [d](WeightRows rows, int64_t i) {
    rows.data += i * d * rows.row_bytes;
    rows.num_rows = d;
    return rows;
  };
  for (int64_t i = 0; i < shape().kv_heads; ++i) {
    linear->AddRows(head(k, i));
    linear->AddRows(head(v, i));
  }
  if (!bias_qkv.empty()) {
    linear->bias.resize(bias_qkv.size());
    const float* from = bias_qkv.data();
    float* to = linear->bias.data();
    std::copy(from, from + q_dim_, to);
    for (int64_t i = 0; i < shape().kv_heads; ++i) {
      const float* bias_k = from + q_dim_ + i * d;
      const float* bias_v = bias_k + shape().kv_heads * d;
      std::copy(bias_k, bias_k + d, to + q_dim_ + 2 * i * d);
      std::copy(bias_v, bias_v + d, to + q_dim_ + (2 * i + 1) * d);
    }
  }
  return linear;
}

const Linear* CpuBackend::DoAddGateUp(const WeightRows& gate,
                                      const WeightRows& up, Rounding rounding) {
  CpuLinear* linear = NewLinear(gate.k, 2 * int64_t{shape().ffn}, rounding);
  linear->AddRows(gate);
  linear->AddPadding(padded_ffn_ - shape().ffn);
  linear->AddRows(up);
  return linear;
}

Status CpuBackend::PackWeights(const std::function<void(double)>& progress) {
  int64_t bytes = 0;
  for (const auto& linear : linears_) {
    bytes += linear->packed_bytes();
  }
  ASSIGN_OR_RETURN(weights_,
                   HugeBuffer::Allocate(bytes, huge_pages_, "weights"));
  for (Private& own : private_) {
    const bool twice =
        std::any_of(linears_.begin(), linears_.end(),
                    [](const auto& linear) { return linear->rounds_twice(); });
    own.terms.resize(twice ? static_cast<size_t>(2 * kRowTile * kTermColumns)
                           : 0);
  }
  std::byte* at = weights_.data();
  for (const auto& linear : linears_) {
    linear->Place(at);
    at += linear->packed_bytes();
  }

  // Work is handed out in runs of groups, so that threads write apart.
  constexpr int64_t kRun = 16;
  struct Run {
    CpuLinear* linear;
    int64_t group;
  };
  std::vector<Run> runs;
  for (const auto& linear : linears_) {
    for (int64_t g = 0; g < linear->num_groups(); g += kRun) {
      runs.push_back({linear.get(), g});
    }
  }
  std::atomic<size_t> next{0};
  const auto pack = [&](bool reports) {
    for (;;) {
      // Relaxed: a run is claimed once; the joins publish what was written.
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= runs.size()) return;
      const int64_t end =
          std::min(runs[i].group + kRun, runs[i].linear->num_groups());
      for (int64_t g = runs[i].group; g < end; ++g) {
        runs[i].linear->PackGroup(g);
      }
      if (reports && progress) {
        progress(static_cast<double>(i + 1) / static_cast<double>(runs.size()));
      }
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < TeamSize(cpus_); ++i) helpers.emplace_back(pack, false);
  } catch (const std::system_error&) {
    // Fewer helpers: slower, nothing else.
  }
  pack(true);
  for (std::thread& helper : helpers) helper.join();
  if (progress) progress(1.0);
  return OkStatus();
}

void CpuBackend::BindKv(std::byte* pages, int32_t num_pages) {
  CHECK(pages != nullptr && num_pages > 0, "a KV pool holds pages");
  kv_.base = pages;
}

// ---- recording ----

CpuBackend::Command& CpuBackend::Record(
    void (CpuBackend::*run)(Worker&, const Command&)) {
  Command command{};
  command.run = run;
  command.sample_rows = keeping_;
  command.gathers_rows = keep_is_fresh_;
  keep_is_fresh_ = false;
  commands_.push_back(command);
  return commands_.back();
}

void CpuBackend::DoEmbed(const Linear& table) {
  Record(&CpuBackend::RunEmbed).linear = static_cast<const CpuLinear*>(&table);
}

void CpuBackend::DoNormLinear(Vector norm, const Linear& qkv) {
  CHECK(!keeping_, "keys and values are wanted of every row");
  Command& command = Record(&CpuBackend::RunNormLinear);
  command.norm = norm.data();
  command.linear = static_cast<const CpuLinear*>(&qkv);
}

void CpuBackend::DoRopeWriteKv(int32_t layer) {
  CHECK(
      !commands_.empty() && commands_.back().run == &CpuBackend::RunNormLinear,
      "q, k and v are rotated as soon as they are known");
  // With enough heads the workers' shares of the projection are whole heads,
  // and each rotates and stores its own without a barrier between.
  const int32_t team = pool_.size();
  const int32_t units = shape().heads + 2 * shape().kv_heads;
  if (team * 3 > units) {
    Record(&CpuBackend::RunRopeWriteKv).layer = layer;
    return;
  }
  commands_.back().ropes = true;
  commands_.back().layer = layer;
  q_bounds_.assign(1, 0);
  kv_bounds_.assign(1, 0);
  for (int32_t w = 1; w <= team; ++w) {
    const int32_t until = units * w / team;
    q_bounds_.push_back(std::min(until, shape().heads));
    kv_bounds_.push_back(std::max(0, (until - shape().heads) / 2));
  }
}

void CpuBackend::DoAttend(int32_t layer) {
  Record(&CpuBackend::RunAttend).layer = layer;
}

void CpuBackend::DoKeepSampleRows() { keeping_ = keep_is_fresh_ = true; }

void CpuBackend::DoLinearResidual(Activation input, const Linear& w) {
  Command& command = Record(&CpuBackend::RunLinearResidual);
  command.linear = static_cast<const CpuLinear*>(&w);
  command.input = input;
  CHECK(!command.gathers_rows || input == Activation::kAttention,
        "rows are given up right after attention");
  if (input == Activation::kFfn) {
    Command& producer = commands_[commands_.size() - 2];
    CHECK(producer.run == &CpuBackend::RunNormGateUpAct,
          "ffn rows are read as soon as they are known");
    producer.reader = command.linear;
  }
}

void CpuBackend::DoNormGateUpAct(Vector norm, const Linear& gate_up) {
  Command& command = Record(&CpuBackend::RunNormGateUpAct);
  CHECK(!command.gathers_rows, "rows are given up right after attention");
  command.norm = norm.data();
  command.linear = static_cast<const CpuLinear*>(&gate_up);
}

void CpuBackend::DoHead(Vector norm, const Linear& w) {
  CHECK(keeping_, "only rows that sample go through the head");
  Command& command = Record(&CpuBackend::RunHead);
  command.norm = norm.data();
  command.linear = static_cast<const CpuLinear*>(&w);
}

}  // namespace millrace::models
