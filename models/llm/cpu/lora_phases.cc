// Adapters: beside y = W x of a phase, y += B (A x) for rows whose sequence has
// one. A x is taken of the row as it was before it was rounded, and all sums
// are plain f32 in an order of their own, so that neither the batch nor the
// number of workers shows.
#include <algorithm>
#include <span>
#include <utility>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// Eight strands, then a tree.
float Dot(const float* a, const float* x, int64_t n) {
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t j = 0; j < 8; ++j) lanes[j] += a[i + j] * x[i + j];
  }
  for (int64_t j = 0; i < n; ++i, ++j) lanes[j] += a[i] * x[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

constexpr LoraTarget kQkvTargets[] = {LoraTarget::kQ, LoraTarget::kK,
                                      LoraTarget::kV};
constexpr LoraTarget kOutputTargets[] = {LoraTarget::kOutput};
constexpr LoraTarget kGateUpTargets[] = {LoraTarget::kGate, LoraTarget::kUp};
constexpr LoraTarget kDownTargets[] = {LoraTarget::kDown};

}  // namespace

void CpuBackend::SetAdapter(int32_t slot,
                            std::shared_ptr<const LoraAdapter> adapter) {
  adapter_of_slot_.resize(static_cast<size_t>(limits_.max_seqs));
  if (adapter != nullptr && lora_hidden_.empty()) {
    const auto rows =
        static_cast<size_t>(std::max(limits_.max_tokens, limits_.max_samples));
    lora_hidden_.resize(rows * 3 * kMaxLoraRank);
    lora_ffn_.resize(rows * static_cast<size_t>(padded_ffn_));
    const int64_t widest = std::max<int64_t>(shape().hidden, q_dim_);
    for (Private& own : private_) {
      own.kept.resize(static_cast<size_t>(kMostFewRows * widest));
    }
  }
  adapter_of_slot_[static_cast<size_t>(slot)] = std::move(adapter);
}

void CpuBackend::FindAdapters(const StepBatch& batch) {
  adapter_of_seq_.assign(static_cast<size_t>(batch.num_seqs), nullptr);
  adapters_.clear();
  if (adapter_of_slot_.empty()) return;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const LoraAdapter* adapter =
        adapter_of_slot_[static_cast<size_t>(batch.slot()[seq])].get();
    adapter_of_seq_[static_cast<size_t>(seq)] = adapter;
    if (adapter != nullptr &&
        std::ranges::find(adapters_, adapter) == adapters_.end()) {
      adapters_.push_back(adapter);
    }
  }
}

std::span<const LoraTarget> CpuBackend::TargetsOf(
    const Command& command) const {
  if (command.run == &CpuBackend::RunNormLinear) return kQkvTargets;
  if (command.run == &CpuBackend::RunNormGateUpAct) return kGateUpTargets;
  if (command.run != &CpuBackend::RunLinearResidual) return {};
  return command.branch == Branch::kAttention
             ? std::span<const LoraTarget>(kOutputTargets)
             : std::span<const LoraTarget>(kDownTargets);
}

const LoraAdapter* CpuBackend::AdapterOf(const Command& command,
                                         int32_t row) const {
  if (adapters_.empty()) return nullptr;
  const int32_t seq = command.sample_rows
                          ? batch_->sample_seqs()[row]
                          : seq_of_row_[static_cast<size_t>(row)];
  return adapter_of_seq_[static_cast<size_t>(seq)];
}

void CpuBackend::LoraShrinkRow(const Command& command, int32_t row,
                               const float* x, int64_t width) {
  const LoraAdapter& adapter = *AdapterOf(command, row);
  const auto targets = TargetsOf(command);
  for (size_t t = 0; t < targets.size(); ++t) {
    const LoraDelta& delta = adapter.delta(command.block, targets[t]);
    float* hidden = LoraHidden(row, t);
    for (int32_t r = 0; r < delta.rank; ++r) {
      hidden[r] = Dot(delta.a.data() + r * width, x, width);
    }
  }
}

