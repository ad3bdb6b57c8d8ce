// Run time: what a rank of a group does beside its own part of a step. Worker 0
// talks to the other ranks while the team waits for it.
#include <algorithm>
#include <cstring>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {

void CpuBackend::MakeBranch() {
  const auto count = static_cast<size_t>(
      int64_t{std::max(limits_.max_tokens, limits_.max_samples)} *
      shape().hidden);
  if (branch_.size() >= count) return;
  if (group_ != nullptr) branch_ = group_->SumBuffer(count);
  if (!branch_.empty()) return;
  own_branch_.resize(count);
  branch_ = own_branch_;
}

void CpuBackend::RunAllReduce(Worker& worker, const Command& command) {
  const int64_t values = int64_t{RowsOf(command)} * shape().hidden;
  if (values == 0) return;
  if (worker.index() == 0 && group_status_.ok()) {
    group_status_ =
        group_->AllReduceSum({branch_.data(), static_cast<size_t>(values)});
  }
  worker.Barrier();
  AddBranch(worker, command);
}

void CpuBackend::GatherLogits(Worker& worker, const Command& command) {
  if (worker.index() == 0 && group_status_.ok()) {
    const int64_t rows = RowsOf(command);
    const int64_t size = group_->size();
    // Ranks differ by one group of 16 logits at most; all send as many.
    const int64_t groups = ld_logits_ / kLogitGroup;
    const int64_t width = (groups + size - 1) / size * kLogitGroup;
    const LogitRange own = shape().logits;
    sent_.resize(static_cast<size_t>(rows * width));
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(sent_.data() + row * width,
                  logits_.data() + row * ld_logits_ + own.begin,
                  static_cast<size_t>(own.count()) * sizeof(float));
    }
    if (group_->rank() == 0) {
      received_.resize(static_cast<size_t>(size * rows * width));
    }
    group_status_ = group_->Gather(sent_, received_);
    if (group_->rank() == 0 && group_status_.ok()) {
      PlaceLogits(rows, width);
    }
  }
  worker.Barrier();
}

// From [rank][row][width] to the rows of logits.
void CpuBackend::PlaceLogits(int64_t rows, int64_t width) {
  const int32_t size = group_->size();
  for (int32_t rank = 1; rank < size; ++rank) {
    const LogitRange range = LogitsOf(shape().vocab, rank, size);
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(logits_.data() + row * ld_logits_ + range.begin,
                  received_.data() + (rank * rows + row) * width,
                  static_cast<size_t>(range.count()) * sizeof(float));
    }
  }
}

}  // namespace millrace::models
