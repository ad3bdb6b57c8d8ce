// Which rows of a step have a LoRA adapter, by adapter, as the device gets it:
// in bytes that are copied at once, beside the step's message.
//
// Where that is padded (step_message.h), so are these lists, to as many places
// as the step has rows: steps of one Layout differ only in what is at these
// places, so that they may be captured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/cuda/lora_kernels.h"
#include "models/llm/step.h"

namespace millrace::models {

class CudaLora;  // cuda_lora.h

class LoraStep {
 public:
  // Steps of more places read x once for all splits of it. Not measured.
  static constexpr int32_t kMostSharedPlaces = 64;

  // Of any step.
  static int64_t MostBytes(const StepLimits& limits);

  // No row has an adapter.
  void Clear();
  // `adapters`: of each sequence; null: none. `padded_rows`: rows of a padded
  // step, else 0. `all_sample`: the rows that sample are all rows. To `out`,
  // MostBytes() large.
  void Fill(const StepBatch& batch, std::span<const CudaLora* const> adapters,
            int32_t padded_rows, bool all_sample, std::byte* out);

  // ---- of the step filled last ----
  struct Rows {
    int64_t tiles = 0;  // where cuda::LoraTile are, in bytes
    int32_t num_tiles = 0;
    int64_t order = 0;  // where rows are, int32
    int32_t num_places = 0;
  };
  bool any() const { return rows_.num_tiles > 0; }
  int64_t bytes() const { return bytes_; }
  int32_t most_rank() const { return most_rank_; }  // as kernels take it
  const Rows& rows() const { return rows_; }
  // Numbered by their samples.
  const Rows& samples() const { return samples_; }
  std::vector<int64_t> Layout() const {
    return {rows_.num_tiles, rows_.num_places, most_rank_};
  }

 private:
  // Lists of rows 0, 1, ... whose adapters these are, as numbers of `sorted_`;
  // below 0: none.
  Rows Put(std::span<const int32_t> adapter_of_row, int32_t padded_rows,
           std::byte* out);

  Rows rows_;
  Rows samples_;
  int64_t bytes_ = 0;
  int32_t most_rank_ = 0;
  std::vector<const CudaLora*> sorted_;  // adapters of the step
  std::vector<int32_t> of_seq_;          // numbers of these; below 0: none
  std::vector<int32_t> of_row_;
  std::vector<int32_t> order_;
  std::vector<cuda::LoraTile> tiles_;
};

}  // namespace millrace::models
