#include "models/llm/cuda/step_message.h"

#include <algorithm>
#include <cstring>

namespace millrace::models {
namespace {

constexpr int64_t kItemWords = sizeof(cuda::AttendItem) / 4;
constexpr int64_t kMergeWords = sizeof(cuda::AttendMerge) / 4;
static_assert(cuda::kPageRows == kPageTokens);
static_assert(sizeof(PageId) == 4 && sizeof(PageCopy) == 8);

// Splits [first, end) of 256 keys that rows see.
struct Splits {
  int32_t first;
  int32_t end;
  int32_t count() const { return end - first; }
};
Splits SplitsOf(int32_t window, int32_t first_position, int32_t last_position) {
  const int32_t first =
      window == 0 ? 0 : std::max(0, first_position - window + 1);
  return {first / cuda::kSplitKeys, last_position / cuda::kSplitKeys + 1};
}

template <typename T>
std::span<const int32_t> Words(const std::vector<T>& values) {
  return {reinterpret_cast<const int32_t*>(values.data()),
          values.size() * sizeof(T) / 4};
}

}  // namespace

StepMessage::StepMessage(const BackendShape& shape, const StepLimits& limits,
                         int32_t blocks)
    : limits_(limits),
      heads_(shape.heads),
      kv_heads_(shape.kv_heads),
      blocks_(blocks),
      page_at_(static_cast<size_t>(limits.max_seqs)) {}

size_t StepMessage::AddWindow(int32_t window) {
  const auto found = std::ranges::find(works_, window, &Work::window);
  if (found == works_.end()) {
    works_.push_back({.window = window});
    return works_.size() - 1;
  }
  return static_cast<size_t>(found - works_.begin());
}

int64_t StepMessage::most_bytes() const {
  const int64_t pages = int64_t{limits_.max_seqs} * limits_.max_pages_per_seq;
  const auto works = static_cast<int64_t>(works_.size());
  return 4 * (4 * int64_t{limits_.max_tokens} + limits_.max_samples +
              2 * int64_t{limits_.max_seqs} + pages +
              works * (kItemWords * (limits_.max_tokens + kMostPartials) +
                       kMergeWords * kMostPartials));
}

int64_t StepMessage::Put(std::span<const int32_t> values) {
  std::ranges::copy(values, out_ + at_);
  const int64_t begin = at_;
  at_ += static_cast<int64_t>(values.size());
  return begin;
}

void StepMessage::Fill(const StepBatch& batch, int32_t* out) {
  out_ = out;
  at_ = 0;
  const auto rows = static_cast<size_t>(batch.num_tokens);
  tokens = Put(batch.tokens().first(rows));
  positions = Put(batch.positions().first(rows));
  sample_rows =
      Put(batch.sample_rows().first(static_cast<size_t>(batch.num_samples)));
  copies = at_;
  for (int32_t i = 0; i < batch.num_copies; ++i) {
    const PageCopy& copy = batch.copies()[static_cast<size_t>(i)];
    out_[at_++] = static_cast<int32_t>(copy.src);
    out_[at_++] = static_cast<int32_t>(copy.dst);
  }
  row_pages = at_;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    for (int32_t row = batch.q_start()[s]; row < batch.q_start()[s + 1];
         ++row) {
      const int32_t position = batch.positions()[static_cast<size_t>(row)];
      out_[at_++] = static_cast<int32_t>(
          batch.pages(seq)[static_cast<size_t>(position / kPageTokens)]);
    }
  }
  rows_by_role = at_;
  num_prompt_rows = 0;
  for (const bool prompts : {true, false}) {
    for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
      const auto s = static_cast<size_t>(seq);
      const int32_t middle = batch.q_start()[s] + batch.prompt_rows()[s];
      const int32_t begin = prompts ? batch.q_start()[s] : middle;
      const int32_t end = prompts ? middle : batch.q_start()[s + 1];
      for (int32_t row = begin; row < end; ++row) out_[at_++] = row;
      if (prompts) num_prompt_rows += end - begin;
    }
  }
  pages = at_;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    page_at_[s] = static_cast<int32_t>(at_ - pages);
    const int32_t used = (batch.kv_len()[s] + kPageTokens - 1) / kPageTokens;
    for (int32_t i = 0; i < used; ++i) {
      out_[at_++] =
          static_cast<int32_t>(batch.pages(seq)[static_cast<size_t>(i)]);
    }
  }
  for (Work& work : works_) PutWork(batch, work);
}

void StepMessage::PutWork(const StepBatch& batch, Work& work) {
  items_.clear();
  merges_.clear();
  const int32_t tile = cuda::RowsOfItem(heads_, kv_heads_);
  // Blocks of all items if none is split.
  int64_t tiles = 0;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    tiles += (batch.q_start()[s + 1] - batch.q_start()[s] + tile - 1) / tile;
  }
  const bool splits_rows = tiles * kv_heads_ < blocks_;
  int32_t partials = 0;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    const int32_t end = batch.q_start()[s + 1];
    const auto position = [&](int32_t row) {
      return batch.positions()[static_cast<size_t>(row)];
    };
    // A few rows behind many keys go split by split, each row for itself.
    const int32_t begin = batch.q_start()[s];
    int32_t needed = 0;
    for (int32_t row = begin; row < end; ++row) {
      needed += SplitsOf(work.window, position(row), position(row)).count();
    }
    if (splits_rows && end - begin <= tile && needed > end - begin &&
        partials + needed <= kMostPartials) {
      for (int32_t row = begin; row < end; ++row) {
        const Splits splits =
            SplitsOf(work.window, position(row), position(row));
        merges_.push_back({row, partials, splits.count()});
        for (int32_t i = splits.first; i < splits.end; ++i) {
          items_.push_back({row, 1, page_at_[s], i, 1, partials++});
        }
      }
      continue;
    }
    for (int32_t row = begin; row < end; row += tile) {
      const int32_t count = std::min(tile, end - row);
      const Splits splits =
          SplitsOf(work.window, position(row), position(row + count - 1));
      items_.push_back(
          {row, count, page_at_[s], splits.first, splits.count(), -1});
    }
  }
  work.num_items = static_cast<int32_t>(items_.size());
  work.num_merges = static_cast<int32_t>(merges_.size());
  work.items = Put(Words(items_));
  work.merges = Put(Words(merges_));
}

}  // namespace millrace::models
