// What the kernels take. Plain structs and functions: the host side that calls
// them is compiled by g++, the kernels by nvcc, or by g++ too for tests. All
// pointers are the device's; rows of activations are f32, `pitch` floats apart,
// a multiple of 8, and zero behind the values of a row.
//
// Each launch is asynchronous on `stream`. No kernel adds by atomics and no sum
// depends on the number of rows in a step, so a row's bits are the same
// whatever stands beside it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::cuda {

// How a row of weights lies in memory: planes one after the other, values in
// order, value i of a plane of n bits at bit n * i. Rows are padded to 16
// bytes.
//
//   kF32, kF16, kBF16   the values
//   kQ8_0   int8 q, f16 d for each 32                    w = d * q
//   kQ4_0   4 bits, f16 d for each 32                    w = d * (q - 8)
//   kQ4_1   4 bits, f16 d and m for each 32              w = d * q + m
//   kQ5_0   4 bits, 1 bit, f16 d for each 32             w = d * (q - 16)
//   kQ5_1   4 bits, 1 bit, f16 d and m for each 32       w = d * q + m
//   kQ4_K   4 bits, uint8 s and t for each 32, f16 d and e for each 256
//                                                        w = d s q - e t
//   kQ5_K   4 bits, 1 bit, then as kQ4_K
//   kQ6_K   4 bits, 2 bits, int8 s for each 16, f16 d for each 256
//                                                        w = d s (q - 32)
enum class WeightFormat : int32_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct Weights {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int32_t inputs = 0;   // a multiple of 8, zeros behind a row's values
  int32_t outputs = 0;  // rows
  WeightFormat format = WeightFormat::kF32;
};

// x[row] = scale * table[token] (+ positions[position])
struct EmbedArgs {
  Weights table;
  Weights positions;  // no data: none
  const int32_t* tokens = nullptr;
  const int32_t* row_positions = nullptr;
  float scale = 1;
  int32_t rows = 0;
  float* x = nullptr;
  int64_t pitch = 0;
};

// What a product reads of a row of activations. Other than kF32 is made by
// RoundRows, RoundedBytes a row:
//   kF16   f16 of x / scale, then at 2 * inputs the f32 scale: a power of two,
//          such that the greatest magnitude is in [2^13, 2^14)
//   kBF16  the same with a scale of 1
//   kInt8  int8 q, each eight in the order 0 2 4 6 1 3 5 7; then for each 32
//          f32 d and the sums of q over 16 and 16, int16; x = d * q
enum class InputFormat : int32_t { kF32, kF16, kBF16, kInt8 };
constexpr int64_t RoundedBytes(InputFormat format, int64_t inputs) {
  const int64_t bytes = format == InputFormat::kF32 ? 4 * inputs
                        : format == InputFormat::kInt8
                            ? inputs + inputs / 32 * 8
                            : 2 * inputs + 4;
  return (bytes + 15) / 16 * 16;
}

// Where rows are put that are rounded as they are made. Row i of what is read
// becomes row i here.
struct RoundedRows {
  InputFormat format = InputFormat::kF32;  // kF32: nowhere
  int32_t inputs = 0;  // a multiple of 8, for kInt8 of 32; zeros behind a row
  std::byte* data = nullptr;
  int64_t bytes = 0;  // of a row
};

// Rows of x in the format.
struct RoundArgs {
  const float* x = nullptr;
  int64_t pitch = 0;
  const int32_t* row_ids = nullptr;  // null: 0, 1, ...
  int32_t rows = 0;
  RoundedRows rounded = {};
};

// out = RMS norm of x times weight (Zhang and Sennrich 2019), or with a bias
// LayerNorm (Ba et al. 2016); or with `adds` out += scale * that. `out` may be
// x, and null where only rounded rows are wanted. Rows need no pitch of eight
// values here.
struct NormArgs {
  const float* x = nullptr;
  int64_t pitch = 0;
  const int32_t* row_ids = nullptr;  // null: 0, 1, ...
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: RMS
  float eps = 0;
  int32_t width = 0;  // kMostNormWidth at most
  int32_t rows = 0;
  bool adds = false;
  float scale = 1;
  float* out = nullptr;
  int64_t out_pitch = 0;
  RoundedRows rounded = {};  // of the norm; without `adds`
};
inline constexpr int32_t kMostNormWidth = 32768;

