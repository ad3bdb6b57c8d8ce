// Attention of all heads. A head's keys and values are packed by the member
// that computes it, in memory of its own.
#include <algorithm>
#include <cmath>
#include <string>

#include "models/graph/fused_params.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

// Where an operand's tokens of heads of values lie.
struct Layout {
  int64_t tokens;
  int64_t heads;
  int64_t size;
  int64_t offset;    // values
  int64_t ld;        // values from token to token
  int64_t ld_batch;  // and from one of the batch to the next

  template <typename T>
  T* At(T* data, int64_t batch, int64_t head) const {
    return data + offset + batch * ld_batch + head * size;
  }
};

Layout LayoutOf(const Node& node, const LowerContext& context, size_t i) {
  const auto& views = ParamsOf<AttentionParams>(node.attrs).views;
  if (!views) {
    const Shape& x = context.shape(node.inputs[i]);
    return {x[1], x[2], x[3], 0, x[2] * x[3], x[1] * x[2] * x[3]};
  }
  const AttentionOperand& view = (*views)[i];
  return {view.tokens, view.heads,  view.size,
          view.offset, view.stride, view.batch_stride};
}

Layout OutLayoutOf(const Node& node, const LowerContext& context) {
  const Shape& y = context.shape(node.outputs[0]);
  const int64_t floats = y[2] * y[3];
  if (ParamsOf<AttentionParams>(node.attrs).swapped_out) {
    return {y[0], y[2], y[3], 0, y[1] * floats, floats};
  }
  return {y[1], y[2], y[3], 0, floats, y[1] * floats};
}

