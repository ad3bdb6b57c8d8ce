// What this team can do at best, measured once on the model's own memory and
// kernels: the best of several runs of a few milliseconds each, since anything
// else on the machine can only lower a run.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "models/cpu/read_rate.h"
#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 3;
constexpr int64_t kOutputs = 64;
constexpr double kMacSeconds = 0.002;
constexpr int64_t kPassMacs = int64_t{1} << 27;  // half a millisecond or so

double Since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

}  // namespace

CpuLinear* CpuBackend::Widest() {
  const auto widest = std::max_element(
      linears_.begin(), linears_.end(), [](const auto& a, const auto& b) {
        return a->outputs() * a->inputs() < b->outputs() * b->inputs();
      });
  if (widest == linears_.end() || (*widest)->inputs() > wide_act_.width()) {
    return nullptr;
  }
  return widest->get();
}

double CpuBackend::MeasureMacs() {
  const CpuLinear* widest = Widest();
  if (widest == nullptr) return 0;
  const CpuLinear& linear = *widest;
  const int64_t outputs = std::min(kOutputs, linear.outputs() / 16 * 16);
  // Kernels that prepare weights once for all rows are faster with many rows,
  // others with few, which stay in L1.
  const int32_t most = std::min(kRowTile, limits_.max_tokens);
  double best = 0;
  for (const int32_t rows : {std::min(kRowTile / 2, most), most}) {
    for (int run = 0; run < kRuns; ++run) {
      best = std::max(best, RunMacs(linear, outputs, rows, false));
    }
  }
  return best;
}

double CpuBackend::MeasurePromptMacs() {
  if (!prompts_in_bf16_) return 0;
  const CpuLinear* widest = nullptr;
  for (const Command& command : commands_) {
    const CpuLinear* linear = command.linear;
    if (linear == nullptr || command.phase == StepPhase::kEmbed ||
        command.sample_rows || linear->inputs() > wide_act_.width()) {
      continue;
    }
    if (widest == nullptr || linear->outputs() > widest->outputs()) {
      widest = linear;
    }
  }
  if (widest == nullptr) return 0;
  const int64_t outputs = std::min(kPromptColumns, widest->outputs() / 16 * 16);
  const int32_t rows = std::min(kPromptTile, limits_.max_tokens);
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    best = std::max(best, RunMacs(*widest, outputs, rows, true));
  }
  return best;
}

double CpuBackend::RunMacs(const CpuLinear& linear, int64_t outputs,
                           int32_t rows, bool prompt) {
  std::atomic<int64_t> calls{0};  // relaxed: read after all have joined
  const Clock::time_point begun = Clock::now();
  pool_->Run([&](Worker& worker) {
    float* y = private_[static_cast<size_t>(worker.index())].y.data();
    const Rows all{0, rows, prompt};
    const int64_t ld_y = prompt ? kPromptColumns : ld_y_;
    int64_t done = 0;
    do {
      Multiply(worker, linear, 0, outputs, wide_act_, all, y, ld_y);
      ++done;
    } while (Since(begun) < kMacSeconds);
    calls.fetch_add(done, std::memory_order_relaxed);
  });
  const double macs = static_cast<double>(calls.load()) *
                      static_cast<double>(outputs * linear.inputs()) * rows;
  return macs / Since(begun);
}

// The passes are cut by what a part of a wide matrix takes: what fits beside
// the rows differs from one L2 to the next, and what a guest of a host has of
// it stands nowhere.
int64_t CpuBackend::ChoosePassBytes() {
  CpuLinear* const linear = Widest();
  if (linear == nullptr) return 0;
  const int32_t rows = std::min(kRowTile, limits_.max_tokens);
  const int64_t outputs = std::min(
      {kPassMacs / (rows * linear->inputs()), linear->outputs(), ld_y_});
  if (outputs < 16) return linear->pass_bytes();
  const int64_t before = linear->pass_bytes();
  constexpr int kPasses = 3;
  const int64_t passes[kPasses] = {before, before / 2, before * 2};
  double least[kPasses];
  std::fill_n(least, kPasses, std::numeric_limits<double>::infinity());
  for (int run = 0; run < kRuns; ++run) {
    for (int i = 0; i < kPasses; ++i) {
      linear->set_pass_bytes(passes[i]);
      const Clock::time_point begun = Clock::now();
      pool_->Run([&](Worker& worker) {
        float* y = private_[static_cast<size_t>(worker.index())].y.data();
        linear->Run(0, outputs / 16 * 16, wide_act_, 0, rows, y, ld_y_);
      });
      least[i] = std::min(least[i], Since(begun));
    }
  }
  // Less than that is noise.
  constexpr double kWorthIt = 0.97;
  const auto best = std::min_element(least, least + kPasses) - least;
  const int64_t chosen =
      least[best] < kWorthIt * least[0] ? passes[best] : before;
  for (const auto& each : linears_) each->set_pass_bytes(chosen);
  return chosen;
}

