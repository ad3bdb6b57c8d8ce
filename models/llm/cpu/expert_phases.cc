// A mixture of experts, load time and run time. Rows are ordered by the experts
// they use, so that an expert's weights are read once for all rows of a step
// that use it, by the same kernels as dense layers. A row's own sums never
// depend on its neighbours: it is multiplied like any row, and its experts are
// added in their own order.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// What reading a block of weights costs beside a row's use of it.
constexpr int64_t kBlockCost = 8;

// Experts that compete by the router's outputs; the shared one does not.
int32_t Competing(const ExpertsOptions& options) {
  return static_cast<int32_t>(options.experts.size()) -
         (options.shared ? 1 : 0);
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

int64_t PaddedFfn(const Expert& expert) {
  return (expert.down->inputs() + 31) / 32 * 32;
}

const CpuLinear& Cpu(const Linear* linear) {
  return *static_cast<const CpuLinear*>(linear);
}

void AppendRows(const WeightRows& rows, std::vector<float>& out) {
  const size_t at = out.size();
  out.resize(at + static_cast<size_t>(rows.num_rows * rows.k));
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    CHECK(DequantizeRow(rows.type, rows.data + i * rows.row_bytes, rows.k,
                        out.data() + static_cast<int64_t>(at) + i * rows.k),
          "weights have a served type");
  }
}

}  // namespace

// In f32, whatever the file has: it is small, and a choice once made wrong is
// not made good by anything later.
const Linear* CpuBackend::DoAddRouter(const WeightRows& router,
                                      const WeightRows& last,
                                      std::vector<float> bias) {
  const int64_t outputs = router.num_rows + last.num_rows;
  WeightRows rows = {
      .type = GgmlType::kF32,
      .data = nullptr,
      .row_bytes = router.k * static_cast<int64_t>(sizeof(float)),
      .num_rows = outputs,
      .k = router.k};
  if (router.data != nullptr) {
    std::vector<float>& weights = router_weights_.emplace_back();
    AppendRows(router, weights);
    if (last.data != nullptr) AppendRows(last, weights);
    rows.data = reinterpret_cast<const std::byte*>(weights.data());
  }
  CpuLinear* linear = NewLinear(rows.k, outputs, Rounding::kOnce);
  linear->AddRows(rows);
  linear->bias = std::move(bias);
  return linear;
}

void CpuBackend::DoNormExperts(const Norm& norm, const ExpertsOptions& experts,
                               const ResidualOptions& options) {
  Command& command = Record(StepPhase::kGateUp, &CpuBackend::RunExperts);
  CHECK(!command.gathers_rows, "rows are given up right after attention");
  command.norm = norm;
  command.experts = &experts_.emplace_back(experts);
  command.scale = options.scale;
  command.post_norm = options.post_norm;
  const int64_t rows = std::min<int64_t>(
      kExpertRows, std::max(limits_.max_tokens, limits_.max_samples));
  MakeBranch();
  if (!expert_norms_.empty()) return;
  const int64_t uses = rows * shape().experts_used;
  chosen_.resize(static_cast<size_t>(uses));
  row_of_use_.resize(static_cast<size_t>(uses));
  expert_norms_.resize(static_cast<size_t>(rows * shape().hidden));
  expert_in_.Allocate(uses, shape().hidden);
  expert_ffn_.Allocate(uses, (shape().expert_ffn + 31) / 32 * 32);
}

void CpuBackend::RunExperts(Worker& worker, const Command& command) {
  const int32_t rows = RowsOf(command);
  for (int32_t begin = 0; begin < rows; begin += kExpertRows) {
    const int32_t end = std::min(begin + kExpertRows, rows);
    ChooseExperts(worker, command, begin, end);
    worker.Barrier();
    if (worker.index() == 0) OrderByExpert(command, begin, end);
    worker.Barrier();
    const auto [first, last] =
        worker.Share(first_use_[command.experts->experts.size()]);
    int64_t expert = 0;
    for (int64_t use = first; use < last; ++use) {
      while (first_use_[static_cast<size_t>(expert) + 1] <= use) ++expert;
      const CpuLinear& gate_up =
          Cpu(command.experts->experts[static_cast<size_t>(expert)].gate_up);
      const auto at = static_cast<int32_t>(use);
      const int32_t row = row_of_use_[static_cast<size_t>(use)];
      const float* norm = expert_norms_.data() + row * int64_t{shape().hidden};
      if (command.experts->sigmoid_inputs) {
        float* scaled =
            private_[static_cast<size_t>(worker.index())].row.data();
        kernels_.scale(norm, WeightOfUse(command, row, expert), shape().hidden,
                       scaled);
        norm = scaled;
      }
      if (gate_up.needs_f32()) {
        std::memcpy(expert_in_.f32(at), norm,
                    static_cast<size_t>(shape().hidden) * sizeof(float));
      }
      Quantize(gate_up, norm, expert_in_, at, 0, shape().hidden, false);
    }
    worker.Barrier();
    GateUpOfExperts(worker, command);
    worker.Barrier();
    DownOfExperts(worker, command, begin, end);
    worker.Barrier();
  }
  if (!command.post_norm.weight.empty()) AddBranch(worker, command);
}

