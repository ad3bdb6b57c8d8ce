// Elements in another type. Floats go to integers towards zero; what does not
// fit becomes the nearest that does, and NaN becomes 0 (C++ leaves both open).
#include <cmath>
#include <limits>
#include <type_traits>

#include "models/graph/onnx_dtype.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/families.h"

namespace millrace::models::graph {
namespace {

StatusOr<DType> TargetOf(const Call& call) {
  const int64_t to = call.attrs().Int("to", 0);
  const std::optional<DType> dtype = DTypeFromOnnx(to);
  if (!dtype.has_value()) {
    return Unimplemented("the type " + OnnxTypeName(to) + " is not supported");
  }
  return *dtype;
}

StatusOr<OutTypes> InferCast(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType to, TargetOf(call));
  return OutTypes{{to, call.arg(0).shape}};
}

StatusOr<OutTypes> InferCastLike(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  return OutTypes{{call.arg(1).dtype, call.arg(0).shape}};
}

// Only types of one size: the shape stays.
StatusOr<OutTypes> InferBitCast(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType to, TargetOf(call));
  if (DTypeBytes(to) != DTypeBytes(call.arg(0).dtype)) {
    return InvalidArgument(
        "the elements of " + TypeText(call.arg(0).dtype, call.arg(0).shape) +
        " have another size than " + std::string(DTypeName(to)));
  }
  return OutTypes{{to, call.arg(0).shape}};
}

template <typename To, typename From>
To Convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_integral_v<To> &&
                       std::is_floating_point_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(x)) return 0;
    // The bounds as floats may lie one above what fits.
    if (x >= static_cast<From>(Limits::max())) return Limits::max();
    if (x <= static_cast<From>(Limits::lowest())) return Limits::lowest();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

Status RunCast(const Call& call, std::span<const Result> results,
               const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename From>() {
    Dispatch(results[0].dtype, [&]<typename To>() {
      Map<From, To>(call, results[0], team, [](From x) {
        return To(Convert<MathType<To>>(static_cast<MathType<From>>(x)));
      });
    });
  });
  return OkStatus();
}

Status RunBitCast(const Call& call, std::span<const Result> results,
                  const Team& team) {
  const int64_t size = DTypeBytes(results[0].dtype);
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  std::copy(call.arg(0).bytes + begin * size, call.arg(0).bytes + end * size,
            results[0].bytes + begin * size);
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"BitCast", InferBitCast, RunBitCast, Work::kSplits},
    {"Cast", InferCast, RunCast, Work::kSplits, kUnaryFact},
    {"CastLike", InferCastLike, RunCast, Work::kSplits},
};

}  // namespace

std::span<const OpDef> CastOps() { return kOps; }

}  // namespace millrace::models::graph
