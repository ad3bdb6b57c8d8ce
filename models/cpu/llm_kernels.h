// KernelTable: the functions that do the numbers on a CPU, one table for each
// instruction set. Every table gives the same bits wherever sums are exact
// integers, because all follow the float chains written here; scalar serves
// everything and is the one to read.
//
// This header is all that a file under kernels/<isa>/ may include of ours:
// plain structs and function pointers, no inline functions, so that no code
// compiled for a big machine can be linked into a small one.
//
// ---- Chains -------------------------------------------------------------
// Q8 row: 32 values a block, d = max|x| / 127 (f32), q =
// round-to-nearest-even(x * (1/d)), sum = Σ q (integer), s = d * float(sum),
// half = the sums of values 0…15 and 16…31. A block whose d is below the least
// normal float counts as zero: d, q, s and all sums are 0. So q stays within
// -127…127.
//
// Linear, integer weights, y[m][n] over blocks of 32 columns b = 0, 1, …:
//   isum = Σ w_q * x_q                    exact, any order
//   Q8_0, Q4_0 (w_q = code - 8), Q5_0 (code - 16), IQ4_NL, IQ4_XS, MXFP4 (w_q
//   from a table of 16):            acc = fma(float(isum), dw * dx, acc)
//   Q4_1, Q5_1, Q4_K, Q5_K (w_q = code):
//                                   acc = fma(float(isum), dw * dx, acc)
//                                   acc = fma(mw, s, acc)
// with dw, mw the block's f16 turned into f32; MXFP4: dw = 2^(e - 128); Q4_K
// and Q5_K: dw = d * float(sc), mw = -(dmin * float(mn)); IQ4_XS: dw = d *
// float(ls - 32). All of these products are exact.
// With a scale for each half h of 16 columns:
//   Q6_K (w_q = code - 32), Q3_K (code - 4):
//     isum = Σ_h sc_h * Σ w_q * x_q       exact, below 2^24
//                                   acc = fma(float(isum), d * dx, acc)
//   Q2_K (w_q = code): isum as above, imin = Σ_h mn_h * half_h
//                                   acc = fma(float(isum), d * dx, acc)
//                                   acc = fma(float(imin), -(dmin * dx), acc)
// What codes and scales are in the file: kernels/blocks.h.
//
// Linear, float weights (F32, F16, BF16 → f32 exactly): four strands k mod 4,
// each acc_j = fma(w, x, acc_j) ascending, then (a0 + a1) + (a2 + a3).
// So a vector kernel has rows in its lanes, never k.
//
// Linear, BF16 weights in a table with round_row (not the bits of the others):
// x becomes bf16, to nearest even, a subnormal f32 becoming a zero; pairs
// p = (2p, 2p + 1) of columns, an odd last one beside a zero; four strands
// p mod 4, each ascending
//   acc_j = fma(w[2p+1], x[2p+1], acc_j); acc_j = fma(w[2p], x[2p], acc_j)
// where a subnormal operand counts as zero and a subnormal result becomes zero
// (signs stay); then (a0 + a1) + (a2 + a3), plainly in f32. That is what
// vdpbf16ps does (Intel SDM volume 2; compared with AMD family 26 over 32
// million lanes).
// The amx table follows tdpbf16ps instead (Intel SDM volume 2): steps of 16
// pairs, a last one filled up with zeros; in each step two strands from 0, even
// and odd columns, ascending, u_j = fma(w, x, u_j); then acc = acc + (u0 + u1).
// Subnormals as above, in these sums too.
// So neither the number of rows nor a cut between steps shows.
//
// prompt_linear of the amx table, integer weights and bf16 rows (not the bits
// of `linear`): the unpacked weight (see below) becomes bf16, to nearest even,
// a subnormal becoming a zero; then the chain of BF16 weights in the amx table.
// With 1536 columns it is 2.2e-3 to 2.5e-3 of the exact sum away from it, rms
// (MXFP4, whose weights are bf16 already: 1.7e-3). Integer weights in `linear`
// of the amx table have the chain and the bits of every table.
//
// Lane tree over an array (norms, softmax sums): lane j of 8 takes elements
// j, j + 8, …, ascending; then (l0+l4, l1+l5, l2+l6, l3+l7), then (+2), (+1).
// A missing element adds 0.
//
// Norm: r = 1 / sqrt(ss / float(n) + eps) with ss the lane tree of
// fma(x, x, lane); out = (x * r) * weight.
// SiLU: t = 1 / (1 + exp(-gate)); out = (gate * t) * up.
// GELU, the tanh form (Hendrycks and Gimpel 2016), as gate * sigmoid(u):
//   u = gate * fma(gate * gate, 7.13548163e-2, 1.59576912)
//   t = 1 / (1 + exp(-u)); out = (gate * t) * up.
// Soft cap: (1 - 2 / (exp(x * (2 / cap)) + 1)) * cap.
// Unpacked weights: fma(float(w_q), dw, mw) with a minimum, which for Q2_K is
// fma(float(w_q), d * float(sc), -(dmin * float(mn))); float(w_q) * dw without,
// which for Q6_K and Q3_K is float(w_q) * (d * float(sc)).
//
// exp: one polynomial for all tables (Cephes expf constants):
//   x = min(x, 88.37626); n = round-to-nearest-even(x * 1.44269504);
//   r = fma(n, -0.693359375, x); r = fma(n, 2.12194440e-4, r);
//   p = 1.9875691500e-4; p = fma(p, r, 1.3981999507e-3);
//   p = fma(p, r, 8.3334519073e-3); p = fma(p, r, 4.1665795894e-2);
//   p = fma(p, r, 1.6666665459e-1); p = fma(p, r, 5.0000001201e-1);
//   p = fma(p, r * r, r) + 1;   times 2^n by exponent bits;
//   0 where x < -87.33654, so a logit of -infinity has no chance at all.
// exp(0) is exactly 1; a NaN stays one.
//
// KV in int8: a key or value of one head is quantised like a Q8 block, only as
// long as the head: q in -127…127 and one d. A query row is, too, when keys are
// int8; then the products are integers.
//
// Attention of one query row over one split [k0, k1) of keys, k0 a multiple of
// 256, only its visible keys:
//   s[k] = chain over d ascending of fma(q[d], K[k][d], s), q pre-scaled
//   int8: s[k] = float(Σ q8[d] * K8[k][d]) * (dq * dk[k])
//   with a soft cap: s = (1 - 2 / (exp(s * (2 / cap)) + 1)) * cap, which is
//   cap * tanh(s / cap)
//   m = max s;  p[k] = exp(s[k] - m);  l = lane tree of p, lane k mod 8
//   o[d] = chain over keys ascending of fma(p[k], V[k][d], o)
//   int8: fma(p[k] * dv[k], float(V8[k][d]), o)
// Attention of a prompt's row (prompt_attend) over one split [k0, k1) of keys,
// k0 a multiple of 1024, only its visible keys:
//   q, K and V become bf16, to nearest even, a subnormal f32 becoming a zero; V
//   within bf16's finite values, so that infinities and NaN become one of them
//   s[k] = the amx table's chain of BF16 weights over d; a soft cap as above
//   In runs of 256 keys, k0 + 256 i, ascending, those where it sees a key:
//   M = max(m, s[k] of the run), in the first run without m;
//   e(x) = 2^fma(x, log2e, -(M * log2e)), log2e = 1.44269504; p[k] = e(s[k]) in
//   bf16; c = e(m); then m = M
//   2^x = (((a3 r + a2) r + a1) r + a0) * 2^floor(x), fma each, r = x -
//     floor(x), a = 9.9992522e-1, 6.9583354e-1, 2.2606716e-1, 7.8024521e-2; 0
//     where x < -100; a NaN stays one
//   l = fma(l, c, sum of p): lane j of 32 takes keys j, j + 32, …, ascending;
//     lanes 2 i and 2 i + 1 are added, the 16 sums as (s0+s8, s1+s9, …), then
//     the lane tree
//   o[d] = fma(o[d], c, sum): the amx table's chain over all keys of the run, p
//     of those not seen being 0
//   In the first run l and o[d] are the sums. A zero in o has either sign.
// l sums the rounded p, so that the weights of a row sum to 1: with p before
// rounding, what all values have in common would be off by the mean error.
//
// Merge of splits, ascending: M = max m_i; c_i = exp(m_i - M);
//   L = chain of fma(c_i, l_i, L); O[d] = chain of fma(c_i, o_i[d], O);
//   out = O * (1 / L). One split gives the same as no merge.
//   A sink (a logit without a value) joins last: M = max(M, sink) before all
//   c_i, L = L + exp(sink - M) after them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {

