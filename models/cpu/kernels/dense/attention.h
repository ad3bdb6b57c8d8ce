// Attention of one head, for any vector width, over the products of a table:
// blocks of rows, in each of them chunks of keys; scores of a chunk are made,
// turned into weights in place and multiplied with the values while they stay
// in the cache. Rows of a block may see different numbers of keys: products
// reach as far as the farthest sees, weights of hidden keys are 0.
//
// V is what scalar/vec1.h shows, P is AttentionProducts of a table. Anonymous
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/dense/lanes.h"
#include "models/cpu/kernels/dense/math.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

// How keys and values are packed and multiplied: panels of outputs, words of so
// many steps.
template <class Isa, int64_t kOutputs, int64_t kSteps>
struct AttentionProducts {
  static constexpr int64_t kPanel = kOutputs;
  static constexpr bool kRounds = kSteps > 1;
  static int64_t Words(int64_t k) { return (k + kSteps - 1) / kSteps; }
  static int64_t Panels(int64_t n) { return (n + kPanel - 1) / kPanel; }
  static void Run(const GemmArgs& args) { DenseParts<Isa>::Gemm(args); }
  static int64_t ScratchFloats(int64_t rows, int64_t k) {
    return DenseParts<Isa>::GemmScratchFloats({.row_end = rows, .k = k});
  }
};

template <class V, class P>
class DenseAttention {
 public:
  static int64_t ScratchFloats(int64_t d, int64_t dv) {
    return OwnFloats(d, dv) + P::ScratchFloats(kRows, d > kChunk ? d : kChunk);
  }

  static void Run(const AttentionArgs& a) {
    Block b;
    b.q = a.scratch;
    b.ld_q = Aligned(a.d);
    b.scores = b.q + kRows * b.ld_q;
    b.chunk = b.scores + kRows * kLdScores;
    b.ld_v = Aligned(a.dv);
    b.total = b.chunk + kRows * b.ld_v;
    b.greatest = b.total + kRows * b.ld_v;
    b.sum = b.greatest + kRows;
    b.product = a.scratch + OwnFloats(a.d, a.dv);
    for (int64_t row = a.row_begin; row < a.row_end; row += kRows) {
      b.row = row;
      b.rows = Smaller(a.row_end - row, kRows);
      Rows(a, b);
    }
  }

 private:
  using F = typename V::F;
  using L = Lanes<V>;
  static constexpr int64_t kRows = 48;
  static constexpr int64_t kChunk = 512;
  static constexpr int64_t kLdScores = kChunk + 16;
  static constexpr float kNothing = -__builtin_inff();
  // Weights are 0 below some 2^-100, beside 1 for the greatest score: products
  // with them stay above 2^-126, too.
  static constexpr float kLeastScore = -69.3f;

  struct Block {
    float* q;         // [kRows][ld_q], scaled where products do not round
    float* scores;    // [kRows][kLdScores] of a chunk, then weights
    float* chunk;     // [kRows][ld_v] weighted values of a chunk
    float* total;     // [kRows][ld_v] of all chunks so far
    float* greatest;  // [kRows]
    float* sum;       // [kRows]; 0: no chunk so far
    float* product;   // scratch of products
    int64_t ld_q, ld_v;
    int64_t row, rows;
  };

  static int64_t Smaller(int64_t x, int64_t y) { return x < y ? x : y; }
  static int64_t Aligned(int64_t n) { return (n + 15) / 16 * 16; }

  static int64_t OwnFloats(int64_t d, int64_t dv) {
    return Aligned(kRows * (Aligned(d) + kLdScores + 2 * Aligned(dv) + 2));
  }

  // Keys of the whole head that a row sees.
  static int64_t Visible(const AttentionArgs& a, int64_t row) {
    if (!a.causal) return a.num_keys;
    const int64_t limit = row + a.causal_offset + 1;
    return limit < 0 ? 0 : Smaller(limit, a.num_keys);
  }

  static float Exp(float x) { return V::FirstLane(Math<V>::Exp(V::Set(x))); }

