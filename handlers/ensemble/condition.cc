#include "handlers/ensemble/condition.h"

#include <cstring>

#include "models/tensor/float16.h"

namespace millrace::handlers {
namespace {

using Compare = config::StepCondition::Compare;
using models::DType;

bool Compares(double element, Compare compare, double value) {
  switch (compare) {
    case Compare::kLess:
      return element < value;
    case Compare::kAtMost:
      return element <= value;
    case Compare::kEqual:
      return element == value;
    case Compare::kNotEqual:
      return element != value;
    case Compare::kAtLeast:
      return element >= value;
    case Compare::kGreater:
      return element > value;
  }
  return false;
}

template <typename T>
bool Any(const models::Tensor& tensor, Compare compare, double value) {
  const std::byte* bytes = tensor.bytes();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    T element;
    std::memcpy(&element, bytes + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    if (Compares(static_cast<double>(element), compare, value)) return true;
  }
  return false;
}

}  // namespace

bool AnyCompares(const models::Tensor& tensor, Compare compare, double value) {
  switch (tensor.dtype()) {
    case DType::kBool:
    case DType::kU8:
      return Any<uint8_t>(tensor, compare, value);
    case DType::kU16:
      return Any<uint16_t>(tensor, compare, value);
    case DType::kU32:
      return Any<uint32_t>(tensor, compare, value);
    case DType::kU64:
      return Any<uint64_t>(tensor, compare, value);
    case DType::kI8:
      return Any<int8_t>(tensor, compare, value);
    case DType::kI16:
      return Any<int16_t>(tensor, compare, value);
    case DType::kI32:
      return Any<int32_t>(tensor, compare, value);
    case DType::kI64:
      return Any<int64_t>(tensor, compare, value);
    case DType::kF32:
      return Any<float>(tensor, compare, value);
    case DType::kF64:
      return Any<double>(tensor, compare, value);
    case DType::kF16:
      return Any<models::Half>(tensor, compare, value);
    case DType::kBF16:
      return Any<models::BFloat16>(tensor, compare, value);
    default:
      return false;
  }
}

}  // namespace millrace::handlers
