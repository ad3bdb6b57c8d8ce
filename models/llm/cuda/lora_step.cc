#include "models/llm/cuda/lora_step.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "models/llm/cuda/cuda_lora.h"

namespace millrace::models {
namespace {

constexpr int64_t kTileBytes = sizeof(cuda::LoraTile);

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

int64_t LoraStep::MostBytes(const StepLimits& limits) {
  // A tile has one row at least. Both lists begin at whole tiles.
  const int64_t places = int64_t{limits.max_tokens} + limits.max_samples;
  return RoundUp(places * (kTileBytes + 4), kTileBytes) + 2 * kTileBytes;
}

void LoraStep::Clear() {
  rows_ = samples_ = {};
  bytes_ = 0;
  most_rank_ = 0;
}

void LoraStep::Fill(const StepBatch& batch,
                    std::span<const CudaLora* const> adapters,
                    int32_t padded_rows, bool all_sample, std::byte* out) {
  Clear();
  // Which comes first changes no bits.
  sorted_.assign(adapters.begin(), adapters.end());
  std::ranges::sort(sorted_);
  const auto repeated = std::ranges::unique(sorted_);
  sorted_.erase(repeated.begin(), repeated.end());
  std::erase(sorted_, nullptr);
  if (sorted_.empty()) return;
  for (const CudaLora* adapter : sorted_) {
    most_rank_ = std::max(most_rank_, adapter->rank());
  }
  most_rank_ =
      static_cast<int32_t>(RoundUp(most_rank_, int64_t{cuda::kLoraRanks}));
  if (padded_rows > 0) {
    most_rank_ =
        static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(most_rank_)));
  }
  of_seq_.clear();
  for (const CudaLora* adapter : adapters) {
    const auto at = std::ranges::lower_bound(sorted_, adapter);
    of_seq_.push_back(
        adapter == nullptr ? -1 : static_cast<int32_t>(at - sorted_.begin()));
  }
  of_row_.clear();
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    const int32_t rows = batch.q_start()[s + 1] - batch.q_start()[s];
    of_row_.insert(of_row_.end(), static_cast<size_t>(rows), of_seq_[s]);
  }
  rows_ = Put(of_row_, padded_rows, out);
  if (all_sample) {
    samples_ = rows_;
    return;
  }
  of_row_.clear();
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    const int32_t seq = batch.sample_seqs()[static_cast<size_t>(i)];
    of_row_.push_back(of_seq_[static_cast<size_t>(seq)]);
  }
  samples_ = Put(of_row_, 0, out);
}

LoraStep::Rows LoraStep::Put(std::span<const int32_t> adapter_of_row,
                             int32_t padded_rows, std::byte* out) {
  // Where the rows of each adapter begin in the order, and end.
  std::vector<int32_t> begins(sorted_.size() + 1);
  for (const int32_t adapter : adapter_of_row) {
    if (adapter >= 0) ++begins[static_cast<size_t>(adapter) + 1];
  }
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  order_.assign(static_cast<size_t>(begins.back()), 0);
  std::vector<int32_t> next = begins;
  for (size_t row = 0; row < adapter_of_row.size(); ++row) {
    if (adapter_of_row[row] < 0) continue;
    const auto adapter = static_cast<size_t>(adapter_of_row[row]);
    order_[static_cast<size_t>(next[adapter]++)] = static_cast<int32_t>(row);
  }
  tiles_.clear();
  for (size_t i = 0; i < sorted_.size(); ++i) {
    for (int32_t at = begins[i]; at < begins[i + 1];
         at += cuda::kLoraTileRows) {
      tiles_.push_back({sorted_[i]->factors(), at,
                        std::min(cuda::kLoraTileRows, begins[i + 1] - at)});
    }
  }
  if (padded_rows > 0) {
    tiles_.resize(static_cast<size_t>(padded_rows), {nullptr, 0, 0});
    order_.resize(static_cast<size_t>(padded_rows));
  }
  Rows rows;
  rows.num_tiles = static_cast<int32_t>(tiles_.size());
  rows.num_places = static_cast<int32_t>(order_.size());
  const auto put = [&](const auto& values) {
    const int64_t at = bytes_;
    const size_t size = values.size() * sizeof(values[0]);
    if (size > 0) std::memcpy(out + at, values.data(), size);
    bytes_ = RoundUp(at + static_cast<int64_t>(size), kTileBytes);
    return at;
  };
  rows.tiles = put(tiles_);
  rows.order = put(order_);
  return rows;
}

}  // namespace millrace::models