  static void Rows(const AttentionArgs& a, const Block& b) {
    const F scale = V::Set(a.scale);
    for (int64_t r = 0; r < b.rows; ++r) {
      float* to = b.q + r * b.ld_q;
      const float* q = Query(a, b.row + r, to);
      L::Each(a.d, [&](int64_t i, auto load, auto store) {
        // Rounded queries are the same whether they come in f32 or in bf16, so
        // where products round, scores are scaled instead.
        store(to + i, P::kRounds ? load(q + i) : V::Mul(load(q + i), scale));
      });
      b.sum[r] = 0.0f;
    }
    // The last row sees farthest.
    const int64_t end = Visible(a, b.row + b.rows - 1);
    for (int64_t key = 0; key < end; key += kChunk) {
      const int64_t keys = Smaller(end - key, kChunk);
      P::Run({.x = b.q,
              .ld_x = b.ld_q,
              .row_end = b.rows,
              .w = a.k + key * P::Words(a.d),
              .n = keys,
              .k = a.d,
              .panel_end = P::Panels(keys),
              .y = b.scores,
              .ld_y = kLdScores,
              .scratch = b.product});
      bool any = false;
      // Weights first, as the values of all rows are summed together.
      float m[kRows];
      float l[kRows];
      for (int64_t r = 0; r < b.rows; ++r) {
        l[r] = Weights(a, b, r, key, keys, &m[r]);
        any = any || l[r] != 0.0f;
      }
      if (!any) continue;
      P::Run({.x = b.scores,
              .ld_x = kLdScores,
              .row_end = b.rows,
              .w = a.v + P::Words(key) * P::kPanel,
              .n = a.dv,
              .k = keys,
              .panel_end = P::Panels(a.dv),
              .y = b.chunk,
              .ld_y = b.ld_v,
              .panel_floats = P::Words(a.num_keys) * P::kPanel,
              .scratch = b.product});
      for (int64_t r = 0; r < b.rows; ++r) {
        if (l[r] != 0.0f) Merge(a, b, r, m[r], l[r]);
      }
    }
    for (int64_t r = 0; r < b.rows; ++r) {
      float* total = b.total + r * b.ld_v;
      const int64_t at = (b.row + r) * a.ld_out;
      if constexpr (P::kRounds) {
        if (a.out_bf16 != nullptr) {
          PutRow(a, b.sum[r], total, total);
          P::Round(total, a.dv, a.out_bf16 + at);
          continue;
        }
      }
      PutRow(a, b.sum[r], total, a.out + at);
    }
  }

  // A row of q; what is in bf16 is widened there.
  static const float* Query(const AttentionArgs& a, int64_t row, float* there) {
    if constexpr (P::kRounds) {
      if (a.q_bf16 != nullptr) {
        P::Widen(a.q_bf16 + row * a.ld_q, a.d, there);
        return there;
      }
    }
    return a.q + row * a.ld_q;
  }

  static void PutRow(const AttentionArgs& a, float sum, const float* total,
                     float* out) {
    if (sum == 0.0f) {
      const F v = V::Set(a.zero_if_hidden ? 0.0f : __builtin_nanf(""));
      L::Each(a.dv, [&](int64_t i, auto, auto store) { store(out + i, v); });
      return;
    }
    const F factor = V::Set(1.0f / sum);
    L::Each(a.dv, [&](int64_t i, auto load, auto store) {
      store(out + i, V::Mul(load(total + i), factor));
    });
  }

  // Scores of a row become weights, of all `keys`; their greatest score and
  // sum. 0: the row sees none of them, and all weights are 0.
  static float Weights(const AttentionArgs& a, const Block& b, int64_t r,
                       int64_t key, int64_t keys, float* greatest) {
    float* s = b.scores + r * kLdScores;
    int64_t seen = Smaller(Visible(a, b.row + r) - key, keys);
    if constexpr (P::kRounds) {
      const F scale = V::Set(a.scale);
      L::Each(seen, [&](int64_t i, auto load, auto store) {
        store(s + i, V::Mul(load(s + i), scale));
      });
    }
    if (seen > 0 && a.mask != nullptr) {
      const float* mask = a.mask + (b.row + r) * a.ld_mask + key;
      L::Each(seen, [&](int64_t i, auto load, auto store) {
        store(s + i, V::Add(load(s + i), load(mask + i)));
      });
    }
    const auto score = [=](int64_t i, auto load) { return load(s + i); };
    *greatest = seen > 0 ? L::Greatest(seen, score) : kNothing;
    float sum = 0.0f;
    if (*greatest == kNothing) {
      seen = 0;
    } else {
      const F m = V::Set(*greatest);
      L::Each(seen, [&](int64_t i, auto load, auto store) {
        store(s + i, Math<V>::ExpAbove(kLeastScore, V::Sub(load(s + i), m)));
      });
      sum = L::Sum(seen, score);
    }
    for (int64_t i = seen; i < keys; ++i) s[i] = 0.0f;
    return sum;
  }

  static void Merge(const AttentionArgs& a, const Block& b, int64_t r, float m,
                    float l) {
    const float* chunk = b.chunk + r * b.ld_v;
    float* total = b.total + r * b.ld_v;
    // What is left of -0 depends on how many hidden keys were multiplied.
    const F zero = V::Zero();
    if (b.sum[r] == 0.0f) {
      b.greatest[r] = m;
      b.sum[r] = l;
      L::Each(a.dv, [&](int64_t i, auto load, auto store) {
        store(total + i, V::Add(load(chunk + i), zero));
      });
      return;
    }
    const float both = b.greatest[r] > m ? b.greatest[r] : m;
    const float before = Exp(b.greatest[r] - both);
    const float now = Exp(m - both);
    b.greatest[r] = both;
    b.sum[r] = __builtin_fmaf(b.sum[r], before, l * now);
    const F vb = V::Set(before);
    const F vn = V::Set(now);
    L::Each(a.dv, [&](int64_t i, auto load, auto store) {
      const F o = V::Add(load(chunk + i), zero);
      store(total + i, V::Fma(load(total + i), vb, V::Mul(o, vn)));
    });
  }
};

}  // namespace
}  // namespace millrace::models
