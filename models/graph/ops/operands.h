// What operators ask of their operands before they infer types, and the few
// conversions that their functions share.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph {

using Types = StatusOr<std::vector<ValueType>>;

// What infer returns: the types of as many outputs as the node has, which may
// be fewer than the operator can make.
Types Outputs(const Call& call, std::vector<ValueType> types);

// INVALID_ARGUMENT unless the first `least` operands are given and there are
// `most` at the most.
Status CountOperands(const Call& call, size_t least, size_t most);
// INVALID_ARGUMENT unless operand i holds floats; one that is not given passes.
Status FloatOperand(const Call& call, size_t i, std::string_view what);
// INVALID_ARGUMENT unless operand i has the element type of operand 0; one
// that is not given passes.
Status SameType(const Call& call, size_t i, std::string_view what);
// INVALID_ARGUMENT unless operand i has this shape; not given passes.
Status ShapeIs(const Call& call, size_t i, const Shape& shape,
               std::string_view what);
Status RankAtLeast(const Arg& arg, int rank, std::string_view what);

// All of the above for the many operators of one float tensor.
Status OneFloat(const Call& call);

// As Dispatch, for the four types of floats.
template <typename Body>
decltype(auto) DispatchFloat(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF16:
      return body.template operator()<Half>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF64:
      return body.template operator()<double>();
    default:
      break;
  }
  CHECK(dtype == DType::kF32, "infer refuses what is not a float");
  return body.template operator()<float>();
}

// An operand's elements in the type that is computed in; empty when it is not
// given.
template <typename T>
std::vector<MathType<T>> Widened(const Arg& arg) {
  if (!arg.given) return {};
  const T* x = arg.data<T>();
  return std::vector<MathType<T>>(x, x + arg.num_elements());
}

// The same, repeated to a shape that it can be broadcast to.
template <typename T>
std::vector<MathType<T>> WidenedTo(const Arg& arg, const Shape& shape) {
  std::vector<MathType<T>> all(static_cast<size_t>(shape.num_elements()));
  const T* x = arg.data<T>();
  const BroadcastWalk walk(shape, {arg.shape});
  walk.ForRows(0, walk.num_rows(), [&](const BroadcastRow& row) {
    for (int64_t i = 0; i < row.length; ++i) {
      all[static_cast<size_t>(row.out + i)] = x[row.at[0] + i * row.step[0]];
    }
  });
  return all;
}

}  // namespace millrace::models::graph
