// Numbers that quantised operators share: rounding to integer types with
// saturation, and operands of any integer type as int32.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph {

// Calls body.operator()<T>() for INT8, UINT8, INT16 and UINT16.
template <typename Body>
void DispatchQuantized(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kI8:
      return body.template operator()<int8_t>();
    case DType::kU8:
      return body.template operator()<uint8_t>();
    case DType::kI16:
      return body.template operator()<int16_t>();
    default:
      break;
  }
  CHECK(dtype == DType::kU16, "infer refuses other types");
  body.template operator()<uint16_t>();
}

inline bool IsQuantized(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 ||
         dtype == DType::kU16;
}

// To the nearest integer, ties to even, within the type; NaN becomes zero.
template <typename T, typename M>
T Saturate(M value, int32_t zero) {
  const M rounded = std::nearbyint(value) + static_cast<M>(zero);
  constexpr auto kLow = static_cast<M>(std::numeric_limits<T>::min());
  constexpr auto kHigh = static_cast<M>(std::numeric_limits<T>::max());
  if (!(rounded > kLow))
    return rounded == rounded ? static_cast<T>(kLow) : T(0);
  return static_cast<T>(rounded < kHigh ? rounded : kHigh);
}

// An operand of bytes (or INT16, UINT16, INT32) as int32; one zero when it is
// not given.
std::vector<int32_t> AsInts(const Arg& arg);
// An operand of floats as f32; one 1 when it is not given.
std::vector<float> AsFloats(const Arg& arg);

// The type that ONNX's number stands for, of those that are quantised or
// floats.
StatusOr<DType> DTypeOfOnnx(int64_t number);

}  // namespace millrace::models::graph
