#include "models/tensor/dtype.h"

#include <array>

namespace millrace::models {
namespace {

struct Row {
  std::string_view name;
  int8_t bytes;
};

// In the order of the enum, then strings (strings.h).
constexpr std::array<Row, kNumDTypes + 1> kRows = {{
    {"BOOL", 1},
    {"UINT8", 1},
    {"UINT16", 2},
    {"UINT32", 4},
    {"UINT64", 8},
    {"INT8", 1},
    {"INT16", 2},
    {"INT32", 4},
    {"INT64", 8},
    {"FP16", 2},
    {"BF16", 2},
    {"FP32", 4},
    {"FP64", 8},
    {"BYTES", sizeof(std::string_view)},
}};

const Row& RowOf(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t DTypeBytes(DType dtype) { return RowOf(dtype).bytes; }
std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) {
  return dtype >= DType::kF16 && dtype <= DType::kF64;
}
bool IsSigned(DType dtype) {
  return dtype >= DType::kI8 && dtype <= DType::kF64;
}
bool IsInteger(DType dtype) {
  return dtype >= DType::kU8 && dtype <= DType::kI64;
}

}  // namespace millrace::models