// Uses of experts: row r uses `used` experts, its k-th use is number
// r * used + k. Some uses of one expert, `count` of them from `first` on in the
// order by expert.
struct ExpertTile {
  int32_t expert;
  int32_t first;
  int32_t count;
};

// y = W · x (+ bias), or with `adds` y += scale * (W · x (+ bias)).
struct LinearArgs {
  Weights weights;
  const float* bias = nullptr;  // null: none
  const float* x = nullptr;     // MultiplyRows
  int64_t pitch = 0;
  const std::byte* rounded = nullptr;  // the others, from RoundRows
  int64_t rounded_bytes = 0;
  const int32_t* row_ids = nullptr;  // rows of x and y; null: 0, 1, ...
  int32_t rows = 0;
  bool adds = false;
  float scale = 1;
  float* y = nullptr;
  int64_t out_pitch = 0;
  // A mixture of experts: each tile is multiplied by its expert's matrix, which
  // are all as `weights` says. `rows` is what a tile has at most; use u reads
  // row u / uses_of_row of x (of those that row_ids names) and writes row u of
  // y. Without bias.
  const ExpertTile* tiles = nullptr;  // null: one matrix
  int32_t num_tiles = 0;
  const int32_t* order = nullptr;              // uses by expert
  const std::byte* const* matrices = nullptr;  // of each expert
  int32_t uses_of_row = 1;
};
// Uses of a tile at most. In f32 and int8, of so many rows, of which an expert
// has one use each at most; on tensor cores by how many uses an expert has on
// average. Not measured.
inline int32_t TileRows(int32_t rows) {
  return rows == 1 ? 1 : rows <= 4 ? 4 : 8;
}
inline constexpr int32_t kFewTensorRows = 32;
inline constexpr int32_t kManyTensorRows = 128;
inline int32_t TensorTileRows(int32_t uses, int32_t experts) {
  return uses > 64 * experts ? kManyTensorRows : kFewTensorRows;
}

// Chooses the experts of each row: those of the greatest logits, of equals the
// first, in ascending order. Weights are the softmax of all logits, or with
// `normalise` of the chosen ones, or with `sigmoid` that of each logit.
struct RouteArgs {
  const float* logits = nullptr;
  int64_t pitch = 0;
  const int32_t* row_ids = nullptr;  // rows of logits; null: 0, 1, ...
  int32_t rows = 0;
  int32_t experts = 0;  // that compete
  int32_t used = 0;     // kMostExpertsUsed at most
  bool normalise = false;
  bool sigmoid = false;
  int32_t* chosen = nullptr;  // [rows][used]
  float* weights = nullptr;   // [rows][used]
};
inline constexpr int32_t kMostExpertsUsed = 32;
inline constexpr int32_t kMostExperts = 1024;

// The uses by expert, those of one in ascending order, and their tiles; tiles
// that are left over have no uses.
struct OrderUsesArgs {
  const int32_t* chosen = nullptr;  // [uses]
  int32_t uses = 0;
  int32_t experts = 0;    // kMostExperts at most
  int32_t tile_rows = 1;  // uses of a tile at most
  int32_t* order = nullptr;
  int32_t* counts = nullptr;    // [experts] uses of each
  int32_t* num_read = nullptr;  // experts that have uses
  ExpertTile* tiles = nullptr;
  int32_t num_tiles = 0;  // MostTiles
};
inline int32_t MostTiles(int32_t uses, int32_t experts, int32_t tile_rows) {
  const int32_t most = uses / tile_rows + experts;
  return most < uses ? most : uses;
}

