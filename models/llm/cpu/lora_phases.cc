// Adapters: beside y = W x of a phase, y += B (A x) for rows whose sequence has
// one. A x is taken of the row as it was before it was rounded for W. Products
// are those of float weights (llm_kernels.h), whose sums do not depend on the
// rows beside them, or of int8 (lora_int8.h), and B (A x) joins y in one
// addition: so neither the batch nor the number of workers shows.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// Rows that share one reading of an adapter's matrix.
constexpr int32_t kLoraRows = 8;
// Outputs of one product with B are written apart first.
constexpr int64_t kLoraSlack = 64;  // of the groups at both ends

}  // namespace

void CpuBackend::SetAdapter(int32_t slot,
                            std::shared_ptr<const LoraAdapter> adapter) {
  adapter_of_slot_.resize(static_cast<size_t>(limits_.max_seqs));
  if (adapter != nullptr) MakeRoomForAdapters(adapter->dtype());
  adapter_of_slot_[static_cast<size_t>(slot)] = std::move(adapter);
}

void CpuBackend::MakeRoomForAdapters(LoraDtype dtype) {
  const auto rows =
      static_cast<size_t>(std::max(limits_.max_tokens, limits_.max_samples));
  lora_width_ =
      LoraBlocks(std::max({int64_t{shape().hidden}, q_dim_, padded_ffn_}));
  lora_hidden_.resize(rows * 3 * kMaxLoraRank);
  if (dtype == LoraDtype::kInt8) {
    if (!lora_int8_rows_.empty()) return;
    lora_int8_rows_.Allocate(static_cast<int64_t>(rows), lora_width_);
    for (Private& own : private_) {
      own.kept_int8.Allocate(kMostFewRows, lora_width_);
      own.lora_int8.Allocate(kLoraRows, lora_width_);
    }
    return;
  }
  lora_rows_.resize(rows * static_cast<size_t>(lora_width_));
  for (Private& own : private_) {
    own.kept.resize(static_cast<size_t>(kMostFewRows * lora_width_));
    own.lora_y.resize(
        static_cast<size_t>(kLoraRows * (lora_width_ + kLoraSlack)));
  }
}

void CpuBackend::FindAdapters(const StepBatch& batch) {
  lora_tokens_.runs.clear();
  lora_samples_.runs.clear();
  if (adapter_of_slot_.empty()) return;
  adapter_of_seq_.resize(static_cast<size_t>(batch.num_seqs));
  bool any = false;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const LoraAdapter* adapter =
        adapter_of_slot_[static_cast<size_t>(batch.slot()[seq])].get();
    adapter_of_seq_[static_cast<size_t>(seq)] = adapter;
    any = any || adapter != nullptr;
  }
  if (!any) return;
  OrderRows(std::span(seq_of_row_).first(static_cast<size_t>(batch.num_tokens)),
            lora_tokens_);
  OrderRows(std::span(batch.sample_seqs())
                .first(static_cast<size_t>(batch.num_samples)),
            lora_samples_);
}

