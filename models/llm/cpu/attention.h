// Who attends to what in one step: the work of attention cut into items, made
// once a step on the calling thread and walked by every layer.
//
// An item is (sequence, kv head, tile of query rows); all query heads that
// share the kv head are in one tile, so each K and V is loaded once for all.
// Long sequences of a single tile (decode) are cut further, into their splits,
// whose partial results meet later, in Merge. How work is cut never shows in
// the results: every row merges its splits in ascending order. Splits are cut
// by absolute position, and those that no row of a tile sees through its window
// are left out.
//
// Rows of prompts may go through a kernel of their own (prompt_attend in
// llm_kernels.h), whose bits differ. Which kernel a row takes depends on its
// token's role alone, see StepBatch::prompt_rows, so a tile holds rows of one
// role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/cpu/llm_kernels.h"
#include "models/llm/backend.h"
#include "models/llm/step.h"

namespace millrace::models {

// Bytes of one page of keys, or of values, of one head: see AttendArgs. Bytes
// of a token are these over kPageTokens, without a rest.
inline int64_t KvHeadBytes(KvFormat format, int32_t head_dim) {
  const int64_t token_bytes = format == KvFormat::kF32   ? 4 * head_dim
                              : format == KvFormat::kF16 ? 2 * head_dim
                                                         : head_dim + 4;
  return kPageTokens * token_bytes;
}

// Addresses of KV pages: [page][layer][K or V][kv head][page bytes of a head],
// so that a page is one range of memory, paid for when first used.
struct KvLayout {
  KvFormat format = KvFormat::kF16;
  int32_t layers = 0;  // of a page
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  std::byte* base = nullptr;

  int64_t head_bytes() const { return KvHeadBytes(format, head_dim); }
  int64_t page_bytes() const {
    return 2 * int64_t{layers} * kv_heads * head_bytes();
  }
  std::byte* k(PageId page, int32_t layer, int32_t kv_head) const {
    return base + static_cast<int64_t>(page) * page_bytes() +
           (int64_t{layer} * 2 * kv_heads + kv_head) * head_bytes();
  }
  std::byte* v(PageId page, int32_t layer, int32_t kv_head) const {
    return k(page, layer, kv_head) + kv_heads * head_bytes();
  }
};

class CpuAttention {
 public:
  // A way to attend, as AddVariant prepared it.
  struct Variant {
    int32_t plan = 0;  // index of the window's plan
    float softcap = 0;
    std::span<const float> sinks = {};  // of each head, or none

    const float* sink(int64_t head) const {
      return sinks.empty() ? nullptr : &sinks[static_cast<size_t>(head)];
    }
  };

  CpuAttention(const BackendShape& shape, const KernelTable& kernels,
               int num_workers);

  // Rows of prompts take the table's prompt_attend, which it must have. Before
  // the first Plan; off at first.
  void set_prompts_on_tiles(bool on) { prompts_on_tiles_ = on; }

  // Before the first Plan.
  Variant AddVariant(const AttendOptions& options);

  // Calling thread, before the phases run.
  void Plan(const StepBatch& batch);

  // One worker's share. `qkv` are rows of [q heads | …], q rotated and scaled;
  // `out` are rows of [heads][head_dim].
  void Run(const Variant& variant, int worker, const KvPlace& place,
           const KvLayout& kv, const float* qkv, int64_t ld_qkv, float* out,
           int64_t ld_out);
  // Finishes a row whose splits were worked on apart: writes all its heads and
  // returns true; false when Run has written the row already.
  bool Merge(const Variant& variant, int32_t row, float* out) const;

