// Attention of all heads. A head's keys and values are packed by the member
// that computes it, in memory of its own.
#include <algorithm>
#include <cmath>
#include <string>

#include "models/graph/ops/broadcast.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

class AttentionStep : public Step {
 public:
  AttentionStep(const Node& node, const LowerContext& context)
      : products_(context.products(node)),
        num_members_(context.num_members),
        q_(context.slot(node.inputs[0])),
        k_(context.slot(node.inputs[1])),
        v_(context.slot(node.inputs[2])),
        out_(context.slot(node.outputs[0])),
        batch_(context.shape(node.inputs[0])[0]),
        queries_(context.shape(node.inputs[0])[1]),
        heads_(context.shape(node.inputs[0])[2]),
        d_(context.shape(node.inputs[0])[3]),
        keys_(context.shape(node.inputs[1])[1]),
        key_heads_(context.shape(node.inputs[1])[2]),
        dv_(context.shape(node.inputs[2])[3]),
        scale_(static_cast<float>(
            node.attrs.Float("scale", 1 / std::sqrt(static_cast<double>(d_))))),
        causal_(node.attrs.Int("is_causal", 0) != 0),
        zero_if_hidden_(node.attrs.Int("zero_masked", 1) != 0) {
    if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
      mask_ = context.slot(node.inputs[3]);
      mask_strides_ = BroadcastStrides(context.shape(node.inputs[3]),
                                       Shape{batch_, heads_, queries_, keys_});
    }
  }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) override {
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
      const int64_t first = b * keys_ * key_heads_ + key_head;
      // Heads that share keys come one after the other.
      if (at == begin || head * key_heads_ % heads_ == 0) {
        products_.pack(slots.data<float>(k_) + first * d_, keys_, d_,
                       {.n = key_heads_ * d_, .k = 1}, 0, Panels(keys_),
                       packed_k);
        products_.pack(slots.data<float>(v_) + first * dv_, dv_, keys_,
                       {.n = 1, .k = key_heads_ * dv_}, 0, Panels(dv_),
                       packed_v);
      }
      AttentionArgs args{
          .q = slots.data<float>(q_) + (b * queries_ * heads_ + head) * d_,
          .ld_q = heads_ * d_,
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
          .out = slots.data<float>(out_) + (b * queries_ * heads_ + head) * dv_,
          .ld_out = heads_ * dv_,
          .scratch = scratch};
      if (mask_ != kNoSlot) {
        args.mask = slots.data<float>(mask_) + b * mask_strides_[0] +
                    head * mask_strides_[1];
        args.ld_mask = mask_strides_[2];
      }
      products_.attention(args);
      at = stop;
    }
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(batch_ * heads_ * queries_) *
           static_cast<double>(keys_ * (d_ + dv_));
  }

  std::string Text() const override {
    return "Attention " + std::to_string(batch_) + " x " +
           std::to_string(heads_) + " heads x " + std::to_string(queries_) +
           " of " + std::to_string(keys_) + " keys x " + std::to_string(d_) +
           (causal_ ? ", causal" : "") + (mask_ != kNoSlot ? ", masked" : "");
  }

 private:
  // Of a block: whole register tiles of any table.
  static constexpr int64_t kRows = 24;

  static int64_t Lines(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t Panels(int64_t n) const {
    return (n + products_.panel - 1) / products_.panel;
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
  const int64_t batch_, queries_, heads_, d_, keys_, key_heads_, dv_;
  const float scale_;
  const bool causal_;
  const bool zero_if_hidden_;
  Slot mask_ = kNoSlot;
  Shape mask_strides_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeAttentionStep(const Node& node,
                                                  const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<AttentionStep>(node, context));
}

}  // namespace millrace::models::graph
