// Functions of two operands that look at bits or truth.
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> Infer(const Call& call, bool of_bools) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  const Arg& a = call.arg(0);
  RETURN_IF_ERROR(CheckSameType(a, call.arg(1)));
  if (of_bools ? a.dtype != DType::kBool : !IsInteger(a.dtype)) {
    return WrongType(a);
  }
  ASSIGN_OR_RETURN(const Shape shape, Broadcast(a.shape, call.arg(1).shape));
  return OutTypes{{a.dtype, shape}};
}

StatusOr<OutTypes> InferBools(const Call& call) { return Infer(call, true); }
StatusOr<OutTypes> InferBits(const Call& call) { return Infer(call, false); }

StatusOr<OutTypes> InferShift(const Call& call) {
  ASSIGN_OR_RETURN(OutTypes types, Infer(call, false));
  const std::string_view direction = call.attrs().Text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return InvalidArgument("the direction is LEFT or RIGHT, not '" +
                           std::string(direction) + "'");
  }
  return types;
}

constexpr auto kAnd = [](auto a, auto b) {
  return static_cast<decltype(a)>(a & b);
};
constexpr auto kOr = [](auto a, auto b) {
  return static_cast<decltype(a)>(a | b);
};
constexpr auto kXor = [](auto a, auto b) {
  return static_cast<decltype(a)>(a ^ b);
};

// A bool is a byte of 0 or 1, and stays one.
template <auto kOf>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  DispatchBytes(DTypeBytes(call.arg(0).dtype), [&]<typename T>() {
    Map2<T, T, T>(call, results[0], team, kOf);
  });
  return OkStatus();
}

// A shift by a negative number or by all bits leaves nothing but the sign.
template <typename T>
T Shifted(T x, T by, bool left) {
  constexpr auto kBits = static_cast<int64_t>(sizeof(T) * 8);
  const bool all = by < T{0} || static_cast<uint64_t>(by) >= kBits;
  if (left) {
    return all ? T{0} : static_cast<T>(static_cast<uint64_t>(x) << by);
  }
  return static_cast<T>(x >> (all ? kBits - 1 : by) >> (all ? 1 : 0));
}

Status RunShift(const Call& call, std::span<const Result> results,
                const Team& team) {
  const bool left = call.attrs().Text("direction", "") == "LEFT";
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      Map2<T, T, T>(call, results[0], team,
                    [left](T x, T by) { return Shifted(x, by, left); });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"And", InferBools, Run<kAnd>, Work::kSplits, kBroadcastFact},
    {"BitShift", InferShift, RunShift, Work::kSplits},
    {"BitwiseAnd", InferBits, Run<kAnd>, Work::kSplits},
    {"BitwiseOr", InferBits, Run<kOr>, Work::kSplits},
    {"BitwiseXor", InferBits, Run<kXor>, Work::kSplits},
    {"Or", InferBools, Run<kOr>, Work::kSplits, kBroadcastFact},
    {"Xor", InferBools, Run<kXor>, Work::kSplits, kBroadcastFact},
};

}  // namespace

std::span<const OpDef> LogicOps() { return kOps; }

}  // namespace millrace::models::graph