void CpuBackend::OrderRows(std::span<const int32_t> seq_of_row,
                           LoraOrder& order) const {
  const auto adapter_of = [&](int32_t row) {
    return adapter_of_seq_[static_cast<size_t>(
        seq_of_row[static_cast<size_t>(row)])];
  };
  order.row_of_place.clear();
  order.place_of_row.assign(seq_of_row.size(), -1);
  for (size_t row = 0; row < seq_of_row.size(); ++row) {
    const auto at = static_cast<int32_t>(row);
    if (adapter_of(at) != nullptr) order.row_of_place.push_back(at);
  }
  std::ranges::stable_sort(order.row_of_place, {}, [&](int32_t row) {
    return adapter_of(row)->number();
  });
  for (size_t place = 0; place < order.row_of_place.size(); ++place) {
    const int32_t row = order.row_of_place[place];
    const auto at = static_cast<int32_t>(place);
    order.place_of_row[static_cast<size_t>(row)] = at;
    if (order.runs.empty() || order.runs.back().adapter != adapter_of(row)) {
      order.runs.push_back({adapter_of(row), at, at});
    }
    order.runs.back().end = at + 1;
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

void CpuBackend::LoraKeep(Worker& worker, const Command& command, int32_t row,
                          std::span<const float> x, int64_t first, bool few) {
  const LoraOrder& order = LoraOrderOf(command);
  if (order.runs.empty()) return;
  const int32_t place = order.place_of_row[static_cast<size_t>(row)];
  if (place < 0) return;
  Private& own = private_[worker.index()];
  if (AdapterOfRow(command, row).dtype() == LoraDtype::kInt8) {
    (few ? own.kept_int8 : lora_int8_rows_).Keep(kernels_, place, x, first);
    return;
  }
  LineVector<float>& rows = few ? own.kept : lora_rows_;
  std::memcpy(rows.data() + place * lora_width_ + first, x.data(),
              x.size_bytes());
}

void CpuBackend::LoraShrink(Worker& worker, const Command& command, bool few) {
  if (!Adapts(command)) return;
  const auto targets = TargetsOf(command);
  const Private& own = private_[worker.index()];
  const float* rows = few ? own.kept.data() : lora_rows_.data();
  const LoraInt8Rows& int8_rows = few ? own.kept_int8 : lora_int8_rows_;
  // Work is shared out by groups of A's rows for some rows of inputs.
  const auto for_each_group = [&](const auto& body) {
    for (const LoraRun& run : LoraOrderOf(command).runs) {
      for (int32_t at = run.begin; at < run.end; at += kLoraRows) {
        const int32_t count = std::min(kLoraRows, run.end - at);
        for (size_t t = 0; t < targets.size(); ++t) {
          const LoraDelta& delta =
              run.adapter->delta(command.block, targets[t]);
          if (delta.rank == 0) continue;
          const int32_t width = delta.a.kernels->row_group;
          for (int32_t r = 0; r < delta.rank; r += width) {
            body(run, delta, t, r / width, at, count);
          }
        }
      }
    }
  };
  int64_t groups = 0;
  for_each_group([&](auto&&...) { ++groups; });
  const auto [begin, end] = worker.Share(groups);
  int64_t index = -1;
  for_each_group([&](const LoraRun& run, const LoraDelta& delta, size_t t,
                     int64_t group, int32_t at, int32_t count) {
    if (++index < begin || index >= end) return;
    ActRows act;
    if (run.adapter->dtype() == LoraDtype::kInt8) {
      act = int8_rows.From(at);
    } else {
      act.f32 = rows + at * lora_width_;
      act.ld_f32 = lora_width_;
    }
    float* hidden = LoraHidden(at, t);
    delta.a.kernels->linear(delta.a.matrix, group, group + 1, act, count,
                            hidden, 3 * kMaxLoraRank);
    const int64_t width = delta.a.kernels->row_group;
    const int64_t first = group * width;
    const int64_t ranks = std::min(width, delta.rank - first);
    for (int32_t i = 0; delta.scale != 1 && i < count; ++i) {
      float* of_row = hidden + i * 3 * kMaxLoraRank + first;
      kernels_.scale(of_row, delta.scale, ranks, of_row);
    }
  });
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

void CpuBackend::LoraExpand(Worker& worker, const Command& command,
                            const Rows& rows, int64_t begin, int64_t end,
                            float* y, int64_t ld_y) {
  if (!Adapts(command)) return;
  const LoraOrder& order = LoraOrderOf(command);
  const auto targets = TargetsOf(command);
  Private& own = private_[worker.index()];
  float* const apart = own.lora_y.data();
  const int64_t ld_apart = lora_width_ + kLoraSlack;
  for (const LoraRun& run : order.runs) {
    const auto first = order.row_of_place.begin() + run.begin;
    const auto last = order.row_of_place.begin() + run.end;
    const auto from = std::lower_bound(first, last, rows.begin);
    const auto to = std::lower_bound(from, last, rows.end);
    for (auto at = from; at < to; at += std::min<int64_t>(kLoraRows, to - at)) {
      const auto place = static_cast<int32_t>(at - order.row_of_place.begin());
      const auto count =
          static_cast<int32_t>(std::min<int64_t>(kLoraRows, to - at));
      for (size_t t = 0; t < targets.size(); ++t) {
        const LoraDelta& delta = run.adapter->delta(command.block, targets[t]);
        if (delta.rank == 0) continue;
        if (run.adapter->dtype() == LoraDtype::kInt8) {
          RoundLoraHidden(kernels_, delta, LoraHidden(place, t),
                          3 * kMaxLoraRank, count, own.lora_int8);
          ForEachSegment(
              command, targets[t], begin, end, [&](const LoraSegment& segment) {
                float* out[kLoraRows];
                for (int32_t i = 0; i < count; ++i) {
                  out[i] =
                      y + (at[i] - rows.begin) * ld_y + segment.first - begin;
                }
                AddLoraInt8(kernels_, delta, count, segment.begin, segment.end,
                            out, own.lora_int8);
              });
          continue;
        }
        ActRows act;
        act.f32 = LoraHidden(place, t);
        act.ld_f32 = 3 * kMaxLoraRank;
        const int64_t width = delta.b.kernels->row_group;
        ForEachSegment(
            command, targets[t], begin, end, [&](const LoraSegment& segment) {
              const int64_t group = segment.begin / width;
              delta.b.kernels->linear(delta.b.matrix, group,
                                      (segment.end + width - 1) / width, act,
                                      count, apart - group * width, ld_apart);
              const float* added = apart + segment.begin - group * width;
              for (int32_t i = 0; i < count; ++i) {
                float* out = y + (at[i] - rows.begin) * ld_y;
                kernels_.add(out + segment.first - begin, added + i * ld_apart,
                             segment.end - segment.begin);
              }
            });
      }
    }
  }
}

}  // namespace millrace::models
