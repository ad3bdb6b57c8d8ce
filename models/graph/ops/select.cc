// Where and Clip.
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> InferWhere(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 3));
  if (call.arg(0).dtype != DType::kBool) return WrongType(call.arg(0));
  RETURN_IF_ERROR(CheckSameType(call.arg(1), call.arg(2)));
  ASSIGN_OR_RETURN(Shape shape,
                   Broadcast(call.arg(1).shape, call.arg(2).shape));
  ASSIGN_OR_RETURN(shape, Broadcast(shape, call.arg(0).shape));
  return OutTypes{{call.arg(1).dtype, shape}};
}

Status RunWhere(const Call& call, std::span<const Result> results,
                const Team& team) {
  const Result& out = results[0];
  const BroadcastWalk walk(
      out.shape, {call.arg(0).shape, call.arg(1).shape, call.arg(2).shape});
  const auto select = [&]<typename T>() {
    ForTeam(walk, team, [&](const BroadcastRow& row) {
      const uint8_t* c = call.arg(0).data<uint8_t>() + row.at[0];
      const T* a = call.arg(1).data<T>() + row.at[1];
      const T* b = call.arg(2).data<T>() + row.at[2];
      T* y = out.data<T>() + row.out;
      const auto [c_step, a_step, b_step] =
          std::tuple(row.step[0], row.step[1], row.step[2]);
      for (int64_t i = 0; i < row.length; ++i) {
        y[i] = c[i * c_step] != 0 ? a[i * a_step] : b[i * b_step];
      }
    });
  };
  if (out.dtype == kString) {
    select.operator()<std::string_view>();
  } else {
    DispatchBytes(DTypeBytes(out.dtype), select);
  }
  return OkStatus();
}

StatusOr<OutTypes> InferClip(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 3));
  const Arg& x = call.arg(0);
  if (x.dtype == DType::kBool) return WrongType(x);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const Arg& bound = call.arg(i);
    if (!bound.given) continue;
    RETURN_IF_ERROR(CheckSameType(x, bound));
    if (bound.num_elements() != 1) {
      return InvalidArgument("a bound is " +
                             TypeText(bound.dtype, bound.shape) +
                             ", not one number");
    }
  }
  return OutTypes{{x.dtype, x.shape}};
}

Status RunClip(const Call& call, std::span<const Result> results,
               const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      using Math = MathType<T>;
      using Limits = std::numeric_limits<Math>;
      Math low = Limits::lowest();
      Math high = Limits::max();
      if constexpr (std::is_floating_point_v<Math>) {
        low = -Limits::infinity();
        high = Limits::infinity();
      }
      if (call.arg(1).given) low = static_cast<Math>(*call.arg(1).data<T>());
      if (call.arg(2).given) high = static_cast<Math>(*call.arg(2).data<T>());
      // The upper bound wins where they cross.
      Map<T, T>(call, results[0], team, [=](T x) {
        auto value = static_cast<Math>(x);
        value = value < low ? low : value;
        return static_cast<T>(value > high ? high : value);
      });
    }
  });
  return OkStatus();
}

// A bound that is absent, or a constant scalar.
std::optional<float> Bound(const Call& call, size_t i, float otherwise) {
  const Arg& arg = call.arg(i);
  if (!arg.given) return otherwise;
  if (arg.bytes == nullptr || arg.dtype != DType::kF32 ||
      arg.num_elements() != 1) {
    return std::nullopt;
  }
  return *arg.data<float>();
}

std::optional<Activation> ClipOf(const Call& call) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto low = Bound(call, 1, -kInfinity);
  const auto high = Bound(call, 2, kInfinity);
  if (!low || !high) return std::nullopt;
  return Activation{Unary::kClip, *low, *high};
}

constexpr OpDef kOps[] = {
    {"Clip",
     InferClip,
     RunClip,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = ClipOf}},
    {"Where", InferWhere, RunWhere, Work::kSplits, kBroadcastStringsFact},
};

}  // namespace

std::span<const OpDef> SelectOps() { return kOps; }

}  // namespace millrace::models::graph