void CpuBackend::ChooseExperts(Worker& worker, const Command& command,
                               int32_t begin, int32_t end) {
  const ExpertsOptions& options = *command.experts;
  const CpuLinear& router = Cpu(options.router);
  Private& own = private_[static_cast<size_t>(worker.index())];
  const auto outputs = static_cast<int32_t>(router.outputs());
  const int32_t competing = Competing(options);
  const int32_t used = options.used + (options.shared ? 1 : 0);
  std::vector<Use> order(static_cast<size_t>(competing));
  std::vector<float> logits(static_cast<size_t>((outputs + 15) / 16 * 16));
  const auto [first, last] = worker.Share(end - begin);
  for (int64_t i = first; i < last; ++i) {
    float* norm = expert_norms_.data() + i * shape().hidden;
    const auto row = static_cast<int32_t>(begin + i);
    Normalise(command.norm, X(command, row), norm);
    std::memcpy(own.act.f32(0), norm,
                static_cast<size_t>(shape().hidden) * sizeof(float));
    router.Run(0, outputs, own.act, 0, 1, logits.data(),
               static_cast<int64_t>(logits.size()));
    AddBias(router, 0, outputs, 1, logits.data(), 0);
    // Softmax of those that compete, in ascending order; the greatest of equals
    // is the first.
    float most = logits[0];
    for (int32_t e = 1; e < competing; ++e) most = std::max(most, logits[e]);
    float sum = 0;
    for (int32_t e = 0; e < competing; ++e) {
      order[e] = {
          e, options.sigmoid_inputs ? logits[e] : std::exp(logits[e] - most)};
      sum += order[e].weight;
    }
    std::partial_sort(order.begin(), order.begin() + options.used, order.end(),
                      [](const Use& a, const Use& b) {
                        return a.weight > b.weight ||
                               (a.weight == b.weight && a.expert < b.expert);
                      });
    if (options.normalise) {
      sum = 0;
      for (int32_t k = 0; k < options.used; ++k) sum += order[k].weight;
    }
    Use* chosen = chosen_.data() + i * used;
    for (int32_t k = 0; k < options.used; ++k) {
      const float weight = order[k].weight;
      chosen[k] = {order[k].expert,
                   options.sigmoid_inputs ? Sigmoid(weight) : weight / sum};
    }
    std::sort(chosen, chosen + options.used,
              [](const Use& a, const Use& b) { return a.expert < b.expert; });
    if (options.shared) {
      chosen[options.used] = {
          competing, options.shared_gate ? Sigmoid(logits[competing]) : 1.0f};
    }
  }
}

float CpuBackend::WeightOfUse(const Command& command, int32_t row,
                              int64_t expert) const {
  const ExpertsOptions& options = *command.experts;
  const int32_t used = options.used + (options.shared ? 1 : 0);
  const Use* uses = chosen_.data() + int64_t{row} * used;
  while (uses->expert != expert) ++uses;
  return uses->weight;
}

void CpuBackend::OrderByExpert(const Command& command, int32_t begin,
                               int32_t end) {
  const ExpertsOptions& options = *command.experts;
  const int32_t used = options.used + (options.shared ? 1 : 0);
  const auto uses = static_cast<size_t>(int64_t{end - begin} * used);
  first_use_.assign(options.experts.size() + 1, 0);
  for (size_t i = 0; i < uses; ++i) {
    ++first_use_[static_cast<size_t>(chosen_[i].expert) + 1];
  }
  for (size_t e = 1; e < first_use_.size(); ++e) {
    first_use_[e] += first_use_[e - 1];
  }
  std::vector<int32_t> next(first_use_.begin(), first_use_.end() - 1);
  for (size_t i = 0; i < uses; ++i) {
    const int32_t place = next[static_cast<size_t>(chosen_[i].expert)]++;
    row_of_use_[static_cast<size_t>(place)] = static_cast<int32_t>(i) / used;
  }
}

