// Paged attention in constant splits. The order of every float sum is fixed by
// the keys' absolute positions (the chains are written above the kernel table);
// this file only decides which worker runs which part and where partials wait.
// Source: flash decoding, Dao et al. 2023; PagedAttention, Kwon et al. 2023.
#include "models/backend/cpu_attention.h"

#include <algorithm>
#include <cstring>

namespace millrace::models {
namespace {

// Query rows that share one load of K and V. Larger tiles read KV less often,
// smaller ones balance better; 48 keeps q, scores and output in L1.
constexpr int32_t kTileRows = 48;
// What loading one key costs beside a query row's use of it.
constexpr int64_t kKeyCost = 4;
constexpr int32_t kPagesPerSplit = kSplitTokens / kPageTokens;

int32_t SplitsOf(int32_t keys) {
  return (keys + kSplitTokens - 1) / kSplitTokens;
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
      tile_tokens_(std::max(1, kTileRows / group_)),
      kernels_(kernels),
      scratch_(static_cast<size_t>(num_workers)) {}

void CpuAttention::Plan(const StepBatch& batch) {
  batch_ = &batch;
  tiles_.clear();
  items_.clear();
  tile_of_row_.resize(static_cast<size_t>(batch.num_tokens));
  int64_t partial_rows = 0;
  int32_t most_splits = 1;
  std::vector<int64_t> cost;
  int64_t total = 0;
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t begin = batch.q_start()[seq];
    const int32_t end = batch.q_start()[seq + 1];
    const bool one_tile = end - begin <= tile_tokens_;
    for (int32_t row = begin; row < end; row += tile_tokens_) {
      Tile tile{};
      tile.seq = seq;
      tile.first_row = row;
      tile.num_tokens = std::min(tile_tokens_, end - row);
      const int32_t keys = batch.positions()[row + tile.num_tokens - 1] + 1;
      tile.num_splits = SplitsOf(keys);
      tile.partial = -1;
      const bool split = one_tile && tile.num_splits > 1;
      const int64_t rows = int64_t{tile.num_tokens} * group_;
      if (split) {
        tile.partial = partial_rows;
        partial_rows += rows * kv_heads_ * tile.num_splits;
      } else {
        most_splits = std::max(most_splits, tile.num_splits);
      }
      const auto index = static_cast<int32_t>(tiles_.size());
      std::fill_n(tile_of_row_.begin() + row, tile.num_tokens, index);
      tiles_.push_back(tile);
      for (int32_t s = 0; s < (split ? tile.num_splits : 1); ++s) {
        for (int32_t head = 0; head < kv_heads_; ++head) {
          const int64_t seen =
              split ? std::min(keys - s * kSplitTokens, kSplitTokens) : keys;
          items_.push_back({index, head, split ? s : -1});
          cost.push_back(seen * (rows + kKeyCost));
          total += cost.back();
        }
      }
    }
  }

  // Contiguous shares of equal cost: item i goes where its middle falls.
  const auto workers = static_cast<int64_t>(scratch_.size());
  item_begin_.assign(scratch_.size() + 1, items_.size());
  item_begin_[0] = 0;
  int64_t before = 0;
  int64_t worker = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const int64_t middle = before + cost[i] / 2;
    while (worker + 1 < workers && middle * workers >= total * (worker + 1)) {
      item_begin_[static_cast<size_t>(++worker)] = i;
    }
    before += cost[i];
  }