// A's rows are read once for all rows of the step.
void CpuBackend::LoraShrinkRanks(Worker& worker, const Command& command,
                                 const float* rows, int64_t ld_rows,
                                 int64_t width) {
  const auto targets = TargetsOf(command);
  const int32_t num_rows = RowsOf(command);
  for (const LoraAdapter* adapter : adapters_) {
    for (size_t t = 0; t < targets.size(); ++t) {
      const LoraDelta& delta = adapter->delta(command.block, targets[t]);
      const auto [begin, end] = worker.Share(delta.rank);
      for (int64_t r = begin; r < end; ++r) {
        for (int32_t row = 0; row < num_rows; ++row) {
          if (AdapterOf(command, row) != adapter) continue;
          LoraHidden(row, t)[r] =
              Dot(delta.a.data() + r * width, rows + row * ld_rows, width);
        }
      }
    }
  }
}

void CpuBackend::LoraInput(Worker& worker, const Command& command, int32_t row,
                           const float* x, int64_t width, bool few) {
  if (AdapterOf(command, row) == nullptr || TargetsOf(command).empty()) return;
  if (!few) {
    LoraShrinkRow(command, row, x, width);
    return;
  }
  std::copy(x, x + width, private_[worker.index()].kept.data() + row * width);
}

void CpuBackend::LoraShrinkKept(Worker& worker, const Command& command) {
  if (adapters_.empty() || TargetsOf(command).empty()) return;
  const int64_t width =
      command.run == &CpuBackend::RunLinearResidual ? q_dim_ : shape().hidden;
  LoraShrinkRanks(worker, command, private_[worker.index()].kept.data(), width,
                  width);
  worker.Barrier();
}

void CpuBackend::LoraShrinkFfn(Worker& worker, const Command& command) {
  if (adapters_.empty()) return;
  const int32_t rows = RowsOf(command);
  if (rows <= few_rows_) {
    LoraShrinkRanks(worker, command, lora_ffn_.data(), padded_ffn_,
                    shape().ffn);
  } else {
    const auto [begin, end] = worker.Share(rows);
    for (int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<int32_t>(i);
      if (AdapterOf(command, row) == nullptr) continue;
      LoraShrinkRow(command, row, lora_ffn_.data() + i * padded_ffn_,
                    shape().ffn);
    }
  }
  worker.Barrier();
}

template <typename Body>
void CpuBackend::ForEachSegment(const Command& command, LoraTarget target,
                                int64_t begin, int64_t end, Body body) const {
  const auto cut = [&](int64_t first, int64_t of_target, int64_t count) {
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + count);
    if (from >= to) return;
    body(LoraSegment{from, of_target + from - first, of_target + to - first});
  };
  const int64_t d = shape().head_dim;
  switch (target) {
    case LoraTarget::kQ:
      return cut(0, 0, q_dim_);
    case LoraTarget::kK:
    case LoraTarget::kV: {
      // Heads of k and v take turns.
      const int64_t second = target == LoraTarget::kV ? d : 0;
      for (int64_t head = 0; head < shape().kv_heads; ++head) {
        cut(q_dim_ + 2 * head * d + second, head * d, d);
      }
      return;
    }
    case LoraTarget::kOutput:
    case LoraTarget::kDown:
      return cut(0, 0, shape().hidden);
    case LoraTarget::kGate:
      return cut(0, 0, shape().ffn);
    case LoraTarget::kUp:
      return cut(command.gated ? padded_ffn_ : 0, 0, shape().ffn);
  }
}

void CpuBackend::LoraExpand(const Command& command, const Rows& rows,
                            int64_t begin, int64_t end, float* y,
                            int64_t ld_y) {
  if (adapters_.empty()) return;
  const auto targets = TargetsOf(command);
  for (int32_t row = rows.begin; row < rows.end; ++row) {
    const LoraAdapter* adapter = AdapterOf(command, row);
    if (adapter == nullptr) continue;
    float* out = y + (row - rows.begin) * ld_y;
    for (size_t t = 0; t < targets.size(); ++t) {
      const LoraDelta& delta = adapter->delta(command.block, targets[t]);
      if (delta.rank == 0) continue;
      const int64_t outputs = static_cast<int64_t>(delta.b.size()) / delta.rank;
      const float* hidden = LoraHidden(row, t);
      ForEachSegment(
          command, targets[t], begin, end, [&](const LoraSegment& segment) {
            float* to = out + (segment.first - begin);
            for (int32_t r = 0; r < delta.rank; ++r) {
              const float* b = delta.b.data() + r * outputs + segment.begin;
              const int64_t n = segment.end - segment.begin;
              for (int64_t j = 0; j < n; ++j) to[j] += hidden[r] * b[j];
            }
          });
    }
  }
}

}  // namespace millrace::models
