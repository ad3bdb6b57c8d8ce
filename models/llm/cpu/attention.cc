// Paged attention in constant splits. The order of every float sum is fixed by
// the keys' absolute positions (the chains are written above the kernel table);
// this file only decides which worker runs which part and where partials wait.
// Source: flash decoding, Dao et al. 2023; PagedAttention, Kwon et al. 2023.
#include "models/llm/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "models/cpu/isa.h"

namespace millrace::models {
namespace {

// Query rows that share one load of K and V. Larger tiles read KV less often,
// smaller ones balance better; 48 keeps q, scores and output in L1.
constexpr int32_t kTileRows = 48;
// The same for rows of prompts in prompt_attend, which lays out K and V anew
// for each tile: as many as leave queries and results of a split in L2. Not
// less than some rows where another worker could take the rest.
constexpr int32_t kMostPromptRows = 768;
constexpr int32_t kLeastPromptRows = 96;
// Rows of a worker below which prompts are cut into their splits instead.
constexpr int64_t kFewPromptRows = 384;
// Keys of one call of prompt_attend: the most that it takes.
constexpr int32_t kPromptSplitKeys = 1024;
static_assert(kPageKeys == kPageTokens);
constexpr int32_t kMostPages = kPromptSplitKeys / kPageTokens;
// Tokens between what is copied to or from the rows of a step and what is asked
// for: their heads lie apart, so the CPU does not foresee it.
constexpr int64_t kTokensAhead = 4;
// What loading one key costs beside a query row's use of it; also in
// prompt_attend, and how many rows that one attends in the time of one.
constexpr int64_t kKeyCost = 4;
constexpr int64_t kPromptKeyCost = 40;
constexpr int64_t kPromptSpeed = 5;

int32_t SplitsOf(int32_t keys, int32_t split_keys) {
  return (keys + split_keys - 1) / split_keys;
}

float* Aligned64(std::vector<float>& v) {
  const auto address = reinterpret_cast<uintptr_t>(v.data());
  return v.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace

CpuAttention::CpuAttention(const BackendShape& shape,
                           const KernelTable& kernels, int num_workers)
    : kv_heads_(shape.kv_heads),
      group_(shape.heads / shape.kv_heads),
      head_dim_(shape.head_dim),
      kernels_(kernels),
      generated_{false, kSplitTokens, std::max(1, kTileRows / group_)},
      prompt_{true, kPromptSplitKeys, std::max(1, kMostPromptRows / group_)},
      ask_all_caches_(AsksAllCaches()),
      scratch_(static_cast<size_t>(num_workers)) {}

CpuAttention::Variant CpuAttention::AddVariant(const AttendOptions& options) {
  Variant variant;
  variant.softcap = options.softcap;
  variant.sinks = options.sinks;
  const auto same =
      std::find_if(works_.begin(), works_.end(), [&](const Work& work) {
        return work.window == options.window && work.chunked == options.chunked;
      });
  variant.plan = static_cast<int32_t>(same - works_.begin());
  if (same == works_.end()) {
    works_.push_back({.window = options.window, .chunked = options.chunked});
  }
  return variant;
}

int32_t CpuAttention::FirstKey(const Work& work, int32_t position) {
  if (work.window == 0) return 0;
  if (work.chunked) return position / work.window * work.window;
  return std::max(0, position + 1 - work.window);
}

int32_t CpuAttention::FirstSplit(const Work& work, const Role& role,
                                 int32_t position) {
  return FirstKey(work, position) / role.split_keys;
}

void CpuAttention::Plan(const StepBatch& batch) {
  batch_ = &batch;
  int64_t partial_rows = 0;
  int64_t whole_rows = 0;
  int64_t tile_rows = 0;
  for (Work& work : works_) {
    PlanWork(work);
    // Layers run one after the other and share the room.
    partial_rows = std::max(partial_rows, work.partial_rows);
    whole_rows = std::max(whole_rows, work.whole_rows);
    tile_rows = std::max(tile_rows, work.tile_rows);
  }

  const size_t d = static_cast<size_t>(head_dim_);
  m_.resize(static_cast<size_t>(partial_rows));
  l_.resize(m_.size());
  o_.resize(m_.size() * d);
  const auto rows = static_cast<int32_t>(tile_rows);
  int64_t kernel = kernels_.attend_scratch_floats(
      std::min(rows, generated_.tile_tokens * group_), head_dim_);
  if (prompts_on_tiles_) {
    kernel = std::max(kernel,
                      kernels_.prompt_attend_scratch_floats(rows, head_dim_));
  }
  for (Scratch& scratch : scratch_) {
    scratch.q.resize(static_cast<size_t>(tile_rows) * d);
    scratch.hidden.resize(static_cast<size_t>(tile_rows));
    scratch.visible.resize(static_cast<size_t>(tile_rows));
    scratch.m.resize(static_cast<size_t>(whole_rows));
    scratch.l.resize(static_cast<size_t>(whole_rows));
    scratch.o.resize(static_cast<size_t>(whole_rows) * d + 16);
    scratch.kernel.resize(static_cast<size_t>(kernel) + 16);
  }
}

void CpuAttention::PlanWork(Work& work) {
  const StepBatch& batch = *batch_;
  work.tiles.clear();
  work.items.clear();
  work.cost.clear();
  work.tile_of_row.resize(static_cast<size_t>(batch.num_tokens));
  work.partial_rows = 0;
  work.whole_rows = 0;
  work.tile_rows = 0;
  const auto prompt_end = [&](int32_t seq) {
    const int32_t rows = prompts_on_tiles_ ? batch.prompt_rows()[seq] : 0;
    return batch.q_start()[seq] + rows;
  };
  int64_t prompt_cost = 0;  // of those that PlanPrompt is to cut
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t begin = batch.q_start()[seq];
    const int32_t end = prompt_end(seq);
    PlanRows(work, generated_, seq, end, batch.q_start()[seq + 1]);
    if (SplitsPrompt(work, begin, end)) {
      PlanRows(work, prompt_, seq, begin, end);
    } else {
      for (int32_t row = begin; row < end; ++row) {
        prompt_cost += kv_heads_ * PromptTokenCost(work, row);
      }
    }
  }
  const int64_t total =
      prompt_cost +
      std::accumulate(work.cost.begin(), work.cost.end(), int64_t{0});
  const int64_t share = total / static_cast<int64_t>(scratch_.size()) + 1;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t begin = batch.q_start()[seq];
    const int32_t end = prompt_end(seq);
    if (!SplitsPrompt(work, begin, end)) {
      PlanPrompt(work, seq, begin, end, share);
    }
  }
  ShareItems(work);
}

int32_t CpuAttention::AddTile(Work& work, const Role& role, int32_t seq,
                              int32_t first_row, int32_t num_tokens,
                              bool may_split) {
  Tile tile{};
  tile.role = &role;
  tile.seq = seq;
  tile.first_row = first_row;
  tile.num_tokens = num_tokens;
  const int32_t keys = batch_->positions()[first_row + num_tokens - 1] + 1;
  tile.first_split = FirstSplit(work, role, batch_->positions()[first_row]);
  tile.num_splits = SplitsOf(keys, role.split_keys) - tile.first_split;
  tile.partial = -1;
  const int64_t rows = int64_t{num_tokens} * group_;
  work.tile_rows = std::max(work.tile_rows, rows);
  if (may_split && tile.num_splits > 1) {
    tile.partial = work.partial_rows;
    work.partial_rows += rows * kv_heads_ * tile.num_splits;
  } else {
    work.whole_rows = std::max(work.whole_rows, rows * tile.num_splits);
  }
  const auto index = static_cast<int32_t>(work.tiles.size());
  std::fill_n(work.tile_of_row.begin() + first_row, num_tokens, index);
  work.tiles.push_back(tile);
  return index;
}

void CpuAttention::PlanRows(Work& work, const Role& role, int32_t seq,
                            int32_t begin, int32_t end) {
  const bool one_tile = end - begin <= role.tile_tokens;
  for (int32_t row = begin; row < end; row += role.tile_tokens) {
    const int32_t index =
        AddTile(work, role, seq, row, std::min(role.tile_tokens, end - row),
                one_tile || role.prompt);
    const Tile& tile = work.tiles[index];
    const bool split = tile.partial >= 0;
    const int64_t rows = int64_t{tile.num_tokens} * group_;
    const int32_t keys = batch_->positions()[row + tile.num_tokens - 1] + 1;
    const int32_t end_split = tile.first_split + tile.num_splits;
    for (int32_t s = tile.first_split; s < end_split; ++s) {
      const int32_t left = keys - s * role.split_keys;
      const int64_t seen = split ? std::min(left, role.split_keys) : left;
      const int64_t cost = role.prompt
                               ? seen * (rows + kPromptKeyCost) / kPromptSpeed
                               : seen * (rows + kKeyCost);
      // Heads of one split are neighbours in memory.
      for (int32_t head = 0; head < kv_heads_; ++head) {
        work.items.push_back({index, head, split ? s : -1});
        work.cost.push_back(cost);
      }
      if (!split) break;
    }
  }
}

bool CpuAttention::SplitsPrompt(const Work& work, int32_t begin,
                                int32_t end) const {
  if (begin == end) return false;
  const int32_t last = batch_->positions()[end - 1];
  const int32_t first = batch_->positions()[begin];
  return int64_t{end - begin} * group_ * kv_heads_ <
             kFewPromptRows * static_cast<int64_t>(scratch_.size()) &&
         SplitsOf(last + 1, kPromptSplitKeys) -
                 FirstSplit(work, prompt_, first) >
             1;
}

int64_t CpuAttention::PromptTokenCost(const Work& work, int32_t row) const {
  const int32_t position = batch_->positions()[row];
  const int64_t seen = position + 1 - FirstKey(work, position);
  return seen * group_ / kPromptSpeed;
}

void CpuAttention::PlanPrompt(Work& work, int32_t seq, int32_t begin,
                              int32_t end, int64_t share) {
  const int32_t least = std::max(1, kLeastPromptRows / group_);
  int64_t before =
      std::accumulate(work.cost.begin(), work.cost.end(), int64_t{0});
  for (int32_t head = 0; head < kv_heads_; ++head) {
    for (int32_t row = begin; row < end;) {
      const int64_t room = share - before % share;
      int64_t cost = 0;
      int32_t tokens = 0;
      while (row + tokens < end && tokens < prompt_.tile_tokens &&
             (tokens < least || cost < room)) {
        cost += PromptTokenCost(work, row + tokens++);
      }
      if (end - row - tokens < least) {
        while (row + tokens < end) {
          cost += PromptTokenCost(work, row + tokens++);
        }
      }
      const int32_t index = AddTile(work, prompt_, seq, row, tokens, false);
      work.items.push_back({index, head, -1});
      work.cost.push_back(cost);
      before += cost;
      row += tokens;
    }
  }
}

// Item i goes where its middle falls.
void CpuAttention::ShareItems(Work& work) {
  const int64_t total =
      std::accumulate(work.cost.begin(), work.cost.end(), int64_t{0});
  const auto workers = static_cast<int64_t>(scratch_.size());
  work.item_begin.assign(scratch_.size() + 1, work.items.size());
  work.item_begin[0] = 0;
  int64_t before = 0;
  int64_t worker = 0;
  for (size_t i = 0; i < work.items.size(); ++i) {
    const int64_t middle = before + work.cost[i] / 2;
    while (worker + 1 < workers && middle * workers >= total * (worker + 1)) {
      work.item_begin[static_cast<size_t>(++worker)] = i;
    }
    before += work.cost[i];
  }
}

const float* CpuAttention::GatherQ(const Layer& layer, const Tile& tile,
                                   int32_t kv_head, Scratch& scratch,
                                   int64_t* q_stride) {
  *q_stride = head_dim_;
  const float* first = layer.qkv + tile.first_row * layer.ld_qkv +
                       int64_t{kv_head} * group_ * head_dim_;
  if (tile.num_tokens == 1) return first;
  const int64_t block = int64_t{group_} * head_dim_;
  for (int32_t t = 0; t < tile.num_tokens; ++t) {
    const bool more = t + kTokensAhead < tile.num_tokens;
    for (int64_t i = 0; more && i < block; i += 16) {
      __builtin_prefetch(first + (t + kTokensAhead) * layer.ld_qkv + i);
    }
    std::memcpy(scratch.q.data() + t * block, first + t * layer.ld_qkv,
                static_cast<size_t>(block) * sizeof(float));
  }
  return scratch.q.data();
}

void CpuAttention::AttendSplit(const Layer& layer, const Part& part,
                               const Part* next, Scratch& scratch,
                               const float* q, int64_t q_stride, float* m,
                               float* l, float* o) {
  const KvLayout& kv = layer.kv;
  const Tile& tile = *part.tile;
  const Role& role = *tile.role;
  const int32_t kv_head = part.kv_head;
  const int32_t first_key = part.split * role.split_keys;
  const std::span<const int32_t> positions =
      batch_->positions().subspan(static_cast<size_t>(tile.first_row),
                                  static_cast<size_t>(tile.num_tokens));
  // Positions ascend: rows that see the split follow each other.
  int32_t token = 0;
  while (positions[token] < first_key) ++token;
  int32_t after = tile.num_tokens;
  while (FirstSplit(layer.work, role, positions[after - 1]) > part.split) {
    --after;
  }
  const int32_t first_row = token * group_;
  AttendArgs args{};
  args.num_rows = (after - token) * group_;
  for (int32_t row = 0; row < args.num_rows; ++token) {
    const int32_t keys = positions[token] + 1 - first_key;
    for (const int32_t end = row + group_; row < end; ++row) {
      scratch.visible[row] = std::min(keys, role.split_keys);
      scratch.hidden[row] =
          std::max(0, FirstKey(layer.work, positions[token]) - first_key);
    }
  }
  args.hidden = layer.work.window > 0 ? scratch.hidden.data() : nullptr;
  args.softcap = layer.variant.softcap;
  args.num_keys = scratch.visible[args.num_rows - 1];
  const int32_t split_pages = role.split_keys / kPageTokens;
  const void* k_pages[kMostPages];
  const void* v_pages[kMostPages];
  const int32_t group = layer.place.group;
  const std::span<const PageId> pages = batch_->pages(tile.seq, group);
  for (int32_t i = 0; i * kPageTokens < args.num_keys; ++i) {
    const PageId page = pages[part.split * split_pages + i];
    const bool seen = page != kNoPage;  // else before the window
    k_pages[i] = seen ? kv.k(page, layer.place.layer, kv_head) : nullptr;
    v_pages[i] = seen ? kv.v(page, layer.place.layer, kv_head) : nullptr;
  }
  const void* next_k_pages[kMostPages] = {};
  if (next != nullptr) {
    const std::span<const PageId> later = batch_->pages(next->tile->seq, group);
    const int32_t begin =
        next->split * next->tile->role->split_keys / kPageTokens;
    const auto end = static_cast<int32_t>(later.size());
    for (int32_t i = 0; i < split_pages && begin + i < end; ++i) {
      const PageId page = later[begin + i];
      if (page != kNoPage)
        next_k_pages[i] = kv.k(page, layer.place.layer, next->kv_head);
    }
  }
  args.q = q + first_row * q_stride;
  args.q_stride = q_stride;
  args.head_dim = head_dim_;
  args.visible = scratch.visible.data();
  args.k_pages = k_pages;
  args.v_pages = v_pages;
  args.next_k_pages = next_k_pages;
  args.ask_all_caches = ask_all_caches_;
  args.kv_format = kv.format;
  args.m = m + first_row;
  args.l = l + first_row;
  args.o = o + int64_t{first_row} * head_dim_;
  args.o_stride = head_dim_;
  args.scratch = Aligned64(scratch.kernel);
  if (role.prompt) {
    kernels_.prompt_attend(args);
  } else {
    kernels_.attend(args);
  }
}

void CpuAttention::RunSplit(const Layer& layer, const Item& item,
                            const Part* next, Scratch& scratch) {
  const Tile& tile = layer.work.tiles[item.tile];
  int64_t q_stride;
  const float* q = GatherQ(layer, tile, item.kv_head, scratch, &q_stride);
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  const int64_t at = tile.partial + (int64_t{item.kv_head} * tile.num_splits +
                                     item.split - tile.first_split) *
                                        rows;
  AttendSplit(layer, {&tile, item.kv_head, item.split}, next, scratch, q,
              q_stride, m_.data() + at, l_.data() + at,
              o_.data() + at * head_dim_);
}

void CpuAttention::RunWhole(const Layer& layer, const Item& item,
                            const Part* next, Scratch& scratch) {
  const Tile& tile = layer.work.tiles[item.tile];
  int64_t q_stride;
  const float* q = GatherQ(layer, tile, item.kv_head, scratch, &q_stride);
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  float* o = Aligned64(scratch.o);
  for (int32_t i = 0; i < tile.num_splits; ++i) {
    const int32_t split = tile.first_split + i;
    const Part after{&tile, item.kv_head, split + 1};
    AttendSplit(layer, {&tile, item.kv_head, split},
                i + 1 < tile.num_splits ? &after : next, scratch, q, q_stride,
                scratch.m.data() + i * rows, scratch.l.data() + i * rows,
                o + i * rows * head_dim_);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const auto token = static_cast<int32_t>(row / group_);
    const int32_t position = batch_->positions()[tile.first_row + token];
    const int64_t head = int64_t{item.kv_head} * group_ + row % group_;
    const int32_t first = FirstSplit(layer.work, *tile.role, position);
    const int64_t at = (first - tile.first_split) * rows + row;
    float* out =
        layer.out + (tile.first_row + token) * layer.ld_out + head * head_dim_;
    const bool more = token + kTokensAhead < tile.num_tokens;
    for (int64_t i = 0; more && i < head_dim_; i += 16) {
      __builtin_prefetch(out + kTokensAhead * layer.ld_out + i, 1);
    }
    kernels_.merge(scratch.m.data() + at, scratch.l.data() + at,
                   o + at * head_dim_, rows, rows * head_dim_,
                   SplitsOf(position + 1, tile.role->split_keys) - first,
                   head_dim_, layer.variant.sink(head), out);
  }
}

void CpuAttention::Run(const Variant& variant, int worker, const KvPlace& place,
                       const KvLayout& kv, const float* qkv, int64_t ld_qkv,
                       float* out, int64_t ld_out) {
  const Work& work = works_[variant.plan];
  const Layer common{variant, work, place, kv, qkv, ld_qkv, out, ld_out};
  Scratch& scratch = scratch_[static_cast<size_t>(worker)];
  const size_t end = work.item_begin[static_cast<size_t>(worker) + 1];
  for (size_t i = work.item_begin[static_cast<size_t>(worker)]; i < end; ++i) {
    const Item& item = work.items[i];
    Part after{};
    if (i + 1 < end) {
      const Item& follower = work.items[i + 1];
      const Tile& tile = work.tiles[follower.tile];
      after = {&tile, follower.kv_head,
               std::max(tile.first_split, follower.split)};
    }
    const Part* next = i + 1 < end ? &after : nullptr;
    if (item.split >= 0) {
      RunSplit(common, item, next, scratch);
    } else {
      RunWhole(common, item, next, scratch);
    }
  }
}

bool CpuAttention::Merge(const Variant& variant, int32_t row,
                         float* out) const {
  const Work& work = works_[variant.plan];
  const Tile& tile = work.tiles[work.tile_of_row[row]];
  if (tile.partial < 0) return false;
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  const int32_t position = batch_->positions()[row];
  const int32_t first = FirstSplit(work, *tile.role, position);
  for (int32_t head = 0; head < kv_heads_ * group_; ++head) {
    const int64_t at =
        tile.partial +
        (int64_t{head / group_} * tile.num_splits + first - tile.first_split) *
            rows +
        int64_t{row - tile.first_row} * group_ + head % group_;
    kernels_.merge(
        m_.data() + at, l_.data() + at, o_.data() + at * head_dim_, rows,
        rows * head_dim_, SplitsOf(position + 1, tile.role->split_keys) - first,
        head_dim_, variant.sink(head), out + int64_t{head} * head_dim_);
  }
  return true;
}

}  // namespace millrace::models