class AttentionStep : public Step {
 public:
  AttentionStep(const Node& node, const LowerContext& context)
      : products_(context.products(node)),
        num_members_(context.num_members),
        q_(context.slot(node.inputs[0])),
        k_(context.slot(node.inputs[1])),
        v_(context.slot(node.inputs[2])),
        out_(context.slot(node.outputs[0])),
        q_bf16_(context.is_bf16(node.inputs[0])),
        k_bf16_(context.is_bf16(node.inputs[1])),
        v_bf16_(context.is_bf16(node.inputs[2])),
        to_bf16_(context.is_bf16(node.outputs[0])),
        in_q_(LayoutOf(node, context, 0)),
        in_k_(LayoutOf(node, context, 1)),
        in_v_(LayoutOf(node, context, 2)),
        to_out_(OutLayoutOf(node, context)),
        batch_(context.shape(node.outputs[0]).num_elements() /
               std::max<int64_t>(
                   1, to_out_.tokens * to_out_.heads * to_out_.size)),
        queries_(in_q_.tokens),
        heads_(in_q_.heads),
        d_(in_q_.size),
        keys_(in_k_.tokens),
        key_heads_(in_k_.heads),
        dv_(in_v_.size),
        scale_(static_cast<float>(
            ParamsOf<AttentionParams>(node.attrs)
                .scale.value_or(1 / std::sqrt(static_cast<double>(d_))))),
        causal_(ParamsOf<AttentionParams>(node.attrs).is_causal),
        zero_if_hidden_(ParamsOf<AttentionParams>(node.attrs).zero_masked) {
    if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
      mask_ = context.slot(node.inputs[3]);
      Shape mask = context.shape(node.inputs[3]);
      while (mask.rank() < 4) mask.Insert(0, 1);
      mask_batch_ = mask[0];
      mask_strides_ =
          BroadcastStrides(mask, Shape{mask_batch_, heads_, queries_, keys_});
    }
  }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    float* packed_k =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    float* packed_v = packed_k + Lines(KeyFloats());
    float* scratch = packed_v + Lines(ValueFloats());
    // Rows of all heads in turn: a head may be shared by members, which then
    // pack its keys each.
    const int64_t blocks = (queries_ + kRows - 1) / kRows;
    const auto [begin, end] = team.Share(batch_ * heads_ * blocks);
    for (int64_t at = begin; at < end;) {
      const int64_t item = at / blocks;
      const int64_t stop = std::min(end, (item + 1) * blocks);
      const int64_t b = item / heads_;
      const int64_t head = item % heads_;
      const int64_t key_head = head * key_heads_ / heads_;
      // Heads that share keys come one after the other.
      if (at == begin || head * key_heads_ % heads_ == 0) {
        Pack(slots, {k_, k_bf16_}, in_k_, b, key_head, keys_, d_,
             {.n = in_k_.ld, .k = 1}, packed_k);
        Pack(slots, {v_, v_bf16_}, in_v_, b, key_head, dv_, keys_,
             {.n = 1, .k = in_v_.ld}, packed_v);
      }
      AttentionArgs args{
          .ld_q = in_q_.ld,
          .row_begin = (at - item * blocks) * kRows,
          .row_end = std::min((stop - item * blocks) * kRows, queries_),
          .d = d_,
          .dv = dv_,
          .num_keys = keys_,
          .k = packed_k,
          .v = packed_v,
          .scale = scale_,
          .causal = causal_,
          .zero_if_hidden = zero_if_hidden_,
          .ld_out = to_out_.ld,
          .scratch = scratch};
      if (q_bf16_) {
        args.q_bf16 = in_q_.At(slots.data<Bf16>(q_), b, head);
      } else {
        args.q = in_q_.At(slots.data<float>(q_), b, head);
      }
      if (to_bf16_) {
        args.out_bf16 = to_out_.At(slots.data<Bf16>(out_), b, head);
      } else {
        args.out = to_out_.At(slots.data<float>(out_), b, head);
      }
      if (mask_ != kNoSlot) {
        args.mask = slots.data<float>(mask_) +
                    b % mask_batch_ * mask_strides_[0] +
                    head * mask_strides_[1];
        args.ld_mask = mask_strides_[2];
      }
      products_.attention(args);
      at = stop;
    }
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(batch_ * heads_ * queries_) *
           static_cast<double>(keys_ * (d_ + dv_));
  }

  std::string Text() const override {
    return "Attention " + std::to_string(batch_) + " x " +
           std::to_string(heads_) + " heads x " + std::to_string(queries_) +
           " of " + std::to_string(keys_) + " keys x " + std::to_string(d_) +
           (causal_ ? ", causal" : "") + (mask_ != kNoSlot ? ", masked" : "") +
           Bf16Text(k_bf16_ && v_bf16_, to_bf16_);
  }

 private:
  // Of a block: whole register tiles of any table.
  static constexpr int64_t kRows = 24;

  static int64_t Lines(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t Panels(int64_t n) const {
    return (n + products_.panel - 1) / products_.panel;
  }
  struct Source {
    Slot slot;
    bool is_bf16;
  };
  // A head's keys or values, as a matrix [n][k].
  void Pack(const Slots& slots, Source from, const Layout& in, int64_t batch,
            int64_t head, int64_t n, int64_t k, MatrixStrides strides,
            float* packed) const {
    if (from.is_bf16) {
      products_.pack_bf16(in.At(slots.data<Bf16>(from.slot), batch, head), n, k,
                          strides, 0, Panels(n), packed);
    } else {
      products_.pack(in.At(slots.data<float>(from.slot), batch, head), n, k,
                     strides, 0, Panels(n), packed);
    }
  }

  int64_t KeyFloats() const { return products_.packed_floats(keys_, d_); }
  int64_t ValueFloats() const { return products_.packed_floats(dv_, keys_); }
  int64_t MemberFloats() const {
    return Lines(KeyFloats()) + Lines(ValueFloats()) +
           Lines(products_.attention_scratch_floats(d_, dv_));
  }

  const DenseProducts& products_;
  const int64_t num_members_;
  const Slot q_, k_, v_, out_;
  const bool q_bf16_, k_bf16_, v_bf16_, to_bf16_;
  const Layout in_q_, in_k_, in_v_, to_out_;
  const int64_t batch_, queries_, heads_, d_, keys_, key_heads_, dv_;
  const float scale_;
  const bool causal_;
  const bool zero_if_hidden_;
  Slot mask_ = kNoSlot;
  int64_t mask_batch_ = 1;
  Shape mask_strides_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeAttentionStep(const Node& node,
                                                  const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<AttentionStep>(node, context));
}

}  // namespace millrace::models::graph
