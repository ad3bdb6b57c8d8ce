#include "models/llm/cuda/step_message.h"

#include <algorithm>
#include <bit>

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

// What so many rows are padded to: a power of two up to 8, then a multiple of
// an eighth of one, so that the padding is a quarter at most.
int32_t PaddedRows(int32_t rows) {
  const auto whole =
      static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(rows)));
  if (whole <= 8) return whole;
  const int32_t unit = std::max(8, whole / 8);
  return (rows + unit - 1) / unit * unit;
}

int32_t PagesOf(const StepBatch& batch, int32_t seq) {
  const int32_t keys = batch.kv_len()[static_cast<size_t>(seq)];
  return (keys + kPageTokens - 1) / kPageTokens;
}

template <typename T>
std::span<const int32_t> Words(const std::vector<T>& values) {
  return {reinterpret_cast<const int32_t*>(values.data()),
          values.size() * sizeof(T) / 4};
}

}  // namespace

StepMessage::StepMessage(const BackendShape& shape, const StepLimits& limits,
                         int32_t blocks, bool pads)
    : limits_(limits),
      heads_(shape.heads),
      kv_heads_(shape.kv_heads),
      blocks_(blocks),
      pads_(pads),
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
              works * (kItemWords * 2 * (limits_.max_tokens + kMostPartials) +
                       kMergeWords * (limits_.max_tokens + kMostPartials)));
}

int64_t StepMessage::Put(std::span<const int32_t> values, size_t count,
                         int32_t padding) {
  std::ranges::copy(values, out_ + at_);
  const int64_t begin = at_;
  at_ += static_cast<int64_t>(count);
  std::fill(out_ + begin + values.size(), out_ + at_, padding);
  return begin;
}

void StepMessage::ChooseSizes(const StepBatch& batch) {
  const auto prompts =
      batch.prompt_rows().first(static_cast<size_t>(batch.num_seqs));
  all_sample = batch.num_samples == batch.num_tokens;
  for (int32_t i = 0; all_sample && i < batch.num_samples; ++i) {
    all_sample = batch.sample_rows()[static_cast<size_t>(i)] == i;
  }
  padded = pads_ && all_sample && batch.num_copies == 0 &&
           batch.num_tokens <= kMostPaddedRows &&
           std::ranges::all_of(prompts, [](int32_t n) { return n == 0; });
  const int32_t rows = std::min(
      {PaddedRows(batch.num_tokens), limits_.max_tokens, limits_.max_samples});
  num_rows = padded ? rows : batch.num_tokens;
  num_samples = padded ? rows : batch.num_samples;
}

std::vector<int64_t> StepMessage::Layout() const {
  std::vector<int64_t> layout = {num_rows,  num_samples,  tokens, positions,
                                 row_pages, rows_by_role, pages};
  for (const Work& work : works_) {
    layout.insert(layout.end(),
                  {work.items, work.num_items, work.merges, work.num_merges});
  }
  return layout;
}

void StepMessage::Fill(const StepBatch& batch, int32_t* out) {
  out_ = out;
  at_ = 0;
  ChooseSizes(batch);
  const auto rows = static_cast<size_t>(batch.num_tokens);
  const auto all_rows = static_cast<size_t>(num_rows);
  tokens = Put(batch.tokens().first(rows), all_rows);
  positions = Put(batch.positions().first(rows), all_rows);
  sample_rows =
      Put(batch.sample_rows().first(static_cast<size_t>(batch.num_samples)),
          static_cast<size_t>(num_samples));
  copies = at_;
  for (int32_t i = 0; i < batch.num_copies; ++i) {
    const PageCopy& copy = batch.copies()[static_cast<size_t>(i)];
    out_[at_++] = static_cast<int32_t>(copy.src);
    out_[at_++] = static_cast<int32_t>(copy.dst);
  }
  row_pages_.clear();
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    for (int32_t row = batch.q_start()[s]; row < batch.q_start()[s + 1];
         ++row) {
      const int32_t position = batch.positions()[static_cast<size_t>(row)];
      row_pages_.push_back(static_cast<int32_t>(
          batch.pages(seq)[static_cast<size_t>(position / kPageTokens)]));
    }
  }
  row_pages = Put(row_pages_, all_rows, -1);
  PutRowsByRole(batch);
  int32_t page = 0;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    page_at_[static_cast<size_t>(seq)] = page;
    page += PagesOf(batch, seq);
  }
  for (Work& work : works_) PutWork(batch, work);
  // The last part, because its size depends on the sequences' lengths.
  pages = at_;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    for (int32_t i = 0; i < PagesOf(batch, seq); ++i) {
      out_[at_++] =
          static_cast<int32_t>(batch.pages(seq)[static_cast<size_t>(i)]);
    }
  }
}

void StepMessage::PutRowsByRole(const StepBatch& batch) {
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
  for (int32_t row = batch.num_tokens; row < num_rows; ++row) out_[at_++] = row;
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
  if (padded) {
    const auto rows = static_cast<size_t>(num_rows);
    items_.resize(items_.size() <= rows ? rows : std::bit_ceil(items_.size()));
    if (!merges_.empty()) merges_.resize(rows);
  }
  work.num_items = static_cast<int32_t>(items_.size());
  work.num_merges = static_cast<int32_t>(merges_.size());
  work.items = Put(Words(items_));
  work.merges = Put(Words(merges_));
}

}  // namespace millrace::models
