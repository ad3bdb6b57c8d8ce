// Run time: the phases. Between two barriers every float is written by one
// worker only; columns of a matrix's outputs are cut in whole groups of 16 and
// rows in whole rows, so no cut can change an order of summation.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// Seconds between laps; a lap costs some 25 ns, a step has a few hundred.
class Stopwatch {
 public:
  double Lap() {
    const Time now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now))
        .count();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  Time last_ = std::chrono::steady_clock::now();
};

}  // namespace

Status CpuBackend::Run(const StepBatch& batch, const AfterStep& after) {
  CHECK(kv_.base != nullptr, "a KV pool is bound before the first step");
  CHECK(batch.num_tokens <= limits_.max_tokens &&
            batch.num_samples <= limits_.max_samples &&
            batch.num_seqs <= limits_.max_seqs,
        "a step keeps its limits");
  batch_ = &batch;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    std::fill(seq_of_row_.begin() + batch.q_start()[seq],
              seq_of_row_.begin() + batch.q_start()[seq + 1], seq);
  }
  FindRuns(batch);
  attention_.Plan(batch);
  BeginAccount();
  pool_->Run([&](Worker& worker) {
    Stopwatch watch;
    for (const Command& command : commands_) {
      (this->*command.run)(worker, command);
      if (worker.index() == 0) {
        account_.seconds[static_cast<size_t>(command.phase)] += watch.Lap();
      }
    }
    if (after) after(worker.index(), worker.count());
    if (worker.index() == 0) {
      account_.seconds[static_cast<size_t>(StepPhase::kSample)] += watch.Lap();
    }
  });
  return OkStatus();
}

std::span<float> CpuBackend::logits(int32_t sample) {
  return {logits_.data() + sample * ld_logits_,
          static_cast<size_t>(shape().vocab)};
}

int32_t CpuBackend::RowsOf(const Command& command) const {
  return command.sample_rows ? batch_->num_samples : batch_->num_tokens;
}

void CpuBackend::FindRuns(const StepBatch& batch) {
  runs_.clear();
  const auto add = [&](int32_t begin, int32_t end, bool prompt) {
    if (begin == end) return;
    std::fill(prompt_of_row_.begin() + begin, prompt_of_row_.begin() + end,
              prompt);
    if (!runs_.empty() && runs_.back().prompt == prompt) {
      runs_.back().end = end;
    } else {
      runs_.push_back({begin, end, prompt});
    }
  };
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t begin = batch.q_start()[seq];
    const int32_t middle =
        begin + (prompts_in_bf16_ ? batch.prompt_rows()[seq] : 0);
    const int32_t end = batch.q_start()[seq + 1];
    CHECK(begin <= middle && middle <= end,
          "a sequence's prompt rows are among its rows");
    add(begin, middle, true);
    add(middle, end, false);
  }
}

// Rows that are kept for the head go the way of generated ones from there on:
// they are too few for the other.
bool CpuBackend::InBf16(const Command& command, const CpuLinear& linear,
                        int32_t row) const {
  return linear.prompts_in_bf16() && !command.sample_rows &&
         prompt_of_row_[static_cast<size_t>(row)];
}

template <typename Body>
void CpuBackend::ForEachTile(const Command& command, Body body) const {
  const Rows all{0, RowsOf(command), false};
  const bool by_role =
      command.linear->prompts_in_bf16() && !command.sample_rows;
  for (const Rows& run : by_role ? std::span(runs_) : std::span(&all, 1)) {
    const int32_t tile = run.prompt ? kPromptTile : kRowTile;
    for (int32_t row = run.begin; row < run.end; row += tile) {
      body(Rows{row, std::min(row + tile, run.end), run.prompt});
    }
  }
}

float* CpuBackend::X(const Command& command, int32_t row) {
  return (command.sample_rows ? x_kept_ : x_).data() +
         int64_t{row} * shape().hidden;
}

float* CpuBackend::Values(Worker& worker, const CpuLinear& linear,
                          ActBuffer& act, int32_t row) {
  return linear.needs_f32() ? act.f32(row)
                            : private_[worker.index()].row.data();
}