// Keys of a page of the KV cache: kPageTokens of models/llm/step.h, which
// models/llm/cpu compares.
inline constexpr int32_t kPageKeys = 64;

// Formats of packed weights; values are stable within one build only.
// The integer formats follow the float ones.
enum class WeightFormat : int32_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};
enum class KvFormat : int32_t { kF16, kF32, kInt8 };

// A row of activations quantised to 32-value blocks. One plane each, so that
// a vector load of 4-byte groups never crosses a header.
//   q    [blocks * 32] int8
//   d    [blocks] f32 scale
//   s    [blocks] f32 d * sum
//   sum  [blocks] int32
//   half [blocks][2] int16 sums of 16 values each, so that one 32-bit broadcast
//        and a multiply-add of pairs meet two 16-bit factors of a row
struct Q8Row {
  int8_t* q;
  float* d;
  float* s;
  int32_t* sum;
  int16_t* half;
};

// Rows of activations as a linear phase reads them. Exactly one form is set.
//   f32  [m][ld_f32]
//   bf16 [m][ld_bf16], of an even number of values
//   q8   planes of m rows: q + row * ld_q etc.
struct ActRows {
  const float* f32 = nullptr;
  int64_t ld_f32 = 0;
  const uint16_t* bf16 = nullptr;
  int64_t ld_bf16 = 0;
  const int8_t* q = nullptr;
  const float* d = nullptr;
  const float* s = nullptr;
  const int32_t* sum = nullptr;
  const int16_t* half = nullptr;
  int64_t ld_q = 0;      // bytes between rows of q
  int64_t ld_block = 0;  // elements between rows of d, s and sum; pairs of half
};

