// The forms that Attention takes, brought to one: what each operand's heads
// and rows are, and which keys a query may see.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

// [batch, heads, tokens, dim], or the same as [batch, tokens, heads * dim].
struct Heads {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t tokens = 0;
  int64_t dim = 0;
  bool packed = false;  // the latter

  int64_t row() const { return packed ? heads * dim : dim; }
  // The first element of a head.
  int64_t At(int64_t b, int64_t h) const {
    return packed ? b * tokens * heads * dim + h * dim
                  : (b * heads + h) * tokens * dim;
  }
};

struct AttentionPlan {
  Heads q;
  Heads k;
  Heads v;
  Heads past_k;  // no tokens where there is no cache
  Heads past_v;
  int64_t total = 0;  // keys, those of the cache included
  double scale = 1;
  double softcap = 0;
  bool causal = false;
  int64_t left = -1;  // keys that a window shows on either side, -1: all
  int64_t right = -1;
};

StatusOr<AttentionPlan> PlanAttention(const Call& call);

// What is added to the scores of one query: 0, a number of the mask, or -inf.
class AttentionBias {
 public:
  AttentionBias(const Call& call, const AttentionPlan& plan);

  // Writes bias[0, total) for query i; false when every key is hidden.
  template <typename M>
  bool Fill(int64_t b, int64_t h, int64_t i, M* bias) const;

 private:
  double MaskAt(int64_t at) const;

  const AttentionPlan& plan_;
  const Arg& mask_;
  Shape mask_strides_;     // of [b, h, i, j]
  int64_t mask_keys_ = 0;  // keys behind them are hidden
  const Arg& valid_;       // keys of each image that hold something
};

}  // namespace millrace::models::graph
