#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/graph/ops/attention.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

StatusOr<Heads> HeadsOf(const Arg& arg, int64_t num_heads,
                        std::string_view what) {
  const Shape& s = arg.shape;
  if (s.rank() == 4) return Heads{s[0], s[1], s[2], s[3], false};
  if (s.rank() == 3 && num_heads > 0 && s[2] % num_heads == 0) {
    return Heads{s[0], num_heads, s[1], s[2] / num_heads, true};
  }
  return InvalidArgument(std::string(what) + " has shape " + s.ToString() +
                         " and " + std::to_string(num_heads) +
                         " heads; [batch, heads, tokens, size], or [batch, "
                         "tokens, heads * size] with the number of heads, is "
                         "needed");
}

Status Mismatch(const Call& call) {
  return InvalidArgument("query " + call.arg(0).shape.ToString() + ", key " +
                         call.arg(1).shape.ToString() + " and value " +
                         call.arg(2).shape.ToString() + " do not fit together");
}

Status PlanPast(const Call& call, AttentionPlan& plan) {
  const Arg& key = call.arg(4);
  const Arg& value = call.arg(5);
  if (key.given != value.given) {
    return InvalidArgument("past_key and past_value come together");
  }
  if (!key.given) return OkStatus();
  RETURN_IF_ERROR(SameType(call, 4, "past_key"));
  RETURN_IF_ERROR(SameType(call, 5, "past_value"));
  const int64_t tokens = key.shape.rank() == 4 ? key.shape[2] : 0;
  RETURN_IF_ERROR(ShapeIs(
      call, 4, {plan.k.batch, plan.k.heads, tokens, plan.k.dim}, "past_key"));
  RETURN_IF_ERROR(ShapeIs(
      call, 5, {plan.v.batch, plan.v.heads, tokens, plan.v.dim}, "past_value"));
  plan.past_k.tokens = plan.past_v.tokens = tokens;
  return OkStatus();
}

Status CheckMask(const Call& call, const AttentionPlan& plan) {
  const Arg& mask = call.arg(3);
  if (mask.given) {
    if (mask.dtype != DType::kBool && !IsFloat(mask.dtype)) {
      return InvalidArgument("the mask is " + TypeText(mask.dtype, mask.shape) +
                             "; it must be BOOL or floats");
    }
    Shape shape = mask.shape;
    if (shape.rank() > 0 && shape.back() <= plan.total) {
      shape[shape.rank() - 1] = plan.total;  // shorter ones hide the rest
    }
    const Shape all = {plan.q.batch, plan.q.heads, plan.q.tokens, plan.total};
    const auto both = Broadcast(all, shape);
    if (!both.ok() || !(*both == all)) {
      return InvalidArgument("the mask of shape " + mask.shape.ToString() +
                             " cannot be broadcast to " + all.ToString());
    }
  }
  const Arg& valid = call.arg(6);
  if (valid.given &&
      (valid.dtype != DType::kI64 || !(valid.shape == Shape{plan.q.batch}))) {
    return InvalidArgument("nonpad_kv_seqlen is " +
                           TypeText(valid.dtype, valid.shape) +
                           "; one INT64 for each image is needed");
  }
  if (valid.given && call.arg(4).given) {
    return InvalidArgument("nonpad_kv_seqlen and past_key exclude each other");
  }
  return OkStatus();
}

}  // namespace

