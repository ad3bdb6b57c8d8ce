// The element types of tensors, with the names that the KServe v2 protocol
// gives them ("FP32", "INT64", "BOOL", …).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::models {

enum class DType : uint8_t {
  kBool,  // one byte, 0 or 1
  kU8,
  kU16,
  kU32,
  kU64,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
};
inline constexpr int kNumDTypes = 13;

int64_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

bool IsFloat(DType dtype);
bool IsSigned(DType dtype);   // of integers; floats are, too
bool IsInteger(DType dtype);  // bool is not

}  // namespace millrace::models
