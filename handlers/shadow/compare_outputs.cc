#include "handlers/shadow/compare_outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;

template <typename T>
void CompareFloats(const Tensor& a, const Tensor& b, double tolerance,
                   OutputDifference* difference) {
  const T* real = a.data<T>();
  const T* shadow = b.data<T>();
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const auto x = static_cast<double>(real[i]);
    const auto y = static_cast<double>(shadow[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double distance = std::abs(x - y);
    if (!std::isfinite(distance)) {
      difference->alike = false;
      continue;
    }
    if (distance > tolerance * (1 + std::abs(x))) difference->alike = false;
    difference->largest = std::max(difference->largest, distance);
  }
}

template <typename T>
void CompareIntegers(const Tensor& a, const Tensor& b,
                     OutputDifference* difference) {
  const T* real = a.data<T>();
  const T* shadow = b.data<T>();
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (real[i] == shadow[i]) continue;
    difference->alike = false;
    const double distance =
        std::abs(static_cast<double>(real[i]) - static_cast<double>(shadow[i]));
    difference->largest = std::max(difference->largest, distance);
  }
}

void Compare(const Tensor& a, const Tensor& b, double tolerance,
             OutputDifference* difference) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    difference->alike = false;
    return;
  }
  if (a.dtype() == models::kString) {
    const auto real = models::StringsIn(a);
    const auto shadow = models::StringsIn(b);
    difference->alike &= std::equal(real.begin(), real.end(), shadow.begin());
    return;
  }
  switch (a.dtype()) {
    case DType::kF64:
      return CompareFloats<double>(a, b, tolerance, difference);
    case DType::kF32:
      return CompareFloats<float>(a, b, tolerance, difference);
    case DType::kF16:
      return CompareFloats<models::Half>(a, b, tolerance, difference);
    case DType::kBF16:
      return CompareFloats<models::BFloat16>(a, b, tolerance, difference);
    case DType::kI64:
      return CompareIntegers<int64_t>(a, b, difference);
    case DType::kI32:
      return CompareIntegers<int32_t>(a, b, difference);
    case DType::kI16:
      return CompareIntegers<int16_t>(a, b, difference);
    case DType::kI8:
      return CompareIntegers<int8_t>(a, b, difference);
    case DType::kU64:
      return CompareIntegers<uint64_t>(a, b, difference);
    case DType::kU32:
      return CompareIntegers<uint32_t>(a, b, difference);
    case DType::kU16:
      return CompareIntegers<uint16_t>(a, b, difference);
    case DType::kU8:
    case DType::kBool:
      return CompareIntegers<uint8_t>(a, b, difference);
  }
}

}  // namespace

OutputDifference CompareOutputs(std::span<const NamedTensor> real,
                                std::span<const NamedTensor> shadow,
                                double tolerance) {
  OutputDifference difference;
  difference.alike = real.size() == shadow.size();
  for (const NamedTensor& each : real) {
    const auto other = std::find_if(
        shadow.begin(), shadow.end(),
        [&](const NamedTensor& output) { return output.name == each.name; });
    if (other == shadow.end()) {
      difference.alike = false;
      continue;
    }
    Compare(each.tensor, other->tensor, tolerance, &difference);
  }
  return difference;
}

}  // namespace millrace::handlers
