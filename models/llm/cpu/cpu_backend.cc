// Load time: which rows go where, and the recording of phases.
#include "models/llm/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "models/llm/prompt_embeddings.h"

namespace millrace::models {
namespace {

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

CpuBackend::CpuBackend(const CpuBackendOptions& options)
    : Backend(options.shape),
      limits_(options.limits),
      kernels_(*options.kernels),
      compute_f32_(options.compute_f32),
      wants_prompts_in_bf16_(options.prompts_in_bf16 &&
                             kernels_.prompt_attend != nullptr),
      huge_pages_(options.huge_pages),
      q_dim_(int64_t{shape().heads} * shape().head_dim),
      qkv_dim_(q_dim_ + 2 * int64_t{shape().kv_heads} * shape().head_dim),
      padded_ffn_(RoundUp(shape().ffn, 32)),
      rope_dims_(shape().rope_dims > 0 ? shape().rope_dims : shape().head_dim),
      attention_(shape(), kernels_, options.team->size()),
      kv_{options.kv_format, shape().kv_layers(), shape().kv_heads,
          shape().head_dim, nullptr},
      ld_logits_(
          RoundUp(shape().hidden_rows ? shape().hidden : shape().vocab, 16)),
      ld_y_(std::max({RoundUp(shape().hidden, 16), 2 * padded_ffn_, qkv_dim_,
                      2 * RoundUp(shape().expert_ffn, 32)})),
      group_(options.group),
      pool_(options.team) {
  // First of all, as the other ranks wait for it.
  if (group_ != nullptr) MakeBranch();
  const auto rows = static_cast<size_t>(limits_.max_tokens);
  const auto samples = static_cast<size_t>(limits_.max_samples);
  const auto hidden = static_cast<size_t>(shape().hidden);
  const auto half = static_cast<size_t>(rope_dims_ / 2);
  seq_of_row_.resize(rows);
  prompt_of_row_.resize(rows);
  x_.resize(rows * hidden);
  x_kept_.resize(samples * hidden);
  qkv_.resize(rows * static_cast<size_t>(qkv_dim_));
  attn_.resize(rows * static_cast<size_t>(q_dim_));
  cos_.resize(shape().ropes.size() * rows * half);
  sin_.resize(shape().ropes.size() * rows * half);
  logits_.resize(samples * static_cast<size_t>(ld_logits_));
  const int64_t widest = std::max<int64_t>(shape().hidden, q_dim_);
  wide_act_.Allocate(std::max(limits_.max_tokens, limits_.max_samples), widest);
  ffn_act_.Allocate(std::max(limits_.max_tokens, limits_.max_samples),
                    padded_ffn_);
  private_.resize(static_cast<size_t>(pool_->size()));
  for (Private& own : private_) {
    own.act.Allocate(kMostFewRows, widest);
    own.row.resize(static_cast<size_t>(
        std::max({widest, padded_ffn_, RoundUp(shape().expert_ffn, 32)})));
    own.y.resize(static_cast<size_t>(
        std::max(kRowTile * ld_y_,
                 wants_prompts_in_bf16_ ? kPromptTile * kPromptColumns : 0)));
  }
}

CpuBackend::~CpuBackend() = default;

CpuLinear* CpuBackend::NewLinear(int64_t inputs, int64_t outputs,
                                 Rounding rounding) {
  linears_.push_back(std::make_unique<CpuLinear>(inputs, outputs, kernels_,
                                                 compute_f32_, rounding));
  return linears_.back().get();
}

const Linear* CpuBackend::DoAddLinear(const WeightRows& rows, Rounding rounding,
                                      std::vector<float> bias) {
  CpuLinear* linear = NewLinear(rows.k, rows.num_rows, rounding);
  linear->AddRows(rows);
  linear->bias = std::move(bias);
  return linear;
}

const Linear* CpuBackend::DoAddQkv(const WeightRows& q, const WeightRows& k,
                                   const WeightRows& v,
                                   std::vector<float> bias_qkv,
                                   Rounding rounding) {
  CpuLinear* linear = NewLinear(q.k, qkv_dim_, rounding);
  linear->AddRows(q);
  const int64_t d = shape().head_dim;
  for (int64_t i = 0; i < shape().kv_heads; ++i) {
    linear->AddRows(k.Part(i * d, d));
    linear->AddRows(v.Part(i * d, d));
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
                                      const WeightRows& up, Rounding rounding,
                                      std::span<const float> bias_gate,
                                      std::span<const float> bias_up) {
  CpuLinear* linear = NewLinear(gate.k, 2 * gate.num_rows, rounding);
  linear->AddRows(gate);
  const int64_t padded = RoundUp(gate.num_rows, 32);
  linear->AddPadding(padded - gate.num_rows);
  linear->AddRows(up);
  if (!bias_gate.empty()) {
    linear->bias.resize(static_cast<size_t>(2 * padded));
    std::copy(bias_gate.begin(), bias_gate.end(), linear->bias.begin());
    std::copy(bias_up.begin(), bias_up.end(), linear->bias.begin() + padded);
  }
  return linear;
}

const Linear* CpuBackend::DoAddUp(const WeightRows& up, std::vector<float> bias,
                                  Rounding rounding) {
  CpuLinear* linear = NewLinear(up.k, shape().ffn, rounding);
  linear->AddRows(up);
  linear->AddPadding(padded_ffn_ - shape().ffn);
  linear->bias = std::move(bias);
  if (!linear->bias.empty()) {
    linear->bias.resize(static_cast<size_t>(padded_ffn_));
  }
  ones_.assign(static_cast<size_t>(padded_ffn_), 1.0f);
  return linear;
}

void CpuBackend::BindKv(std::byte* pages, int32_t num_pages) {
  CHECK(pages != nullptr && num_pages > 0, "a KV pool holds pages");
  kv_.base = pages;
}

// ---- recording ----

CpuBackend::Command& CpuBackend::Record(
    StepPhase phase, void (CpuBackend::*run)(Worker&, const Command&)) {
  Command command{};
  command.phase = phase;
  command.run = run;
  command.sample_rows = keeping_;
  command.block = num_blocks_ - 1;
  command.gathers_rows = keep_is_fresh_;
  keep_is_fresh_ = false;
  commands_.push_back(command);
  return commands_.back();
}

void CpuBackend::DoEmbed(const Linear& table, const EmbedOptions& options) {
  Command& command = Record(StepPhase::kEmbed, &CpuBackend::RunEmbed);
  command.linear = static_cast<const CpuLinear*>(&table);
  command.scale = options.scale;
  command.positions = static_cast<const CpuLinear*>(options.positions);
}

void CpuBackend::DoNormLinear(const Norm& norm, const Linear& qkv) {
  CHECK(!keeping_, "keys and values are kept of every row");
  ++num_blocks_;
  Command& command = Record(StepPhase::kQkv, &CpuBackend::RunNormLinear);
  command.norm = norm;
  command.linear = static_cast<const CpuLinear*>(&qkv);
}

void CpuBackend::DoRopeWriteKv(int32_t layer, const RopeOptions& options) {
  CHECK(
      !commands_.empty() && commands_.back().run == &CpuBackend::RunNormLinear,
      "q, k and v are rotated as soon as they are known");
  // With enough heads the workers' shares of the projection are whole heads,
  // and each rotates and stores its own without a barrier between.
  const int32_t team = pool_->size();
  const int32_t units = shape().heads + 2 * shape().kv_heads;
  if (static_cast<int32_t>(options.q_norm.size()) > shape().head_dim) {
    // One norm of all heads.
    Command& command = Record(StepPhase::kQkv, &CpuBackend::RunRopeWholeRows);
    command.layer = layer;
    command.place = shape().kv_place(layer);
    command.rope = options;
    return;
  }
  if (team * 3 > units) {
    Command& command = Record(StepPhase::kQkv, &CpuBackend::RunRopeWriteKv);
    command.layer = layer;
    command.place = shape().kv_place(layer);
    command.rope = options;
    return;
  }
  commands_.back().ropes = true;
  commands_.back().layer = layer;
  commands_.back().place = shape().kv_place(layer);
  commands_.back().rope = options;
  // A head of k and v is worth two of q to multiply and, in steps of many
  // sequences, about two more to store: its page is in no cache. So those are
  // shared out first, and q evens out what they leave.
  constexpr int32_t kKvCost = 4;
  const int32_t kv_heads = shape().kv_heads;
  const int32_t cost = shape().heads + kKvCost * kv_heads;
  q_bounds_.assign(1, 0);
  kv_bounds_.assign(1, 0);
  for (int32_t w = 1; w <= team; ++w) {
    kv_bounds_.push_back(kv_heads * w / team);
    const int32_t until = cost * w / team - kKvCost * kv_bounds_.back();
    q_bounds_.push_back(std::clamp(until, q_bounds_.back(), shape().heads));
  }
}

void CpuBackend::DoAttend(int32_t layer, const AttendOptions& options) {
  Command& command = Record(StepPhase::kAttention, &CpuBackend::RunAttend);
  command.layer = layer;
  command.place = shape().kv_place(layer);
  command.attend = attention_.AddVariant(options);
}

void CpuBackend::DoKeepSampleRows() { keeping_ = keep_is_fresh_ = true; }

void CpuBackend::DoLinearResidual(Branch branch, const Linear& w,
                                  const ResidualOptions& options) {
  Command& command = Record(
      branch == Branch::kFfn ? StepPhase::kDown : StepPhase::kAttentionOutput,
      &CpuBackend::RunLinearResidual);
  command.linear = static_cast<const CpuLinear*>(&w);
  command.branch = branch;
  command.scale = options.scale;
  command.post_norm = options.post_norm;
  command.waits = options.waits;
  command.adds_waiting = std::exchange(branch_waits_, options.waits);
  CHECK(!options.waits || group_ == nullptr, "ranks add one branch at a time");
  if (!options.post_norm.weight.empty() || options.waits) MakeBranch();
  CHECK(!command.gathers_rows || branch == Branch::kAttention,
        "rows are given up right after attention");
  if (branch == Branch::kAttention) {
    const Command& producer = commands_[commands_.size() - 2];
    CHECK(producer.run == &CpuBackend::RunAttend,
          "attention rows are read as soon as they are known");
    command.attend = producer.attend;
  } else {
    Command& producer = commands_[commands_.size() - 2];
    CHECK(producer.run == &CpuBackend::RunNormGateUpAct,
          "ffn rows are read as soon as they are known");
    producer.reader = command.linear;
  }
  if (group_ == nullptr) return;
  Command sum = command;
  sum.run = &CpuBackend::RunAllReduce;
  sum.phase = StepPhase::kAllReduce;
  sum.linear = nullptr;
  commands_.push_back(sum);
}

void CpuBackend::DoNormGateUpAct(const Norm& norm, const Linear& gate_up,
                                 Activation activation) {
  Command& command = Record(StepPhase::kGateUp, &CpuBackend::RunNormGateUpAct);
  command.gated = gate_up.outputs() != shape().ffn;
  command.activation = activation;
  CHECK(!command.gathers_rows, "rows are given up right after attention");
  command.norm = norm;
  command.linear = static_cast<const CpuLinear*>(&gate_up);
}

void CpuBackend::DoHead(const Norm& norm, const Linear& w,
                        const HeadOptions& options) {
  CHECK(keeping_, "only rows that sample go through the head");
  Command& command = Record(StepPhase::kHead, &CpuBackend::RunHead);
  command.scale = options.scale;
  command.softcap = options.softcap;
  command.norm = norm;
  command.linear = static_cast<const CpuLinear*>(&w);
}

void CpuBackend::DoHiddenRows(const Norm& norm) {
  CHECK(keeping_, "only rows that sample leave");
  Record(StepPhase::kHead, &CpuBackend::RunHiddenRows).norm = norm;
}

bool CpuBackend::ChoosePromptWay() {
  prompts_in_bf16_ =
      wants_prompts_in_bf16_ &&
      std::all_of(commands_.begin(), commands_.end(), [](const Command& each) {
        return each.linear == nullptr || each.sample_rows ||
               each.phase == StepPhase::kEmbed ||
               each.linear->prompts_in_bf16();
      });
  if (!prompts_in_bf16_) {
    for (const auto& linear : linears_) linear->ChoosePromptWay(false);
  }
  attention_.set_prompts_on_tiles(prompts_in_bf16_);
  return prompts_in_bf16_;
}

void CpuBackend::SetEmbeddings(
    int32_t slot, std::shared_ptr<const PromptEmbeddings> embeddings) {
  CHECK(embeddings == nullptr || embeddings->width == shape().hidden,
        "embeddings of a prompt have the model's width");
  if (embeddings == nullptr && embeddings_of_slot_.empty()) return;
  embeddings_of_slot_.resize(static_cast<size_t>(limits_.max_seqs));
  embeddings_of_slot_[static_cast<size_t>(slot)] = std::move(embeddings);
}

const float* CpuBackend::EmbeddingOf(const StepBatch& batch,
                                     int64_t row) const {
  if (embeddings_of_slot_.empty()) return nullptr;
  const int32_t seq = seq_of_row_[static_cast<size_t>(row)];
  const auto& given =
      embeddings_of_slot_[static_cast<size_t>(batch.slot()[seq])];
  return given == nullptr ? nullptr : given->RowAt(batch.positions()[row]);
}

}  // namespace millrace::models