// A packed matrix [n][k]: groups of row_group rows, k in order inside. Rows are
// padded with zeros to a whole group. group_bytes apart.
struct PackedMatrix {
  const void* data = nullptr;
  WeightFormat format = WeightFormat::kF32;
  int64_t n = 0;  // rows = outputs
  int64_t k = 0;  // columns = inputs, whole blocks of the file's format
  int64_t group_bytes = 0;
};

// Attention over one split for rows that share a KV head.
struct AttendArgs {
  // q: [num_rows][head_dim] f32, already scaled, rows of one KV head: for
  // several tokens and all query heads of the group, in any order.
  const float* q;
  int64_t q_stride;  // floats between rows
  int32_t num_rows;
  int32_t head_dim;  // a multiple of 16
  // A row sees the keys hidden[row]…visible[row] - 1 of this split, one at
  // least. The greatest of visible, up to 256, is num_keys; hidden may be null:
  // all 0. Pages that no row sees may have null pointers. prompt_attend takes
  // up to 1024 keys.
  const int32_t* visible;  // [num_rows]
  const int32_t* hidden;   // [num_rows]
  float softcap;           // of scores; 0: none
  int32_t num_keys;
  // K and V of this head, one pointer for each page of kPageKeys keys,
  // 64-byte aligned:
  //   K page  [group of 16 keys][head_dim][16]
  //   V page  [key][head_dim]
  // int8 has neighbouring dims of a key in fours, and scales at the end:
  //   K page  [group of 16 keys][head_dim / 4][16][4] int8, [64] f32
  //   V page  [key][head_dim] int8, [64] f32
  const void* const* k_pages;
  const void* const* v_pages;
  // K pages that will be wanted next, as many as k_pages has: asked for early.
  // An entry may be null; nothing is ever read through them. Not for
  // prompt_attend.
  const void* const* next_k_pages;
  // How pages are asked for: into all caches, or (false) into the nearest
  // alone, which is better where that keeps such lines until they are read. See
  // AsksAllCaches of isa.h.
  bool ask_all_caches = false;
  KvFormat kv_format;
  // Partial results of each row.
  float* m;  // [num_rows]
  float* l;  // [num_rows]
  float* o;  // [num_rows][o_stride]
  int64_t o_stride;
  // attend_scratch_floats(…) floats, or prompt_attend_scratch_floats(…);
  // 64-byte aligned.
  float* scratch;
};

struct KernelTable {
  const char* name;   // as --isa knows it: "scalar", "avx2", …
  int32_t row_group;  // rows interleaved by the packing: 8 or 16
  // Tables with equal names here read each other's packed groups; those of
  // BF16 only where both have round_row or none.
  const char* packing;

  // ---- weights ----
  // Bytes of one packed row group of k columns.
  int64_t (*group_bytes)(WeightFormat format, int64_t k);
  // Packs rows of the file's own block format (GGUF layout, row_bytes apart)
  // into one group; rows beyond num_rows become zeros. False if this table
  // has no packing for the format (scalar always has).
  bool (*pack_group)(WeightFormat format, const void* const* rows,
                     int32_t num_rows, int64_t k, void* group);

  // ---- linear ----
  // y[m][n] for rows in groups [group_begin, group_end) of w: y points at
  // output 0 of the matrix, ld_y floats between rows of y. Padded rows are not
  // written. Walks the groups anew for each few rows: a caller with many rows
  // and many groups hands in as many groups at a time as stay in L2. Reads
  // act.q… for integer formats, act.bf16 for kBF16 in a table with round_row,
  // act.f32 for other float formats.
  void (*linear)(const PackedMatrix& w, int64_t group_begin, int64_t group_end,
                 const ActRows& act, int32_t num_rows, float* y, int64_t ld_y);