  const size_t d = static_cast<size_t>(head_dim_);
  m_.resize(static_cast<size_t>(partial_rows));
  l_.resize(m_.size());
  o_.resize(m_.size() * d);
  const auto rows = static_cast<size_t>(tile_tokens_) * group_;
  const auto splits = static_cast<size_t>(most_splits);
  for (Scratch& scratch : scratch_) {
    scratch.q.resize(rows * d);
    scratch.visible.resize(rows);
    scratch.m.resize(splits * rows);
    scratch.l.resize(splits * rows);
    scratch.o.resize(splits * rows * d);
    scratch.kernel.resize(static_cast<size_t>(kernels_.attend_scratch_floats(
                              static_cast<int32_t>(rows), head_dim_)) +
                          16);
  }
}

const float* CpuAttention::GatherQ(const Tile& tile, int32_t kv_head,
                                   Scratch& scratch, const float* qkv,
                                   int64_t ld_qkv, int64_t* q_stride) {
  *q_stride = head_dim_;
  const float* first =
      qkv + tile.first_row * ld_qkv + int64_t{kv_head} * group_ * head_dim_;
  if (tile.num_tokens == 1) return first;
  const int64_t block = int64_t{group_} * head_dim_;
  for (int32_t t = 0; t < tile.num_tokens; ++t) {
    std::memcpy(scratch.q.data() + t * block, first + t * ld_qkv,
                static_cast<size_t>(block) * sizeof(float));
  }
  return scratch.q.data();
}

void CpuAttention::AttendSplit(const Part& part, const Part* next,
                               Scratch& scratch, int32_t layer,
                               const KvLayout& kv, const float* q,
                               int64_t q_stride, float* m, float* l, float* o) {
  const Tile& tile = *part.tile;
  const int32_t kv_head = part.kv_head;
  const int32_t first_key = part.split * kSplitTokens;
  const std::span<const int32_t> positions =
      batch_->positions().subspan(static_cast<size_t>(tile.first_row),
                                  static_cast<size_t>(tile.num_tokens));
  // Positions ascend: rows that see the split are the last ones of the tile.
  int32_t token = 0;
  while (positions[token] < first_key) ++token;
  const int32_t first_row = token * group_;
  AttendArgs args{};
  args.num_rows = tile.num_tokens * group_ - first_row;
  for (int32_t row = 0; row < args.num_rows; ++row) {
    const int32_t keys = positions[token + row / group_] + 1 - first_key;
    scratch.visible[row] = std::min(keys, kSplitTokens);
  }
  args.num_keys = scratch.visible[args.num_rows - 1];
  const void* k_pages[kPagesPerSplit];
  const void* v_pages[kPagesPerSplit];
  const std::span<const PageId> pages = batch_->pages(tile.seq);
  for (int32_t i = 0; i * kPageTokens < args.num_keys; ++i) {
    const PageId page = pages[part.split * kPagesPerSplit + i];
    k_pages[i] = kv.k(page, layer, kv_head);
    v_pages[i] = kv.v(page, layer, kv_head);
  }
  const void* next_k_pages[kPagesPerSplit] = {};
  if (next != nullptr) {
    const std::span<const PageId> after = batch_->pages(next->tile->seq);
    const int32_t begin = next->split * kPagesPerSplit;
    const auto end = static_cast<int32_t>(after.size());
    for (int32_t i = 0; i < kPagesPerSplit && begin + i < end; ++i) {
      const PageId page = after[begin + i];
      if (page != kNoPage) next_k_pages[i] = kv.k(page, layer, next->kv_head);
    }
  }
  args.q = q + first_row * q_stride;
  args.q_stride = q_stride;
  args.head_dim = head_dim_;
  args.visible = scratch.visible.data();
  args.k_pages = k_pages;
  args.v_pages = v_pages;
  args.next_k_pages = next_k_pages;
  args.kv_format = kv.format;
  args.m = m + first_row;
  args.l = l + first_row;
  args.o = o + int64_t{first_row} * head_dim_;
  args.o_stride = head_dim_;
  args.scratch = Aligned64(scratch.kernel);
  kernels_.attend(args);
}

void CpuAttention::RunSplit(const Item& item, const Part* next,
                            Scratch& scratch, int32_t layer, const KvLayout& kv,
                            const float* qkv, int64_t ld_qkv) {
  const Tile& tile = tiles_[item.tile];
  int64_t q_stride;
  const float* q = GatherQ(tile, item.kv_head, scratch, qkv, ld_qkv, &q_stride);
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  const int64_t at =
      tile.partial +
      (int64_t{item.kv_head} * tile.num_splits + item.split) * rows;
  AttendSplit({&tile, item.kv_head, item.split}, next, scratch, layer, kv, q,
              q_stride, m_.data() + at, l_.data() + at,
              o_.data() + at * head_dim_);
}

void CpuAttention::RunWhole(const Item& item, const Part* next,
                            Scratch& scratch, int32_t layer, const KvLayout& kv,
                            const float* qkv, int64_t ld_qkv, float* out,
                            int64_t ld_out) {
  const Tile& tile = tiles_[item.tile];
  int64_t q_stride;
  const float* q = GatherQ(tile, item.kv_head, scratch, qkv, ld_qkv, &q_stride);
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  for (int32_t split = 0; split < tile.num_splits; ++split) {
    const Part after{&tile, item.kv_head, split + 1};
    AttendSplit({&tile, item.kv_head, split},
                split + 1 < tile.num_splits ? &after : next, scratch, layer, kv,
                q, q_stride, scratch.m.data() + split * rows,
                scratch.l.data() + split * rows,
                scratch.o.data() + split * rows * head_dim_);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const auto token = static_cast<int32_t>(row / group_);
    const int32_t keys = batch_->positions()[tile.first_row + token] + 1;
    const int64_t head = int64_t{item.kv_head} * group_ + row % group_;
    kernels_.merge(scratch.m.data() + row, scratch.l.data() + row,
                   scratch.o.data() + row * head_dim_, rows, rows * head_dim_,
                   SplitsOf(keys), head_dim_,
                   out + (tile.first_row + token) * ld_out + head * head_dim_);
  }
}

void CpuAttention::Run(int worker, int32_t layer, const KvLayout& kv,
                       const float* qkv, int64_t ld_qkv, float* out,
                       int64_t ld_out) {
  Scratch& scratch = scratch_[static_cast<size_t>(worker)];
  const size_t end = item_begin_[static_cast<size_t>(worker) + 1];
  for (size_t i = item_begin_[static_cast<size_t>(worker)]; i < end; ++i) {
    const Item& item = items_[i];
    Part after{};
    if (i + 1 < end) {
      const Item& follower = items_[i + 1];
      after = {&tiles_[follower.tile], follower.kv_head,
               std::max(0, follower.split)};
    }
    const Part* next = i + 1 < end ? &after : nullptr;
    if (item.split >= 0) {
      RunSplit(item, next, scratch, layer, kv, qkv, ld_qkv);
    } else {
      RunWhole(item, next, scratch, layer, kv, qkv, ld_qkv, out, ld_out);
    }
  }
}

bool CpuAttention::Merge(int32_t row, float* out) const {
  const Tile& tile = tiles_[tile_of_row_[row]];
  if (tile.partial < 0) return false;
  const int64_t rows = int64_t{tile.num_tokens} * group_;
  const int32_t splits = SplitsOf(batch_->positions()[row] + 1);
  for (int32_t head = 0; head < kv_heads_ * group_; ++head) {
    const int64_t at = tile.partial +
                       int64_t{head / group_} * tile.num_splits * rows +
                       int64_t{row - tile.first_row} * group_ + head % group_;
    kernels_.merge(m_.data() + at, l_.data() + at, o_.data() + at * head_dim_,
                   rows, rows * head_dim_, splits, head_dim_,
                   out + int64_t{head} * head_dim_);
  }
  return true;
}

}  // namespace millrace::models