// out = sum over a row's uses, in order, of weight * y, then of the shared
// expert's row times the sigmoid of its logit; or with `adds` out += scale *
// that.
struct CombineArgs {
  // Rows of out, of the shared expert and of its logits; null: 0, 1, ...
  const int32_t* row_ids = nullptr;
  const float* y = nullptr;  // a row for each use
  int64_t pitch = 0;
  const float* weights = nullptr;  // [rows][used]; null: all are 1
  int32_t used = 0;
  // Added to y: of use u bias[chosen[u]], [..][width].
  const float* bias = nullptr;  // null: none
  const int32_t* chosen = nullptr;
  const float* shared = nullptr;  // null: none
  int64_t shared_pitch = 0;
  const float* shared_logits = nullptr;  // null: its weight is 1
  int64_t logits_pitch = 0;
  int32_t width = 0;
  int32_t rows = 0;
  bool adds = false;
  float scale = 1;
  float* out = nullptr;
  int64_t out_pitch = 0;
};

// Keys and values: [page][layer][K or V][kv head], and for each kv head
// [64 tokens][head_dim] f16 or f32.
//
// kInt8: for each kv head [64 tokens][row_bytes] int8 q, zeros behind head_dim
// of them, then [64] f32 d; a value is d * q. The greatest magnitude of a
// token's key or value of a head becomes 127. q and d are those of the engine
// on cores.
enum class KvFormat : int32_t { kF16, kF32, kInt8 };
inline constexpr int32_t kPageRows = 64;
struct KvCache {
  std::byte* base = nullptr;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  KvFormat format = KvFormat::kF16;
  // As KvCacheOf finds them.
  int32_t row_bytes = 0;   // of a token's key or value of a head
  int32_t head_bytes = 0;  // of a page's keys or values of a head, d included
  int64_t page_bytes = 0;  // of all layers
};
inline KvCache KvCacheOf(KvFormat format, int32_t layers, int32_t kv_heads,
                         int32_t head_dim, std::byte* base = nullptr) {
  KvCache kv;
  kv.base = base;
  kv.kv_heads = kv_heads;
  kv.head_dim = head_dim;
  kv.format = format;
  const bool int8 = format == KvFormat::kInt8;
  kv.row_bytes = int8 ? (head_dim + 15) / 16 * 16
                      : head_dim * (format == KvFormat::kF32 ? 4 : 2);
  kv.head_bytes = kPageRows * (kv.row_bytes + (int8 ? 4 : 0));
  kv.page_bytes = 2 * int64_t{layers} * kv_heads * kv.head_bytes;
  return kv;
}

// Normalises each head of q and k if wanted, rotates both, scales q where it
// stands, and stores k and v. Rows of qkv are q heads, k heads, v heads.
//
// q at position p is multiplied by q_scale, and with a temper_length by 1 +
// temper_scale * log(1 + floor((p + 1) / temper_length)).
struct RopeArgs {
  KvCache kv;
  int32_t layer = 0;
  int32_t heads = 0;
  float* qkv = nullptr;
  int64_t pitch = 0;
  int32_t rows = 0;
  const int32_t* row_positions = nullptr;
  // Page of each row's token; -1: its k and v are not stored.
  const int32_t* row_pages = nullptr;
  const float* frequencies = nullptr;  // [rope_dims / 2]; null: not rotated
  float magnitude = 1;
  int32_t rope_dims = 0;
  bool interleaved = false;
  const float* q_norm = nullptr;  // [head_dim], or null
  const float* k_norm = nullptr;
  float eps = 0;
  float q_scale = 1;
  float temper_length = 0;  // 0: off
  float temper_scale = 0;
};

// Consecutive rows of one sequence and a range of splits of its keys. Without
// rows it is nothing, so that a list may be padded.
struct AttendItem {
  int32_t first_row;
  int32_t num_rows;
  int32_t page_at;      // index of the sequence's first page in `pages`
  int32_t first_split;  // splits are by absolute position
  int32_t num_splits;
  // Where partial results go: that of the item's row i and its split s to
  // partial + i * partial_step + s; -1: the item has all splits that its rows
  // see, and what comes out of them goes to `out`.
  int32_t partial;
  int32_t partial_step;
};
// A row whose splits were worked on apart. Without partial results it is
// nothing.
struct AttendMerge {
  int32_t row;
  int32_t first_partial;
  int32_t num_partials;
};
// Keys of a split, and of a split in prompt_items.
inline constexpr int32_t kSplitKeys = 256;
inline constexpr int32_t kPromptSplitKeys = 4096;
inline constexpr int32_t kMostHeadDim = 256;

