#include "models/graph/onnx_dtype.h"
#include "models/tensor/strings.h"

#include <iterator>
#include <string_view>

namespace millrace::models::graph {
namespace {

struct Row {
  std::string_view name;
  std::optional<DType> dtype;
};

// By TensorProto.DataType.
constexpr Row kRows[] = {
    {"UNDEFINED", {}},
    {"FLOAT", DType::kF32},
    {"UINT8", DType::kU8},
    {"INT8", DType::kI8},
    {"UINT16", DType::kU16},
    {"INT16", DType::kI16},
    {"INT32", DType::kI32},
    {"INT64", DType::kI64},
    {"STRING", kString},
    {"BOOL", DType::kBool},
    {"FLOAT16", DType::kF16},
    {"DOUBLE", DType::kF64},
    {"UINT32", DType::kU32},
    {"UINT64", DType::kU64},
    {"COMPLEX64", {}},
    {"COMPLEX128", {}},
    {"BFLOAT16", DType::kBF16},
    {"FLOAT8E4M3FN", {}},
    {"FLOAT8E4M3FNUZ", {}},
    {"FLOAT8E5M2", {}},
    {"FLOAT8E5M2FNUZ", {}},
    {"UINT4", {}},
    {"INT4", {}},
    {"FLOAT4E2M1", {}},
    {"FLOAT8E8M0", {}},
    {"UINT2", {}},
    {"INT2", {}},
};
constexpr auto kCount = static_cast<int64_t>(std::size(kRows));

}  // namespace

std::optional<DType> DTypeFromOnnx(int64_t number) {
  if (number < 0 || number >= kCount) return std::nullopt;
  return kRows[number].dtype;
}

int64_t OnnxNumber(DType dtype) {
  int64_t number = 0;
  while (kRows[number].dtype != dtype) ++number;
  return number;
}

std::string OnnxTypeName(int64_t number) {
  if (number < 0 || number >= kCount) {
    return "type " + std::to_string(number);
  }
  return std::string(kRows[number].name);
}

}  // namespace millrace::models::graph