double CpuBackend::MeasureRowPreparation() {
  ActBuffer& act = private_[0].act;
  const std::vector<float> x(static_cast<size_t>(shape().hidden), 1.0f);
  constexpr int kTimes = 200;
  const Clock::time_point begun = Clock::now();
  for (int i = 0; i < kTimes; ++i) {
    kernels_.rms_norm(x.data(), x.data(), shape().hidden, shape().norm_eps,
                      act.f32(0));
    kernels_.quantize_row(act.f32(0), shape().hidden / 32 * 32, act.q8(0));
  }
  return Since(begun) / kTimes;
}

RunnerRoofline CpuBackend::MeasureRoofline() {
  RunnerRoofline roofline;
  roofline.barrier_s = pool_->MeasureBarrierNs() * 1e-9;
  roofline.read_bytes_per_s =
      MeasureReadRate(*pool_, weights_.data(), weights_.size());
  roofline.pass_bytes = static_cast<double>(ChoosePassBytes());
  roofline.macs_per_s = MeasureMacs();
  roofline.prompt_macs_per_s = MeasurePromptMacs();
  // Each worker preparing all rows costs it (1 - 1/team) of them more than its
  // share; sharing them costs a barrier.
  const int team = pool_->size();
  if (team > 1) {
    const double more = MeasureRowPreparation() * (team - 1) / team;
    few_rows_ = static_cast<int32_t>(
        std::clamp(roofline.barrier_s / more, 1.0, double{kMostFewRows}));
  }
  return roofline;
}

// Which experts the rows will use is not known before they run: as many as
// there are, or as there are uses.
void CpuBackend::AccountExperts(const Command& command) {
  const ExpertsOptions& options = *command.experts;
  const int32_t rows = RowsOf(command);
  const auto count = static_cast<double>(options.experts.size());
  const double uses =
      static_cast<double>(rows) * (options.used + (options.shared ? 1 : 0));
  double bytes = 0, macs = 0;
  for (const Expert& expert : options.experts) {
    for (const Linear* linear : {expert.gate_up, expert.down}) {
      bytes += static_cast<double>(
          static_cast<const CpuLinear*>(linear)->packed_bytes());
      macs += static_cast<double>(linear->inputs() * linear->outputs());
    }
  }
  account_.weight_bytes += bytes / count * std::min(count, uses);
  account_.macs += macs / count * uses;
}

void CpuBackend::BeginAccount() {
  account_ = {};
  for (const Command& command : commands_) {
    if (command.experts != nullptr) AccountExperts(command);
    if (command.linear == nullptr || command.phase == StepPhase::kEmbed) {
      continue;
    }
    const int32_t rows = RowsOf(command);
    if (rows == 0) continue;
    account_.weight_bytes +=
        static_cast<double>(command.linear->packed_bytes());
    const auto row_macs = static_cast<double>(command.linear->inputs() *
                                              command.linear->outputs());
    account_.macs += row_macs * rows;
    if (!command.linear->prompts_in_bf16() || command.sample_rows) continue;
    for (const Rows& run : runs_) {
      if (run.prompt) account_.prompt_macs += row_macs * run.count();
    }
  }
  const double key_bytes = static_cast<double>(kv_.page_bytes()) / kPageTokens /
                           kv_.layers * shape().layers;
  for (int32_t seq = 0; seq < batch_->num_seqs; ++seq) {
    account_.kv_bytes += batch_->kv_len()[seq] * key_bytes;
  }
}

}  // namespace millrace::models
