// Conv and ConvInteger. 16-bit floats are summed in f32 and rounded once;
// integers are summed in int32 and wrap around.
#include "models/graph/ops/conv.h"

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {

StatusOr<ConvPlan> PlanConv(const Attrs& attrs, const Shape& x,
                            const Shape& weights) {
  if (x.rank() < 3 || x.rank() > 2 + kSpatial || x.rank() != weights.rank()) {
    return InvalidArgument("x of shape " + x.ToString() + " and weights of " +
                           weights.ToString() +
                           " must both have 1 to 3 spatial dimensions");
  }
  ConvPlan plan;
  plan.groups = attrs.Int("group", 1);
  if (plan.groups < 1 || x[1] % plan.groups != 0 ||
      weights[0] % plan.groups != 0 || weights[1] != x[1] / plan.groups) {
    return InvalidArgument(
        "x of shape " + x.ToString() + ", weights of " + weights.ToString() +
        " and " + std::to_string(plan.groups) + " groups do not fit together");
  }
  plan.batch = x[0];
  plan.group_in = weights[1];
  plan.group_out = weights[0] / plan.groups;
  const std::vector<int64_t>& kernel = attrs.Ints("kernel_shape");
  const auto sizes = weights.dims().subspan(2);
  if (!kernel.empty() &&
      !std::equal(kernel.begin(), kernel.end(), sizes.begin(), sizes.end())) {
    return InvalidArgument("attribute kernel_shape differs from the weights " +
                           weights.ToString());
  }
  ASSIGN_OR_RETURN(plan.window, MakeWindow(attrs, x.dims().subspan(2), sizes));
  ASSIGN_OR_RETURN(plan.out, plan.window.OutShape(plan.batch, weights[0]));
  return plan;
}

namespace {

Types InferConv(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "the weight"));
  RETURN_IF_ERROR(SameType(call, 2, "the bias"));
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(1).shape));
  RETURN_IF_ERROR(ShapeIs(call, 2, {call.arg(1).shape[0]}, "the bias"));
  return Outputs(call, {{call.arg(0).dtype, plan.out}});
}

Status RunConv(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(1).shape));
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    const T* x = call.arg(0).data<T>();
    T* y = results[0].data<T>();
    const std::vector<M> bias = Widened<T>(call.arg(2));
    const auto load = [x](int64_t i) { return static_cast<M>(x[i]); };
    const auto store = [&](int64_t channel, int64_t count, int64_t at,
                           const M* sums) {
      const M add = bias.empty() ? M(0) : bias[static_cast<size_t>(channel)];
      for (int64_t i = 0; i < count; ++i) {
        y[at + i] = static_cast<T>(sums[i] + add);
      }
    };
    if constexpr (std::is_same_v<T, M>) {
      ConvInto<M>(plan, call.arg(1).data<T>(), load, store, team);
    } else {
      const std::vector<M> weights = Widened<T>(call.arg(1));
      ConvInto<M>(plan, weights.data(), load, store, team);
    }
  });
  return OkStatus();
}

// Bytes, signed or not, and their zero points: a scalar for x; for the weights
// a scalar or one for each output channel. Padding counts as the zero point.
bool IsByte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

Types InferInteger(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 4));
  if (!IsByte(call.arg(0).dtype) || !IsByte(call.arg(1).dtype)) {
    return InvalidArgument("x and the weight must be INT8 or UINT8");
  }
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(1).shape));
  for (const size_t i : {2, 3}) {
    const Arg& zero = call.arg(i);
    if (!zero.given) continue;
    const int64_t most = i == 2 ? 1 : call.arg(1).shape[0];
    if (zero.dtype != call.arg(i - 2).dtype ||
        (zero.num_elements() != 1 && zero.num_elements() != most)) {
      return InvalidArgument("zero point " + TypeText(zero.dtype, zero.shape) +
                             " does not fit its operand");
    }
  }
  return Outputs(call, {{DType::kI32, plan.out}});
}

int32_t ByteAt(const Arg& arg, int64_t i) {
  return arg.dtype == DType::kI8 ? int32_t{arg.data<int8_t>()[i]}
                                 : int32_t{arg.data<uint8_t>()[i]};
}

Status RunInteger(const Call& call, std::span<const Result> results,
                  const Team& team) {
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(1).shape));
  const Arg& w = call.arg(1);
  const Arg& w_zero = call.arg(3);
  const auto count = static_cast<size_t>(w.num_elements());
  std::vector<uint32_t> weights(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t channel = w_zero.given && w_zero.num_elements() > 1
                                ? static_cast<int64_t>(i) / plan.patch()
                                : 0;
    const int32_t zero = w_zero.given ? ByteAt(w_zero, channel) : 0;
    weights[i] =
        static_cast<uint32_t>(ByteAt(w, static_cast<int64_t>(i)) - zero);
  }
  const int32_t zero = call.arg(2).given ? ByteAt(call.arg(2), 0) : 0;
  auto* y = results[0].data<int32_t>();
  const auto store = [&](int64_t, int64_t size, int64_t at,
                         const uint32_t* sums) {
    for (int64_t i = 0; i < size; ++i) {
      y[at + i] = static_cast<int32_t>(sums[i]);
    }
  };
  const auto run = [&]<typename T>() {
    const T* x = call.arg(0).data<T>();
    const auto load = [x, zero](int64_t i) {
      return static_cast<uint32_t>(int32_t{x[i]} - zero);
    };
    ConvInto<uint32_t>(plan, weights.data(), load, store, team);
  };
  if (call.arg(0).dtype == DType::kI8) {
    run.operator()<int8_t>();
  } else {
    run.operator()<uint8_t>();
  }
  return OkStatus();
}

constexpr LayerFacts kConvLayer = {
    .outputs_axis = [](const Node&) { return 0; },
    .min_weight_rank = 3,
    .max_weight_rank = Shape::kMaxRank};

constexpr OpDef kOps[] = {
    {"Conv",
     InferConv,
     RunConv,
     Work::kSplits,
     {.layout = LayoutRule::kConv, .layer = &kConvLayer}},
    {"ConvInteger", InferInteger, RunInteger, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ConvOps() { return kOps; }

}  // namespace millrace::models::graph