// Blocks of 32 columns of all experts in use, cut in shares of equal cost.
void CpuBackend::GateUpOfExperts(Worker& worker, const Command& command) {
  const ExpertsOptions& options = *command.experts;
  const auto cost_of = [&](size_t e) {
    const int64_t rows = first_use_[e + 1] - first_use_[e];
    return rows == 0 ? 0 : rows + kBlockCost;
  };
  int64_t total = 0;
  for (size_t e = 0; e < options.experts.size(); ++e) {
    total += cost_of(e) * PaddedFfn(options.experts[e]) / 32;
  }
  const int64_t low = total * worker.index() / worker.count();
  const int64_t high = total * (worker.index() + 1) / worker.count();
  float* y = private_[static_cast<size_t>(worker.index())].y.data();
  int64_t before = 0;
  for (size_t e = 0; e < options.experts.size(); ++e) {
    const int64_t cost = cost_of(e);
    if (cost == 0) continue;
    const CpuLinear& gate_up = Cpu(options.experts[e].gate_up);
    const CpuLinear& down = Cpu(options.experts[e].down);
    const int64_t padded = PaddedFfn(options.experts[e]);
    const int64_t blocks = padded / 32;
    // The first block that begins in a share.
    const auto block_at = [&](int64_t share) {
      const int64_t left = std::max<int64_t>(share - before, 0);
      return std::min((left + cost - 1) / cost, blocks);
    };
    const int64_t begin = block_at(low) * 32;
    const int64_t end = block_at(high) * 32;
    before += cost * blocks;
    if (begin >= end) continue;
    for (int32_t row = first_use_[e]; row < first_use_[e + 1];
         row += kRowTile) {
      const Rows rows{row, std::min(row + kRowTile, first_use_[e + 1]), false};
      Multiply(worker, gate_up, begin, end, expert_in_, rows, y, ld_y_);
      Multiply(worker, gate_up, padded + begin, padded + end, expert_in_, rows,
               y + padded, ld_y_);
      AddBias(gate_up, begin, end - begin, rows.count(), y, ld_y_);
      AddBias(gate_up, padded + begin, end - begin, rows.count(), y + padded,
              ld_y_);
      for (int32_t use = rows.begin; use < rows.end; ++use) {
        float* gate = y + (use - rows.begin) * ld_y_;
        float* values = Values(worker, down, expert_ffn_, use);
        Activate(options.activation, gate, gate + padded, end - begin,
                 values + begin);
        Quantize(down, values, expert_ffn_, use, begin, end, false);
      }
    }
  }
}

// Each worker has its columns of all experts, so that it adds up a row's in
// order.
void CpuBackend::DownOfExperts(Worker& worker, const Command& command,
                               int32_t begin, int32_t end) {
  const ExpertsOptions& options = *command.experts;
  const int64_t hidden = shape().hidden;
  const auto [first, last] = worker.Share(hidden, 16);
  const int64_t columns = last - first;
  if (columns <= 0) return;
  for (int32_t row = begin; row < end; ++row) {
    std::fill_n(branch_.data() + row * hidden + first, columns, 0.0f);
  }
  float* y = private_[static_cast<size_t>(worker.index())].y.data();
  for (size_t e = 0; e < options.experts.size(); ++e) {
    for (int32_t use = first_use_[e]; use < first_use_[e + 1];
         use += kRowTile) {
      const Rows rows{use, std::min(use + kRowTile, first_use_[e + 1]), false};
      const CpuLinear& down = Cpu(options.experts[e].down);
      Multiply(worker, down, first, last, expert_ffn_, rows, y, ld_y_);
      AddBias(down, first, columns, rows.count(), y, ld_y_);
      for (int32_t i = rows.begin; i < rows.end; ++i) {
        const int32_t row = row_of_use_[static_cast<size_t>(i)];
        float* added = y + (i - rows.begin) * ld_y_;
        if (!options.sigmoid_inputs) {
          kernels_.scale(added,
                         WeightOfUse(command, row, static_cast<int64_t>(e)),
                         columns, added);
        }
        kernels_.add(branch_.data() + (begin + row) * hidden + first, added,
                     columns);
      }
    }
  }
  if (!command.post_norm.weight.empty()) return;
  for (int32_t row = begin; row < end; ++row) {
    float* added = branch_.data() + row * hidden + first;
    if (command.scale != 1) {
      kernels_.scale(added, command.scale, columns, added);
    }
    kernels_.add(X(command, row) + first, added, columns);
  }
}

}  // namespace millrace::models