 private:
  // How rows of one role are cut.
  struct Role {
    bool prompt;
    int32_t split_keys;
    int32_t tile_tokens;
  };
  struct Tile {  // consecutive rows of one sequence, all of one role
    const Role* role;
    int32_t seq;
    int32_t first_row;
    int32_t num_tokens;
    int32_t first_split;
    int32_t num_splits;  // from first_split on
    int64_t partial;     // index of its first partial row, -1: worked on whole
  };
  struct Item {
    int32_t tile;
    int32_t kv_head;
    int32_t split;  // -1: all
  };
  // Work of a step for one window.
  struct Work {
    int32_t window = 0;  // 0: none
    bool chunked = false;
    int64_t partial_rows = 0;
    int64_t whole_rows = 0;  // most partial rows of a tile worked on whole
    int64_t tile_rows = 0;   // most rows of a tile
    std::vector<Tile> tiles = {};
    std::vector<int32_t> tile_of_row = {};
    std::vector<Item> items = {};
    std::vector<int64_t> cost = {};       // of each item
    std::vector<size_t> item_begin = {};  // [workers + 1]
  };
  // One split of what an item attends to: the kernel's unit of work.
  struct Part {
    const Tile* tile;
    int32_t kv_head;
    int32_t split;
  };
  struct Scratch {
    std::vector<float> q;
    std::vector<int32_t> hidden, visible;
    std::vector<float> m, l, o;
    std::vector<float> kernel;
  };

  // What all items of a layer have in common.
  struct Layer {
    const Variant& variant;
    const Work& work;
    KvPlace place;
    const KvLayout& kv;
    const float* qkv;
    int64_t ld_qkv;
    float* out;
    int64_t ld_out;
  };

  void PlanWork(Work& work);
  // Tiles and items of the rows [begin, end) of a sequence.
  void PlanRows(Work& work, const Role& role, int32_t seq, int32_t begin,
                int32_t end);
  // The same of a prompt that is not cut into splits: its tiles are as large as
  // they may be, and end where a worker's share of all work ends.
  void PlanPrompt(Work& work, int32_t seq, int32_t begin, int32_t end,
                  int64_t share);
  // Whether a prompt is so short that its splits are needed to occupy all.
  bool SplitsPrompt(const Work& work, int32_t begin, int32_t end) const;
  // One tile; returns its index.
  int32_t AddTile(Work& work, const Role& role, int32_t seq, int32_t first_row,
                  int32_t num_tokens, bool may_split);
  // Cost of attending a token of a prompt, for each kv head.
  int64_t PromptTokenCost(const Work& work, int32_t row) const;
  // Contiguous shares of the items, of equal cost.
  void ShareItems(Work& work);
  // Positions in splits: the row at `position` sees splits [first, end).
  static int32_t FirstSplit(const Work& work, const Role& role,
                            int32_t position);
  // The first key that the row at `position` sees.
  static int32_t FirstKey(const Work& work, int32_t position);
  // `next` is the worker's part after this item, null after its last.
  void RunWhole(const Layer& layer, const Item& item, const Part* next,
                Scratch& scratch);
  void RunSplit(const Layer& layer, const Item& item, const Part* next,
                Scratch& scratch);
  // Attends the tile's rows to one split. m, l and o have a place for each row
  // of the tile, in order; rows that see none of the split are left alone.
  void AttendSplit(const Layer& layer, const Part& part, const Part* next,
                   Scratch& scratch, const float* q, int64_t q_stride, float* m,
                   float* l, float* o);
  // The tile's query rows of one kv head, token by token.
  const float* GatherQ(const Layer& layer, const Tile& tile, int32_t kv_head,
                       Scratch& scratch, int64_t* q_stride);

  // Constant after construction.
  const int32_t kv_heads_;
  const int32_t group_;  // query heads for each kv head
  const int32_t head_dim_;
  const KernelTable& kernels_;
  const Role generated_, prompt_;
  const bool ask_all_caches_;  // see AttendArgs

  bool prompts_on_tiles_ = false;

  // Made by Plan, constant while phases run.
  const StepBatch* batch_ = nullptr;
  std::vector<Work> works_;  // one for each window there is

  // Each worker's own.
  std::vector<Scratch> scratch_;
  // Partials of split items, [kv head][split][token][group head] for each tile;
  // every row is written by one worker and read after a barrier.
  std::vector<float> m_, l_, o_;
};

}  // namespace millrace::models