StatusOr<AttentionPlan> PlanAttention(const Call& call) {
  const Attrs& attrs = call.attrs();
  AttentionPlan plan;
  ASSIGN_OR_RETURN(plan.q,
                   HeadsOf(call.arg(0), attrs.Int("q_num_heads", 0), "query"));
  ASSIGN_OR_RETURN(plan.k,
                   HeadsOf(call.arg(1), attrs.Int("kv_num_heads", 0), "key"));
  ASSIGN_OR_RETURN(plan.v,
                   HeadsOf(call.arg(2), attrs.Int("kv_num_heads", 0), "value"));
  const auto& [q, k, v] = std::tie(plan.q, plan.k, plan.v);
  if (q.batch != k.batch || q.batch != v.batch || k.heads != v.heads ||
      k.tokens != v.tokens || q.dim != k.dim || k.heads < 1 ||
      q.heads % k.heads != 0) {
    return Mismatch(call);
  }
  plan.past_k = {k.batch, k.heads, 0, k.dim, false};
  plan.past_v = {v.batch, v.heads, 0, v.dim, false};
  RETURN_IF_ERROR(PlanPast(call, plan));
  plan.total = plan.past_k.tokens + k.tokens;
  RETURN_IF_ERROR(CheckMask(call, plan));
  const auto dim = static_cast<double>(std::max<int64_t>(q.dim, 1));
  plan.scale = attrs.Float("scale", 1 / std::sqrt(dim));
  plan.softcap = attrs.Float("softcap", 0);
  plan.causal = attrs.Int("is_causal", 0) != 0;
  // Wider than any sequence is as good as open.
  plan.left = std::min(attrs.Int("left_window_size", -1), Shape::kMaxElements);
  plan.right =
      std::min(attrs.Int("right_window_size", -1), Shape::kMaxElements);
  if (plan.left < -1 || plan.right < -1 || plan.softcap < 0) {
    return InvalidArgument("window sizes and softcap must not be negative");
  }
  return plan;
}

AttentionBias::AttentionBias(const Call& call, const AttentionPlan& plan)
    : plan_(plan), mask_(call.arg(3)), valid_(call.arg(6)) {
  if (!mask_.given) return;
  mask_keys_ = mask_.shape.rank() == 0 ? 1 : mask_.shape.back();
  const Shape all = {plan.q.batch, plan.q.heads, plan.q.tokens, mask_keys_};
  mask_strides_ = BroadcastStrides(mask_.shape, all);
  // One number for all keys: PyTorch repeats it.
  if (mask_keys_ == 1) {
    mask_strides_[3] = 0;
    mask_keys_ = plan.total;
  }
}

double AttentionBias::MaskAt(int64_t at) const {
  if (mask_.dtype == DType::kBool) {
    return mask_.data<bool>()[at] ? 0
                                  : -std::numeric_limits<double>::infinity();
  }
  return DispatchFloat(mask_.dtype, [&]<typename T>() {
    return static_cast<double>(mask_.data<T>()[at]);
  });
}

template <typename M>
bool AttentionBias::Fill(int64_t b, int64_t h, int64_t i, M* bias) const {
  constexpr M kHidden = -std::numeric_limits<M>::infinity();
  const int64_t valid =
      valid_.given
          ? std::clamp<int64_t>(valid_.data<int64_t>()[b], 0, plan_.total)
          : plan_.total;
  // Keys stand at 0, 1, …; this query stands at `at` among them.
  const int64_t at =
      i + (valid_.given ? valid - plan_.q.tokens : plan_.past_k.tokens);
  int64_t last = valid;  // one behind
  if (plan_.causal) last = std::min(last, at + 1);
  if (plan_.right >= 0) last = std::min(last, at + 1 + plan_.right);
  int64_t first = plan_.left >= 0 ? std::max<int64_t>(0, at - plan_.left) : 0;
  if (mask_.given) last = std::min(last, mask_keys_);
  last = std::max<int64_t>(last, 0);
  first = std::min(first, last);
  std::fill_n(bias, plan_.total, kHidden);
  if (!mask_.given) {
    std::fill(bias + first, bias + last, M(0));
    return first < last;
  }
  const int64_t row =
      b * mask_strides_[0] + h * mask_strides_[1] + i * mask_strides_[2];
  bool seen = false;
  for (int64_t j = first; j < last; ++j) {
    bias[j] = static_cast<M>(MaskAt(row + j * mask_strides_[3]));
    seen |= bias[j] != kHidden;
  }
  return seen;
}

template bool AttentionBias::Fill(int64_t, int64_t, int64_t, float*) const;
template bool AttentionBias::Fill(int64_t, int64_t, int64_t, double*) const;

}  // namespace millrace::models::graph