void CpuBackend::Quantize(const CpuLinear& linear, const float* values,
                          ActBuffer& act, int32_t row, int64_t begin,
                          int64_t end, bool in_bf16) const {
  const float* x = values + begin;
  if (in_bf16) {
    kernels_.round_row(x, end - begin, act.bf16(row) + begin);
    return;
  }
  if (linear.needs_bf16()) {
    kernels_.round_row(x, end - begin, act.bf16(row) + begin);
  }
  if (!linear.needs_q8()) return;
  if (!linear.rounds_twice()) {
    kernels_.quantize_row(x, end - begin, act.q8(row, begin));
    return;
  }
  // Row r's terms are the quantised rows 2 r and 2 r + 1.
  const Q8Row first = act.q8(2 * row, begin);
  kernels_.quantize_row(x, end - begin, first);
  constexpr int64_t kAtOnce = 512;
  float rest[kAtOnce];
  for (int64_t at = 0; at < end - begin; at += kAtOnce) {
    const int64_t n = std::min(kAtOnce, end - begin - at);
    kernels_.rest_of_row(x + at, n, act.q8(2 * row, begin + at), rest);
    kernels_.quantize_row(rest, n, act.q8(2 * row + 1, begin + at));
  }
}

void CpuBackend::Multiply(Worker& worker, const CpuLinear& linear,
                          int64_t begin, int64_t end, const ActBuffer& act,
                          const Rows& rows, float* y, int64_t ld_y) {
  if (begin >= end) return;
  if (rows.prompt) {
    linear.RunPrompt(begin, end, act, rows.begin, rows.count(), y, ld_y,
                     private_[worker.index()].prompt_scratch.data());
    return;
  }
  if (!linear.rounds_twice()) {
    linear.Run(begin, end, act, rows.begin, rows.count(), y, ld_y);
    return;
  }
  float* terms = private_[worker.index()].terms.data();
  for (int64_t at = begin; at < end; at += kTermColumns) {
    const int64_t columns = std::min(kTermColumns, end - at);
    for (int32_t row = 0; row < rows.count(); row += kRowTile) {
      const int32_t count = std::min(kRowTile, rows.count() - row);
      linear.Run(at, at + columns, act, 2 * (rows.begin + row), 2 * count,
                 terms, kTermColumns);
      for (int32_t i = 0; i < count; ++i) {
        const float* term = terms + 2 * i * kTermColumns;
        float* out = y + (row + i) * ld_y + at - begin;
        std::memcpy(out, term, static_cast<size_t>(columns) * sizeof(float));
        kernels_.add(out, term + kTermColumns, columns);
      }
    }
  }
}

void CpuBackend::RunEmbed(Worker& worker, const Command& command) {
  const StepBatch& batch = *batch_;
  const int64_t slices = int64_t{batch.num_copies} * shape().layers;
  const auto [copy, copy_end] = worker.Share(slices);
  const auto slice_bytes =
      static_cast<size_t>(kv_.page_bytes() / shape().layers);
  for (int64_t i = copy; i < copy_end; ++i) {
    const PageCopy& pair = batch.copies()[i / shape().layers];
    const auto layer = static_cast<int32_t>(i % shape().layers);
    std::memcpy(kv_.k(pair.dst, layer, 0), kv_.k(pair.src, layer, 0),
                slice_bytes);
  }

  const int32_t half = shape().head_dim / 2;
  const auto [begin, end] = worker.Share(batch.num_tokens);
  for (int64_t row = begin; row < end; ++row) {
    float* x = x_.data() + row * shape().hidden;
    command.linear->UnpackRow(batch.tokens()[row], x);
    if (command.scale != 1) {
      kernels_.scale(x, command.scale, shape().hidden, x);
    }
    const auto position = static_cast<float>(batch.positions()[row]);
    int64_t at = row * half;
    for (const std::vector<float>& frequencies : shape().ropes) {
      for (int32_t i = 0; i < half; ++i) {
        const float angle = position * frequencies[i];
        cos_[at + i] = std::cos(angle);
        sin_[at + i] = std::sin(angle);
      }
      at += int64_t{limits_.max_tokens} * half;
    }
  }
  worker.Barrier();
}

ActBuffer& CpuBackend::NormRows(Worker& worker, const Command& command) {
  const int32_t rows = RowsOf(command);
  const bool few = rows <= few_rows_;
  ActBuffer& act = few ? private_[worker.index()].act : wide_act_;
  const auto [begin, end] =
      few ? std::pair<int64_t, int64_t>(0, rows) : worker.Share(rows);
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i);
    float* values = Values(worker, *command.linear, act, row);
    kernels_.rms_norm(X(command, row), command.norm, shape().hidden,
                      shape().norm_eps, values);
    Quantize(*command.linear, values, act, row, 0, shape().hidden,
             InBf16(command, *command.linear, row));
  }
  if (!few) worker.Barrier();
  return act;
}

