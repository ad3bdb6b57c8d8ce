#include "models/llm/cuda/step_message.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "models/llm/runner_ahead.h"

namespace millrace::models {
namespace {

constexpr int64_t kItemWords = sizeof(cuda::AttendItem) / 4;
constexpr size_t kDrawWords = sizeof(cuda::DrawRow) / 4;
constexpr int64_t kMergeWords = sizeof(cuda::AttendMerge) / 4;
static_assert(cuda::kPageRows == kPageTokens);
static_assert(sizeof(PageId) == 4 && sizeof(PageCopy) == 8);

// What so many rows are padded to: a power of two up to 16, then a multiple of
// 8, and above 64 of an eighth of the next power of two.
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

int32_t FirstKey(const StepMessage::Work& work, int32_t position) {
  if (work.window == 0) return 0;
  if (work.chunked) return position / work.window * work.window;
  return std::max(0, position - work.window + 1);
}

template <typename T>
std::span<const int32_t> Words(const std::vector<T>& values) {
  return {reinterpret_cast<const int32_t*>(values.data()),
          values.size() * sizeof(T) / 4};
}

}  // namespace

StepMessage::StepMessage(const BackendShape& shape, const StepLimits& limits,
                         cuda::KvFormat kv_format, int32_t blocks, bool pads)
    : limits_(limits),
      heads_(shape.heads),
      kv_heads_(shape.kv_heads),
      head_dim_(shape.head_dim),
      kv_format_(kv_format),
      prompts_apart_(kv_format != cuda::KvFormat::kF32),
      blocks_(blocks),
      pads_(pads),
      page_at_(static_cast<size_t>(limits.max_seqs)) {}

size_t StepMessage::AddWindow(int32_t window, bool chunked) {
  const auto found = std::ranges::find_if(works_, [&](const Work& work) {
    return work.window == window && work.chunked == chunked;
  });
  if (found == works_.end()) {
    works_.push_back({.window = window, .chunked = chunked});
    return works_.size() - 1;
  }
  return static_cast<size_t>(found - works_.begin());
}

int64_t StepMessage::most_bytes() const {
  const int64_t pages = int64_t{limits_.max_seqs} * limits_.max_pages_per_seq;
  const auto works = static_cast<int64_t>(works_.size());
  return 4 * (4 * int64_t{limits_.max_tokens} +
              limits_.max_samples * int64_t{1 + kDrawWords} +
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
  std::vector<int64_t> layout = {num_rows,  num_samples, tokens,
                                 positions, row_pages,   rows_by_role,
                                 pages,     draws,       names_drawn};
  for (const Work& work : works_) {
    layout.insert(layout.end(),
                  {work.items, work.num_items, work.merges, work.num_merges});
  }
  return layout;
}

void StepMessage::Fill(const StepBatch& batch,
                       std::span<const cuda::DrawRow> all_draws, int32_t* out) {
  out_ = out;
  at_ = 0;
  ChooseSizes(batch);
  const auto rows = static_cast<size_t>(batch.num_tokens);
  const auto all_rows = static_cast<size_t>(num_rows);
  tokens = Put(batch.tokens().first(rows), all_rows);
  names_drawn = std::ranges::any_of(batch.tokens().first(rows), IsDrawn);
  positions = Put(batch.positions().first(rows), all_rows);
  sample_rows =
      Put(batch.sample_rows().first(static_cast<size_t>(batch.num_samples)),
          static_cast<size_t>(num_samples));
  draws = -1;
  if (!all_draws.empty()) {
    // Rows of the padding are zeros: they take the greatest.
    draws = Put({reinterpret_cast<const int32_t*>(all_draws.data()),
                 all_draws.size() * kDrawWords},
                static_cast<size_t>(num_samples) * kDrawWords);
  }
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
  // In ascending order.
  const int32_t* rows = out_ + rows_by_role;
  first_prompt_row = num_prompt_rows > 0 ? rows[0] : 0;
  end_prompt_row = num_prompt_rows > 0 ? rows[num_prompt_rows - 1] + 1 : 0;
  for (int32_t row = batch.num_tokens; row < num_rows; ++row) out_[at_++] = row;
}

void StepMessage::FindTiles(const StepBatch& batch, const Work& work,
                            bool prompts) {
  tiles_.clear();
  const int32_t rows = cuda::RowsOfItem(
      cuda::PairsOfItem(kv_format_, prompts, head_dim_), heads_, kv_heads_);
  const int32_t keys = prompts ? cuda::kPromptSplitKeys : cuda::kSplitKeys;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const auto s = static_cast<size_t>(seq);
    const int32_t middle =
        batch.q_start()[s] + (prompts_apart_ ? batch.prompt_rows()[s] : 0);
    const int32_t begin = prompts ? batch.q_start()[s] : middle;
    const int32_t end = prompts ? middle : batch.q_start()[s + 1];
    for (int32_t row = begin; row < end; row += rows) {
      const int32_t count = std::min(rows, end - row);
      const int32_t first_key =
          FirstKey(work, batch.positions()[static_cast<size_t>(row)]);
      const int32_t last_key =
          batch.positions()[static_cast<size_t>(row + count - 1)];
      const int32_t first = first_key / keys;
      tiles_.push_back(
          {row, count, page_at_[s], first, last_key / keys + 1 - first});
    }
  }
}

void StepMessage::CutTiles(int32_t splits, int32_t& partials) {
  // Those with the most work start first.
  std::ranges::stable_sort(tiles_, std::ranges::greater{}, &Tile::num_splits);
  for (const Tile& tile : tiles_) {
    const int32_t needed = tile.num_rows * tile.num_splits;
    if (tile.num_splits <= splits || partials + needed > kMostPartials) {
      items_.push_back({tile.first_row, tile.num_rows, tile.page_at,
                        tile.first_split, tile.num_splits, -1, 0});
      continue;
    }
    const int32_t parts = (tile.num_splits + splits - 1) / splits;
    for (int32_t i = 0; i < parts; ++i) {
      const int32_t begin = i * tile.num_splits / parts;
      const int32_t end = (i + 1) * tile.num_splits / parts;
      items_.push_back({tile.first_row, tile.num_rows, tile.page_at,
                        tile.first_split + begin, end - begin, partials + begin,
                        tile.num_splits});
    }
    for (int32_t i = 0; i < tile.num_rows; ++i) {
      merges_.push_back({tile.first_row + i, partials, tile.num_splits});
      partials += tile.num_splits;
    }
  }
}

void StepMessage::PutWork(const StepBatch& batch, Work& work) {
  merges_.clear();
  int32_t partials = 0;

  // Completions: as many splits an item as make two items or less for each
  // block that the device has at a time. Not measured.
  items_.clear();
  FindTiles(batch, work, false);
  int64_t splits = 0;
  for (const Tile& tile : tiles_) splits += tile.num_splits;
  const int64_t wanted = 2 * int64_t{blocks_};
  CutTiles(static_cast<int32_t>((splits * kv_heads_ + wanted - 1) / wanted),
           partials);
  // A captured step of this size serves all that have no more of them.
  const auto rows = static_cast<size_t>(num_rows);
  if (padded) {
    items_.resize(items_.size() <= rows ? rows : std::bit_ceil(items_.size()));
  }
  work.num_items = static_cast<int32_t>(items_.size());
  work.items = Put(Words(items_));

  // Prompts: whole, unless their tiles leave the device idle.
  items_.clear();
  if (prompts_apart_) FindTiles(batch, work, true);
  const auto blocks = static_cast<int64_t>(tiles_.size()) * kv_heads_;
  constexpr int32_t kWhole = std::numeric_limits<int32_t>::max();
  if (prompts_apart_) CutTiles(2 * blocks < blocks_ ? 1 : kWhole, partials);
  work.num_prompt_items = static_cast<int32_t>(items_.size());
  work.prompt_items = Put(Words(items_));

  if (padded && !merges_.empty()) merges_.resize(rows);
  work.num_merges = static_cast<int32_t>(merges_.size());
  work.merges = Put(Words(merges_));
}

}  // namespace millrace::models
