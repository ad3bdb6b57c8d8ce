// Rows of a table gathered and pooled by bag: embedding bags of ranking models.
// One function for each of scalar, AVX2 and AVX-512.
//
// Tables are larger than the caches and rows are read at random, so each row is
// prefetched some rows ahead, across the ends of bags. Rows that lie in a
// mapped file are read from it when they are first touched.
//
// Chain of an element, over the rows of its bag in their order, rows of
// padding_row left out; all tables give the same bits. x is the row's element
// in f32, w the row's weight:
//   sum:   acc = acc + x from +0, with weights acc = fma(w, x, acc)
//   mean:  the sum, divided by the number of rows
//   max:   the first x; then acc = x > acc ? x : acc
// Int8 rows, x = q * scale + bias: sums are fma(q, w * scale, acc), to which
// the chain of the biases, fma(w, bias, sum) or sum + bias, is added in the
// end; of a max, x = fma(q, scale, bias). An empty bag is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::models {

// How the values of a row are stored.
enum class TableRows : int32_t {
  kF32,
  kF16,
  kBf16,
  // A byte for each value, then the row's scale and bias, f32 each: the rows of
  // fbgemm, and of torch.ops.quantized.embedding_bag_byte_prepack.
  kInt8,
};
// Of a row of kInt8 behind its values.
inline constexpr int64_t kInt8RowExtra = 8;

enum class BagPool : int32_t { kSum, kMean, kMax };

// Bags [bag_begin, bag_end): bag i pools the rows rows[offsets[i]] up to
// rows[offsets[i + 1]]. All of them are rows of the table, and offsets do not
// fall. Of rows and of offsets, the pointer to one width is given.
struct PoolRowsArgs {
  const std::byte* table = nullptr;
  TableRows type = TableRows::kF32;
  BagPool pool = BagPool::kSum;
  int64_t size = 0;       // values of a row
  int64_t row_bytes = 0;  // from row to row
  const int64_t* rows = nullptr;
  const int32_t* rows32 = nullptr;
  const int64_t* offsets = nullptr;  // null: each bag has bag_rows
  const int32_t* offsets32 = nullptr;
  int64_t num_offsets = 0;  // behind the last, bags end at num_rows
  int64_t bag_rows = 0;
  int64_t num_rows = 0;            // of all bags
  const float* weights = nullptr;  // [num_rows] of a sum; may be null
  int64_t padding_row = -1;        // -1: none
  int64_t bag_begin = 0;
  int64_t bag_end = 0;
  float* out = nullptr;  // [bags][size], bag 0
};

using PoolRows = void (*)(const PoolRowsArgs& args);

void PoolRowsScalar(const PoolRowsArgs& args);
void PoolRowsAvx2(const PoolRowsArgs& args);
void PoolRowsAvx512(const PoolRowsArgs& args);

// That of a dense table ("scalar", "avx2", "avx512").
PoolRows PoolRowsOf(std::string_view dense_name);

}  // namespace millrace::models