ActBuffer& CpuBackend::AttentionRows(Worker& worker, const Command& command) {
  const int32_t rows = RowsOf(command);
  const bool few = rows <= few_rows_;
  ActBuffer& act = few ? private_[worker.index()].act : wide_act_;
  const auto [begin, end] =
      few ? std::pair<int64_t, int64_t>(0, rows) : worker.Share(rows);
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i);
    const int32_t from =
        command.gathers_rows ? batch_->sample_rows()[row] : row;
    float* values = Values(worker, *command.linear, act, row);
    if (!attention_.Merge(command.attend, from, values)) {
      std::memcpy(values, attn_.data() + from * q_dim_,
                  static_cast<size_t>(q_dim_) * sizeof(float));
    }
    Quantize(*command.linear, values, act, row, 0, q_dim_,
             InBf16(command, *command.linear, row));
  }
  if (!few) worker.Barrier();
  return act;
}

void CpuBackend::RopeHeads(int32_t row, const Command& command, int32_t q0,
                           int32_t q1, int32_t kv0, int32_t kv1) {
  const int32_t d = shape().head_dim;
  const RopeOptions& options = command.rope;
  float* qkv = qkv_.data() + row * qkv_dim_;
  const int64_t angles =
      (int64_t{options.rope} * limits_.max_tokens + row) * (d / 2);
  const float* cos = cos_.data() + angles;
  const float* sin = sin_.data() + angles;
  const auto rotate = [&](float* head, std::span<const float> norm) {
    if (!norm.empty()) {
      kernels_.rms_norm(head, norm.data(), d, shape().norm_eps, head);
    }
    kernels_.rope(head, d, cos, sin, shape().rope_interleaved);
  };
  for (int32_t head = q0; head < q1; ++head) {
    rotate(qkv + int64_t{head} * d, options.q_norm);
  }
  if (q1 > q0) {
    float* q = qkv + int64_t{q0} * d;
    kernels_.scale(q, options.q_scale, int64_t{q1 - q0} * d, q);
  }
  const int32_t layer = command.layer;
  const int32_t position = batch_->positions()[row];
  const PageId page = batch_->pages(seq_of_row_[row])[position / kPageTokens];
  for (int32_t head = kv0; head < kv1; ++head) {
    float* k = qkv + q_dim_ + int64_t{2} * head * d;
    rotate(k, options.k_norm);
    kernels_.write_kv(k, k + d, d, position % kPageTokens, kv_.format,
                      kv_.k(page, layer, head), kv_.v(page, layer, head));
  }
}

void CpuBackend::RunNormLinear(Worker& worker, const Command& command) {
  ActBuffer& act = NormRows(worker, command);
  const CpuLinear& linear = *command.linear;
  const int w = worker.index();
  // One range of outputs, or with whole heads a range of q and one of k, v.
  std::pair<int64_t, int64_t> ranges[2] = {{0, 0}, {0, 0}};
  if (command.ropes) {
    const int64_t d = shape().head_dim;
    ranges[0] = {q_bounds_[w] * d, q_bounds_[w + 1] * d};
    ranges[1] = {q_dim_ + 2 * kv_bounds_[w] * d,
                 q_dim_ + 2 * kv_bounds_[w + 1] * d};
  } else {
    ranges[0] = worker.Share(qkv_dim_, 16);
  }
  ForEachTile(command, [&](const Rows& rows) {
    for (const auto& [begin, end] : ranges) {
      float* y = qkv_.data() + rows.begin * qkv_dim_ + begin;
      Multiply(worker, linear, begin, end, act, rows, y, qkv_dim_);
      if (begin >= end || linear.bias.empty()) continue;
      for (int32_t i = 0; i < rows.count(); ++i) {
        kernels_.add(y + i * qkv_dim_, linear.bias.data() + begin, end - begin);
      }
    }
    if (!command.ropes) return;
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      RopeHeads(row, command, q_bounds_[w], q_bounds_[w + 1], kv_bounds_[w],
                kv_bounds_[w + 1]);
    }
  });
  worker.Barrier();
}

void CpuBackend::RunRopeWriteKv(Worker& worker, const Command& command) {
  // (row, kv head with its q heads) shared out.
  const int32_t kv_heads = shape().kv_heads;
  const int32_t group = shape().heads / kv_heads;
  const auto [begin, end] = worker.Share(int64_t{RowsOf(command)} * kv_heads);
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i / kv_heads);
    const auto head = static_cast<int32_t>(i % kv_heads);
    RopeHeads(row, command, head * group, (head + 1) * group, head, head + 1);
  }
  worker.Barrier();
}

void CpuBackend::RunAttend(Worker& worker, const Command& command) {
  attention_.Run(command.attend, worker.index(), command.layer, kv_,
                 qkv_.data(), qkv_dim_, attn_.data(), q_dim_);
  worker.Barrier();
}

