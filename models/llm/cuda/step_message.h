// One step as the device gets it: all of a StepBatch and who attends to what,
// in one array of int32 that is copied at once.
//
// A step that draws a token for each of its rows, none of them a prompt's, is
// padded: its rows, items and merges are brought to a few sizes, so that the
// layouts of messages come again (step_graphs.h). Rows of the padding have
// token 0 at position 0 and no page, their keys and values go nowhere, and
// nothing attends for them.
//
// How the work of attention is cut depends on the load; what comes out does not
// (models/cuda/attention.cu).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/cuda/kernels.h"
#include "models/llm/backend.h"
#include "models/llm/step.h"

namespace millrace::models {

class StepMessage {
 public:
  // Partial results of splits that a step has at most.
  static constexpr int32_t kMostPartials = 2048;

  // Where the parts of a message are, in int32.
  struct Work {  // of one window
    int32_t window = 0;
    bool chunked = false;
    int64_t items = 0;
    int32_t num_items = 0;
    int64_t prompt_items = 0;  // rows of prompts, unless pages are f32
    int32_t num_prompt_items = 0;
    int64_t merges = 0;
    int32_t num_merges = 0;
  };

  // Steps of more rows are not padded: what they compute takes longer than
  // launching it.
  static constexpr int32_t kMostPaddedRows = 512;

  // `kv_format`: of pages; `blocks`: thread blocks that occupy the device;
  // `pads`: steps are padded.
  StepMessage(const BackendShape& shape, const StepLimits& limits,
              cuda::KvFormat kv_format, int32_t blocks, bool pads);

  // Layers that attend through this window, or in chunks of so many positions,
  // have the work of the index returned. Before the first Fill.
  size_t AddWindow(int32_t window, bool chunked = false);
  // Of any message.
  int64_t most_bytes() const;

  // Writes the step to `out`, most_bytes() large.
  // `draws`: of each sample; empty: all take the greatest.
  void Fill(const StepBatch& batch, std::span<const cuda::DrawRow> draws,
            int32_t* out);

  // Of the message filled last.
  int64_t bytes() const { return at_ * 4; }
  bool padded = false;
  int32_t num_rows = 0;  // those of the padding included; num_samples likewise
  int32_t num_samples = 0;
  bool all_sample = false;  // sample i is row i, and there are no more rows
  bool names_drawn =
      false;  // some tokens are those of samples before (DrawnBy)
  // Of padded messages: all numbers here but bytes(). Messages that have the
  // same differ only in what is at these places.
  std::vector<int64_t> Layout() const;
  int64_t tokens = 0;
  int64_t positions = 0;
  int64_t row_pages = 0;     // page of each row's token; -1: none
  int64_t rows_by_role = 0;  // those of prompts, then the others
  int32_t num_prompt_rows = 0;
  int32_t first_prompt_row = 0;  // these are in [first, end)
  int32_t end_prompt_row = 0;
  int64_t sample_rows = 0;
  int64_t draws = -1;  // below 0: all take the greatest
  int64_t copies = 0;
  int64_t pages = 0;
  const Work& work(size_t index) const { return works_[index]; }

 private:
  // Values, then `padding` until there are `count`.
  int64_t Put(std::span<const int32_t> values, size_t count,
              int32_t padding = 0);
  int64_t Put(std::span<const int32_t> values) {
    return Put(values, values.size());
  }
  void ChooseSizes(const StepBatch& batch);
  void PutRowsByRole(const StepBatch& batch);
  // Consecutive rows of one sequence that attend in one way, an item's at most,
  // and the splits of keys that they see.
  struct Tile {
    int32_t first_row;
    int32_t num_rows;
    int32_t page_at;
    int32_t first_split;
    int32_t num_splits;
  };
  void PutWork(const StepBatch& batch, Work& work);
  // Those of prompts, or the others.
  void FindTiles(const StepBatch& batch, const Work& work, bool prompts);
  // Items of the tiles, each of `splits` splits at most, as long as partial
  // results have a place; and the joining of these.
  void CutTiles(int32_t splits, int32_t& partials);

  const StepLimits limits_;
  const int32_t heads_;
  const int32_t kv_heads_;
  const int32_t head_dim_;
  const cuda::KvFormat kv_format_;
  const bool prompts_apart_;  // their rows attend in another way
  const int32_t blocks_;
  const bool pads_;
  std::vector<Work> works_;
  std::vector<int32_t> page_at_;  // [num_seqs], into the pages
  std::vector<int32_t> row_pages_;
  std::vector<Tile> tiles_;
  std::vector<cuda::AttendItem> items_;
  std::vector<cuda::AttendMerge> merges_;
  int32_t* out_ = nullptr;
  int64_t at_ = 0;
};

}  // namespace millrace::models
