// RotaryEmbedding (Su et al. 2021): pairs of elements of each head turned by
// the angle of their position, whose cosine and sine come as tables. Without
// num_heads, heads are as wide as the tables say.
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

// x is [batch, heads, tokens, dim], or [batch, tokens, heads * dim].
struct Plan {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t tokens = 0;
  int64_t dim = 0;
  int64_t half = 0;  // pairs that are turned
  bool packed = false;
};

StatusOr<Plan> MakePlan(const Call& call) {
  const Shape& x = call.arg(0).shape;
  const Shape& table = call.arg(1).shape;
  const int64_t turned = call.attrs().Int("rotary_embedding_dim", 0);
  int64_t heads = call.attrs().Int("num_heads", 0);
  if (heads == 0 && turned == 0 && x.rank() == 3 && table.rank() > 0 &&
      table.back() > 0 && x[2] % (2 * table.back()) == 0) {
    heads = x[2] / (2 * table.back());
  }
  Plan plan;
  if (x.rank() == 4) {
    plan = {x[0], x[1], x[2], x[3], 0, false};
  } else if (x.rank() == 3 && heads > 0 && x[2] % heads == 0) {
    plan = {x[0], heads, x[1], x[2] / heads, 0, true};
  } else {
    return InvalidArgument("x of shape " + x.ToString() + " with " +
                           std::to_string(heads) +
                           " heads is not [batch, heads, tokens, size]");
  }
  if (turned < 0 || turned > plan.dim ||
      (turned == 0 ? plan.dim : turned) % 2 != 0) {
    return InvalidArgument("rotary_embedding_dim is " + std::to_string(turned) +
                           " for heads of " + std::to_string(plan.dim) +
                           "; pairs within a head are turned");
  }
  plan.half = (turned == 0 ? plan.dim : turned) / 2;
  return plan;
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 4));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "cos_cache"));
  RETURN_IF_ERROR(SameType(call, 2, "sin_cache"));
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  const Arg& ids = call.arg(3);
  const Shape& table = call.arg(1).shape;
  if (ids.given) {
    if (ids.dtype != DType::kI64) {
      return InvalidArgument("position_ids must be INT64");
    }
    RETURN_IF_ERROR(
        ShapeIs(call, 3, {plan.batch, plan.tokens}, "position_ids"));
    RETURN_IF_ERROR(RankAtLeast(call.arg(1), 1, "cos_cache"));
    RETURN_IF_ERROR(ShapeIs(call, 1, {table[0], plan.half}, "cos_cache"));
  } else {
    RETURN_IF_ERROR(
        ShapeIs(call, 1, {plan.batch, plan.tokens, plan.half}, "cos_cache"));
  }
  RETURN_IF_ERROR(ShapeIs(call, 2, table, "sin_cache"));
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  const Arg& ids = call.arg(3);
  const bool interleaved = call.attrs().Int("interleaved", 0) != 0;
  const int64_t limit = call.arg(1).shape[0];
  if (ids.given) {
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      const int64_t id = ids.data<int64_t>()[i];
      if (id < 0 || id >= limit) {
        return OutOfRange("position " + std::to_string(id) +
                          " is outside of tables for " + std::to_string(limit) +
                          " positions");
      }
    }
  }
  const auto [begin, end] = team.Share(plan.batch * plan.tokens);
  DispatchFloat(call.arg(0).dtype, [&, first = begin,
                                    last = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / plan.tokens;
      const int64_t t = i % plan.tokens;
      const int64_t at = ids.given ? ids.data<int64_t>()[i] : i;
      const T* cos = call.arg(1).data<T>() + at * plan.half;
      const T* sin = call.arg(2).data<T>() + at * plan.half;
      for (int64_t h = 0; h < plan.heads; ++h) {
        const int64_t head =
            plan.packed ? (i * plan.heads + h) * plan.dim
                        : ((b * plan.heads + h) * plan.tokens + t) * plan.dim;
        const T* x = call.arg(0).data<T>() + head;
        T* y = results[0].data<T>() + head;
        for (int64_t p = 0; p < plan.half; ++p) {
          const int64_t one = interleaved ? 2 * p : p;
          const int64_t two = interleaved ? 2 * p + 1 : p + plan.half;
          const M c = cos[p];
          const M s = sin[p];
          y[one] = static_cast<T>(c * M(x[one]) - s * M(x[two]));
          y[two] = static_cast<T>(s * M(x[one]) + c * M(x[two]));
        }
        for (int64_t p = 2 * plan.half; p < plan.dim; ++p) y[p] = x[p];
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"RotaryEmbedding", Infer, Run, Work::kSplits}};

}  // namespace

std::span<const OpDef> RotaryOps() { return kOps; }

}  // namespace millrace::models::graph