  // One row of a packed matrix as f32 (embedding look-up): out[k].
  void (*unpack_row)(const PackedMatrix& w, int64_t row, float* out);

  // ---- rows ----
  void (*quantize_row)(const float* x, int64_t k, const Q8Row& out);
  // What x lost when it became q: rest = x - d * float(q), both rounded.
  void (*rest_of_row)(const float* x, int64_t k, const Q8Row& q, float* rest);
  // k values as bf16 and, where k is odd, a zero after them. Null in a table
  // that multiplies BF16 weights by f32 rows.
  void (*round_row)(const float* x, int64_t k, uint16_t* out);
  // out = x / sqrt(mean(x²) + eps) * weight; the mean by the lane tree of fma.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps,
                   float* out);
  // x += y
  void (*add)(float* x, const float* y, int64_t n);
  // out = gate * (1 / (1 + exp(-gate))) * up
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out = gelu(gate) * up
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // x = cap * tanh(x / cap)
  void (*soft_cap)(float* x, float cap, int64_t n);
  // Rotates one head in place. cos and sin hold head_dim / 2 factors of the
  // position. Interleaved: pairs (2i, 2i + 1); else (i, i + head_dim / 2).
  // a' = fma(a, c, -(b * s)); b' = fma(a, s, b * c).
  void (*rope)(float* head, int64_t head_dim, const float* cos,
               const float* sin, bool interleaved);
  // out = x * scale
  void (*scale)(const float* x, float scale, int64_t n, float* out);

  // ---- attention ----
  int64_t (*attend_scratch_floats)(int32_t num_rows, int32_t head_dim);
  void (*attend)(const AttendArgs& args);
  // Merges num_splits partials of one row, ascending: m[i * stride_ml],
  // l[i * stride_ml], o + i * stride_o; writes head_dim floats. `sink` may be
  // null: none.
  void (*merge)(const float* m, const float* l, const float* o,
                int64_t stride_ml, int64_t stride_o, int32_t num_splits,
                int32_t head_dim, const float* sink, float* out);
  // Writes one token's key and value of one head into its page.
  void (*write_kv)(const float* k, const float* v, int32_t head_dim,
                   int32_t index_in_page, KvFormat format, void* k_page,
                   void* v_page);

  // ---- rows of prompts ----
  // Null in a table that treats them as all rows. A row of a prompt always goes
  // this way and a generated row never does, whatever stands beside it, since
  // the bits differ (see Chains).
  //
  // As `linear`, for integer formats, and for BF16 of whole steps of 32 columns
  // with the bits of `linear`: reads act.bf16. Weights become bf16 once for all
  // rows of a call (once for each 512 rows of a long one), so a caller
  // hands in all rows and as many groups as it likes. Rows of act.bf16 whose
  // distance is a multiple of 4 KiB meet few sets of the caches; k + 32 values
  // is a good one. False and nothing done for what it does not know.
  // `scratch` is aligned to 64 bytes and belongs to the calling thread.
  int64_t (*prompt_linear_scratch_bytes)(const PackedMatrix& w,
                                         int32_t num_rows) = nullptr;
  bool (*prompt_linear)(const PackedMatrix& w, int64_t group_begin,
                        int64_t group_end, const ActRows& act, int32_t num_rows,
                        float* y, int64_t ld_y, void* scratch) = nullptr;
  // As attend_scratch_floats and `attend`. K and V are laid out anew in each
  // call, which takes the time of some 40 rows, so a caller hands in hundreds.
  int64_t (*prompt_attend_scratch_floats)(int32_t num_rows,
                                          int32_t head_dim) = nullptr;
  void (*prompt_attend)(const AttendArgs& args) = nullptr;

  // ---- sampling ----
  float (*max)(const float* x, int64_t n);
  // Lane tree of exp((x[i] - offset) * scale), lanes and tree in f64; out may
  // be null or gets each term.
  double (*sum_exp)(const float* x, int64_t n, float offset, float scale,
                    float* out);
};

// The tables compiled in; null where the compiler has no such target. Whether
// this machine may run one is isa.h's business.
const KernelTable* ScalarKernels();
const KernelTable* Avx2Kernels();
const KernelTable* AvxVnniKernels();
const KernelTable* Avx512VnniKernels();
const KernelTable* Avx512Bf16Kernels();
const KernelTable* AmxKernels();

}  // namespace millrace::models