void CpuBackend::RunLinearResidual(Worker& worker, const Command& command) {
  ActBuffer& act = command.branch == Branch::kAttention
                       ? AttentionRows(worker, command)
                       : ffn_act_;
  const auto share = worker.Share(shape().hidden, 16);
  float* y = private_[worker.index()].y.data();
  ForEachTile(command, [&](const Rows& rows) {
    const int64_t step = rows.prompt ? kPromptColumns : shape().hidden;
    const int64_t ld_y = rows.prompt ? kPromptColumns : ld_y_;
    for (int64_t begin = share.first; begin < share.second; begin += step) {
      const int64_t columns = std::min(step, share.second - begin);
      if (command.post_norm != nullptr) {
        const int64_t hidden = shape().hidden;
        Multiply(worker, *command.linear, begin, begin + columns, act, rows,
                 branch_.data() + rows.begin * hidden + begin, hidden);
        continue;
      }
      Multiply(worker, *command.linear, begin, begin + columns, act, rows, y,
               ld_y);
      for (int32_t row = rows.begin; row < rows.end; ++row) {
        float* x = X(command, row) + begin;
        if (command.gathers_rows) GatherRow(row, begin, begin + columns);
        kernels_.add(x, y + (row - rows.begin) * ld_y, columns);
      }
    }
  });
  worker.Barrier();
  if (command.post_norm != nullptr) AddBranch(worker, command);
}

void CpuBackend::GatherRow(int32_t row, int64_t begin, int64_t end) {
  const int64_t hidden = shape().hidden;
  const float* from =
      x_.data() + int64_t{batch_->sample_rows()[row]} * hidden + begin;
  std::memcpy(x_kept_.data() + row * hidden + begin, from,
              static_cast<size_t>(end - begin) * sizeof(float));
}

void CpuBackend::AddBranch(Worker& worker, const Command& command) {
  const int64_t hidden = shape().hidden;
  const auto [begin, end] = worker.Share(RowsOf(command));
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i);
    float* branch = branch_.data() + row * hidden;
    kernels_.rms_norm(branch, command.post_norm, hidden, shape().norm_eps,
                      branch);
    if (command.gathers_rows) GatherRow(row, 0, hidden);
    kernels_.add(X(command, row), branch, hidden);
  }
  worker.Barrier();
}

void CpuBackend::RunNormGateUpAct(Worker& worker, const Command& command) {
  ActBuffer& act = NormRows(worker, command);
  const CpuLinear& linear = *command.linear;
  // Whole blocks of 32, so that the worker quantises its own columns.
  const auto share = worker.Share(padded_ffn_, 32);
  float* y = private_[worker.index()].y.data();
  ForEachTile(command, [&](const Rows& rows) {
    const int64_t step = rows.prompt ? kPromptColumns / 2 : padded_ffn_;
    const int64_t ld_y = rows.prompt ? kPromptColumns : ld_y_;
    for (int64_t begin = share.first; begin < share.second; begin += step) {
      const int64_t end = std::min(begin + step, share.second);
      Multiply(worker, linear, begin, end, act, rows, y, ld_y);
      Multiply(worker, linear, padded_ffn_ + begin, padded_ffn_ + end, act,
               rows, y + step, ld_y);
      for (int32_t row = rows.begin; row < rows.end; ++row) {
        const float* gate = y + (row - rows.begin) * ld_y;
        float* values = Values(worker, *command.reader, ffn_act_, row);
        const auto gated = command.activation == Activation::kGelu
                               ? kernels_.gelu_mul
                               : kernels_.silu_mul;
        gated(gate, gate + step, end - begin, values + begin);
        Quantize(*command.reader, values, ffn_act_, row, begin, end,
                 InBf16(command, *command.reader, row));
      }
    }
  });
  worker.Barrier();
}

void CpuBackend::RunHead(Worker& worker, const Command& command) {
  if (RowsOf(command) == 0) return;
  ActBuffer& act = NormRows(worker, command);
  const auto [begin, end] = worker.Share(shape().vocab, 16);
  if (begin < end) {
    Multiply(worker, *command.linear, begin, end, act,
             {0, RowsOf(command), false}, logits_.data() + begin, ld_logits_);
    for (int32_t i = 0; command.softcap > 0 && i < RowsOf(command); ++i) {
      kernels_.soft_cap(logits_.data() + i * ld_logits_ + begin,
                        command.softcap, end - begin);
    }
  }
  worker.Barrier();
}

}  // namespace millrace::models