// out = softmax(q · K) · V over each row's own sequence. Source: Flash-Decoding
// (Dao et al. 2023), FlashAttention-2 (Dao 2023), over pages (Kwon et al.
// 2023).
//
// With pages of f16 or int8 products are those of tensor cores: f16, sums in
// f32; int8 are whole f16, and their d multiplies scores and weights in f32.
// Rows in prompt_items go another way than those in items and have other bits,
// so a row's role chooses. With pages of f32 all is f32, and all rows are in
// items.
struct AttendArgs {
  KvCache kv;
  int32_t layer = 0;
  int32_t heads = 0;
  const float* q = nullptr;
  int64_t pitch = 0;
  const int32_t* row_positions = nullptr;
  const int32_t* pages = nullptr;
  const AttendItem* items = nullptr;
  int32_t num_items = 0;
  const AttendItem* prompt_items = nullptr;
  int32_t num_prompt_items = 0;
  const AttendMerge* merges = nullptr;
  int32_t num_merges = 0;
  // Keys that a row sees, its own the last; 0: all. Or `chunked`: of chunks of
  // so many positions the keys of its own chunk up to its own.
  int32_t window = 0;
  bool chunked = false;
  float softcap = 0;  // scores become cap * tanh(score / cap); 0: they stay
  // A score of each head that takes its share of the weights and has no value
  // (Xiao et al. 2023); null: none.
  const float* sinks = nullptr;
  // Partial results: greatest score and sum of weights, [partial][heads], and
  // weighted values, [partial][heads][head_dim].
  float* partial_max = nullptr;
  float* partial_sum = nullptr;
  float* partial_out = nullptr;
  float* out = nullptr;
  int64_t out_pitch = 0;
};
// (Row, head) pairs that share a pass over the keys.
inline int32_t PairsOfItem(KvFormat format, bool prompt, int32_t head_dim) {
  if (!prompt) return format == KvFormat::kF32 ? 8 : 16;
  return head_dim <= 128 ? 128 : 64;
}
// Rows of one item at most: as many as have so many pairs. If it is one row,
// its heads may go some at a time.
inline int32_t RowsOfItem(int32_t pairs, int32_t heads, int32_t kv_heads) {
  const int32_t rows = pairs / (heads / kv_heads);
  return rows > 0 ? rows : 1;
}

// kClampedSwiglu: g / (1 + exp(-1.702 g)) * (u + 1) with g = min(gate, 7), u =
// up in [-7, 7] (gpt-oss).
enum class RowFunction : int32_t { kSilu, kGelu, kGeluErf, kClampedSwiglu };

// out = act(gate) * up, gate and up beside one another in a row of x; without a
// gate act(x). `out` may be null where only rounded rows are wanted.
struct ActivateArgs {
  const float* x = nullptr;
  int64_t pitch = 0;
  const int32_t* row_ids = nullptr;  // null: 0, 1, ...
  int32_t width = 0;                 // of out
  int32_t rows = 0;
  bool gated = true;
  RowFunction function = RowFunction::kSilu;
  // Added to gate and up before: of row r bias[bias_of[r]], [..][2 * width].
  const float* bias = nullptr;  // null: none
  const int32_t* bias_of = nullptr;
  float* out = nullptr;
  int64_t out_pitch = 0;
  RoundedRows rounded = {};
};

// to[i] = weights[i] * from[rows[i / repeats]]
struct GatherArgs {
  const float* from = nullptr;
  const int32_t* rows = nullptr;  // null: 0, 1, ...
  int32_t repeats = 1;
  const float* weights = nullptr;  // null: all are 1
  int32_t num_rows = 0;
  int32_t width = 0;
  int64_t pitch = 0;  // of both
  float* to = nullptr;
};

