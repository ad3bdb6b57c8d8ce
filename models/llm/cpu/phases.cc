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

// Writes down when one member ran each phase, if anybody asked.
class PhaseClock {
 public:
  PhaseClock(StepTrace* trace, int member)
      : spans_(trace == nullptr
                   ? nullptr
                   : &trace->members[static_cast<size_t>(member)]) {
    if (spans_ != nullptr) last_ = std::chrono::steady_clock::now();
  }
  void Lap(StepPhase phase, int32_t layer) {
    if (spans_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    spans_->push_back({phase, layer, std::exchange(last_, now), now});
  }

 private:
  std::vector<PhaseSpan>* const spans_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace

Status CpuBackend::Run(const StepBatch& batch, const AfterStep& after) {
  CHECK(kv_.base != nullptr, "a KV pool is bound before the first step");
  CHECK(batch.num_tokens <= limits_.max_tokens &&
            batch.num_samples <= limits_.max_samples &&
            batch.num_seqs <= limits_.max_seqs,
        "a step keeps its limits");
  RETURN_IF_ERROR(group_status_);
  batch_ = &batch;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    std::fill(seq_of_row_.begin() + batch.q_start()[seq],
              seq_of_row_.begin() + batch.q_start()[seq + 1], seq);
  }
  FindRuns(batch);
  FindAdapters(batch);
  attention_.Plan(batch);
  BeginAccount();
  if (trace_ != nullptr) {
    trace_->members.resize(static_cast<size_t>(pool_->size()));
    for (auto& spans : trace_->members) spans.clear();
  }
  pool_->Run([&](Worker& worker) {
    Stopwatch watch;
    PhaseClock told(trace_, worker.index());
    for (const Command& command : commands_) {
      (this->*command.run)(worker, command);
      told.Lap(command.phase, command.layer);
      if (worker.index() == 0) {
        account_.seconds[static_cast<size_t>(command.phase)] += watch.Lap();
      }
    }
    if (after) after(worker);
    told.Lap(StepPhase::kSample, 0);
    if (worker.index() == 0) {
      account_.seconds[static_cast<size_t>(StepPhase::kSample)] += watch.Lap();
    }
  });
  return group_status_;
}

std::span<float> CpuBackend::logits(int32_t sample) {
  return {logits_.data() + sample * ld_logits_,
          static_cast<size_t>(shape().hidden_rows ? shape().hidden
                                                  : shape().vocab)};
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
  const int32_t layers = kv_.layers;
  const int64_t slices = int64_t{batch.num_copies} * layers;
  const auto [copy, copy_end] = worker.Share(slices);
  const auto slice_bytes = static_cast<size_t>(kv_.page_bytes() / layers);
  for (int64_t i = copy; i < copy_end; ++i) {
    const PageCopy& pair = batch.copies()[i / layers];
    const auto layer = static_cast<int32_t>(i % layers);
    std::memcpy(kv_.k(pair.dst, layer, 0), kv_.k(pair.src, layer, 0),
                slice_bytes);
  }

  const int32_t half = rope_dims_ / 2;
  float* const added = private_[worker.index()].row.data();
  const auto [begin, end] = worker.Share(batch.num_tokens);
  for (int64_t row = begin; row < end; ++row) {
    float* x = x_.data() + row * shape().hidden;
    if (const float* given = EmbeddingOf(batch, row)) {
      std::copy_n(given, shape().hidden, x);
    } else {
      command.linear->UnpackRow(batch.tokens()[row], x);
      if (command.scale != 1) {
        kernels_.scale(x, command.scale, shape().hidden, x);
      }
    }
    if (command.positions != nullptr) {
      command.positions->UnpackRow(batch.positions()[row], added);
      kernels_.add(x, added, shape().hidden);
    }
    const auto position = static_cast<float>(batch.positions()[row]);
    int64_t at = row * half;
    for (const RopeTable& rope : shape().ropes) {
      for (int32_t i = 0; i < half; ++i) {
        const float angle = position * rope.frequencies[i];
        cos_[at + i] = std::cos(angle) * rope.magnitude;
        sin_[at + i] = std::sin(angle) * rope.magnitude;
      }
      at += int64_t{limits_.max_tokens} * half;
    }
  }
  worker.Barrier();
}

void CpuBackend::AddBias(const CpuLinear& linear, int64_t begin,
                         int64_t columns, int32_t rows, float* y,
                         int64_t ld_y) const {
  if (linear.bias.empty() || columns <= 0) return;
  for (int32_t i = 0; i < rows; ++i) {
    kernels_.add(y + i * ld_y, linear.bias.data() + begin, columns);
  }
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
    Normalise(command.norm, X(command, row), values);
    LoraKeep(worker, command, row,
             {values, static_cast<size_t>(shape().hidden)}, 0, few);
    Quantize(*command.linear, values, act, row, 0, shape().hidden,
             InBf16(command, *command.linear, row));
  }
  if (!few) worker.Barrier();
  LoraShrink(worker, command, few);
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
    LoraKeep(worker, command, row, {values, static_cast<size_t>(q_dim_)}, 0,
             few);
    Quantize(*command.linear, values, act, row, 0, q_dim_,
             InBf16(command, *command.linear, row));
  }
  if (!few) worker.Barrier();
  LoraShrink(worker, command, few);
  return act;
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
      AddBias(linear, begin, end - begin, rows.count(), y, qkv_dim_);
      LoraExpand(worker, command, rows, begin, end, y, qkv_dim_);
    }
    if (!command.ropes) return;
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      RopeHeads(row, command, q_bounds_[w], q_bounds_[w + 1], kv_bounds_[w],
                kv_bounds_[w + 1]);
    }
  });
  worker.Barrier();
}

