// From an element type known at run time to code that is generic over it.
//
//   Dispatch(arg.dtype, [&]<typename T>() { Fill(arg.data<T>(), n); });
//
// Half and BFloat16 are what 16-bit floats become: values that turn into float
// by themselves and back on request. MathType<T> is what to compute in.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "config/base/status.h"
#include "models/tensor/dtype.h"
#include "models/tensor/float16.h"

namespace millrace::models::graph {

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
// Half and BFloat16 are floats, too.
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIsHalf<T>;
template <typename T>
using MathType = std::conditional_t<kIsHalf<T>, float, T>;

// Calls body.operator()<T>() with the C++ type of the elements and returns what
// it returns. bool is a byte of 0 or 1, as `bool`.
template <typename Body>
decltype(auto) Dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kBool:
      return body.template operator()<bool>();
    case DType::kU8:
      return body.template operator()<uint8_t>();
    case DType::kU16:
      return body.template operator()<uint16_t>();
    case DType::kU32:
      return body.template operator()<uint32_t>();
    case DType::kU64:
      return body.template operator()<uint64_t>();
    case DType::kI8:
      return body.template operator()<int8_t>();
    case DType::kI16:
      return body.template operator()<int16_t>();
    case DType::kI32:
      return body.template operator()<int32_t>();
    case DType::kI64:
      return body.template operator()<int64_t>();
    case DType::kF16:
      return body.template operator()<Half>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      break;
  }
  return body.template operator()<double>();
}

// The same for code that moves elements and never looks at them.
template <typename Body>
decltype(auto) DispatchBytes(int64_t element_bytes, Body&& body) {
  switch (element_bytes) {
    case 1:
      return body.template operator()<uint8_t>();
    case 2:
      return body.template operator()<uint16_t>();
    case 4:
      return body.template operator()<uint32_t>();
    default:
      break;
  }
  CHECK(element_bytes == 8, "elements have 1, 2, 4 or 8 bytes");
  return body.template operator()<uint64_t>();
}

}  // namespace millrace::models::graph