// y += scale * x
struct AddRowsArgs {
  const float* x = nullptr;
  int64_t pitch = 0;  // of both
  int32_t width = 0;
  int32_t rows = 0;
  float scale = 1;
  float* y = nullptr;
};

// Copies pages of all layers: copies[i] is (source, destination).
struct CopyPagesArgs {
  std::byte* base = nullptr;
  int64_t page_bytes = 0;  // a multiple of 16
  const int32_t* copies = nullptr;
  int32_t num_copies = 0;
};

// logits = cap * tanh(scale * logits / cap), without cap scale * logits; then
// ids[row] = the first of the greatest ones (0 where all are NaN).
inline constexpr int32_t kHeadPart = 4096;  // ids that a block looks at
struct Greatest {
  float logit;
  int32_t id;  // -1: none
};
struct HeadArgs {
  float* logits = nullptr;
  int64_t pitch = 0;
  int32_t vocab = 0;
  int32_t rows = 0;
  float scale = 1;
  float softcap = 0;
  Greatest* parts = nullptr;  // room for PartsOfHead a row
  int32_t* ids = nullptr;
};
constexpr int32_t PartsOfHead(int32_t vocab) {
  return (vocab + kHeadPart - 1) / kHeadPart;
}

// How one row draws. Source: SamplingParams in models/llm/step.h.
struct DrawRow {
  float inverse_temperature = 0;  // 0: the id stays that of the greatest logit
  int32_t top_k = 0;              // 0: off
  float top_p = 1;                // 1: off
  float min_p = 0;                // 0: off
  uint32_t random_low = 0;        // 64 random bits
  uint32_t random_high = 0;
};

// ids[row] becomes the id that is drawn from the logits of the row, which are
// overwritten. Before, it is that of the greatest one.
struct DrawArgs {
  float* logits = nullptr;
  int64_t pitch = 0;
  int32_t vocab = 0;  // 2^19 at most
  int32_t rows = 0;
  const DrawRow* draws = nullptr;
  int32_t* ids = nullptr;
};

// For ReadBytes `bytes` at `data`; for MultiplyFragments `repeats` rounds,
// whose multiply-adds MacsOfFragments tells.
inline constexpr int kPeakChains = 8;
inline constexpr int kPeakWarps = 8;
struct PeakArgs {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int32_t repeats = 0;
  int32_t blocks = 0;
  uint32_t* sink = nullptr;
};
inline double MacsOfFragments(const PeakArgs& args) {
  return 16.0 * 8 * 16 * kPeakChains * kPeakWarps * args.blocks * args.repeats;
}

using Stream = void*;

// Each returns 0, or the number of the device's error.
int Embed(Stream stream, const EmbedArgs& args);
int NormRows(Stream stream, const NormArgs& args);
int RoundRows(Stream stream, const RoundArgs& args);
// The same product three times. MultiplyRows takes f32 rows, MultiplyOnTensors
// f16 (weights in BF16: bf16) and not weights in F32, MultiplyInt8 int8 and
// only quantised weights. They give different bits, so the host chooses by what
// a row is, never by how many there are.
int MultiplyRows(Stream stream, const LinearArgs& args);
int MultiplyOnTensors(Stream stream, const LinearArgs& args);
int MultiplyInt8(Stream stream, const LinearArgs& args);
int RouteRows(Stream stream, const RouteArgs& args);
int OrderUses(Stream stream, const OrderUsesArgs& args);
int CombineExperts(Stream stream, const CombineArgs& args);
int RopeWriteKv(Stream stream, const RopeArgs& args);
int Attend(Stream stream, const AttendArgs& args);
int Activate(Stream stream, const ActivateArgs& args);
int GatherRows(Stream stream, const GatherArgs& args);
int AddRows(Stream stream, const AddRowsArgs& args);
int CopyPages(Stream stream, const CopyPagesArgs& args);
int FinishLogits(Stream stream, const HeadArgs& args);
int DrawTokens(Stream stream, const DrawArgs& args);
int ReadBytes(Stream stream, const PeakArgs& args);
int MultiplyFragments(Stream stream, const PeakArgs& args);

}  // namespace millrace::cuda