void CpuBackend::RunAttend(Worker& worker, const Command& command) {
  attention_.Run(command.attend, worker.index(), command.place, kv_,
                 qkv_.data(), qkv_dim_, attn_.data(), q_dim_);
  worker.Barrier();
}

void CpuBackend::RunLinearResidual(Worker& worker, const Command& command) {
  ActBuffer& act = command.branch == Branch::kAttention
                       ? AttentionRows(worker, command)
                       : ffn_act_;
  if (command.branch == Branch::kFfn) LoraShrink(worker, command, false);
  const auto share = worker.Share(shape().hidden, 16);
  const bool normalises = !command.post_norm.weight.empty();
  float* y = private_[worker.index()].y.data();
  ForEachTile(command, [&](const Rows& rows) {
    const int64_t step = rows.prompt ? kPromptColumns : shape().hidden;
    const int64_t ld_y = rows.prompt ? kPromptColumns : ld_y_;
    for (int64_t begin = share.first; begin < share.second; begin += step) {
      const int64_t columns = std::min(step, share.second - begin);
      const int64_t hidden = shape().hidden;
      if (normalises || command.waits || group_ != nullptr) {
        float* branch = branch_.data() + rows.begin * hidden + begin;
        Multiply(worker, *command.linear, begin, begin + columns, act, rows,
                 branch, hidden);
        AddBias(*command.linear, begin, columns, rows.count(), branch, hidden);
        LoraExpand(worker, command, rows, begin, begin + columns, branch,
                   hidden);
        for (int32_t row = rows.begin; row < rows.end; ++row) {
          if (!command.waits || !command.gathers_rows) break;
          GatherRow(row, begin, begin + columns);
        }
        continue;
      }
      Multiply(worker, *command.linear, begin, begin + columns, act, rows, y,
               ld_y);
      AddBias(*command.linear, begin, columns, rows.count(), y, ld_y);
      LoraExpand(worker, command, rows, begin, begin + columns, y, ld_y);
      for (int32_t row = rows.begin; row < rows.end; ++row) {
        float* x = X(command, row) + begin;
        float* added = y + (row - rows.begin) * ld_y;
        if (command.gathers_rows) GatherRow(row, begin, begin + columns);
        if (command.adds_waiting) {
          kernels_.add(added, branch_.data() + row * hidden + begin, columns);
        }
        if (command.scale != 1) {
          kernels_.scale(added, command.scale, columns, added);
        }
        kernels_.add(x, added, columns);
      }
    }
  });
  worker.Barrier();
  if (normalises && group_ == nullptr) AddBranch(worker, command);
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
    Normalise(command.post_norm, branch, branch);
    if (command.scale != 1) {
      kernels_.scale(branch, command.scale, hidden, branch);
    }
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
      if (command.gated) {
        Multiply(worker, linear, padded_ffn_ + begin, padded_ffn_ + end, act,
                 rows, y + step, ld_y);
        LoraExpand(worker, command, rows, padded_ffn_ + begin,
                   padded_ffn_ + end, y + step, ld_y);
      } else {
        AddBias(linear, begin, end - begin, rows.count(), y, ld_y);
      }
      LoraExpand(worker, command, rows, begin, end, y, ld_y);
      for (int32_t row = rows.begin; row < rows.end; ++row) {
        float* gate = y + (row - rows.begin) * ld_y;
        float* up = command.gated ? gate + step : ones_.data();
        float* values = Values(worker, *command.reader, ffn_act_, row);
        Activate(command.activation, gate, up, end - begin, values + begin);
        LoraKeep(worker, command, row,
                 {values + begin, static_cast<size_t>(end - begin)}, begin,
                 false);
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
  const CpuLinear& linear = *command.linear;
  const LogitRange own = shape().logits.count() > 0
                             ? shape().logits
                             : LogitRange{0, shape().vocab};
  auto [begin, end] = worker.Share(own.count(), kLogitGroup);
  if (begin < end) {
    // A matrix of a rank's own rows begins with its first logit.
    const int64_t skipped = linear.outputs() == shape().vocab ? 0 : own.begin;
    begin += own.begin;
    end += own.begin;
    Multiply(worker, linear, begin - skipped, end - skipped, act,
             {0, RowsOf(command), false}, logits_.data() + begin, ld_logits_);
    for (int32_t i = 0; i < RowsOf(command); ++i) {
      float* logits = logits_.data() + i * ld_logits_ + begin;
      if (command.scale != 1) {
        kernels_.scale(logits, command.scale, end - begin, logits);
      }
      if (command.softcap > 0) {
        kernels_.soft_cap(logits, command.softcap, end - begin);
      }
    }
  }
  worker.Barrier();
  if (group_ != nullptr) GatherLogits(worker, command);
}

}  // namespace millrace::models
