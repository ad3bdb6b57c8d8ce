#include "tests/conformance/onnx/compare.h"

#include <algorithm>
#include <cmath>

#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph {
namespace {

bool IsRandom(const std::string& name) {
  return name.find("bernoulli") != std::string::npos ||
         name.find("random") != std::string::npos;
}

std::string DifferenceOf(const Tensor& got, const Tensor& want,
                         const Case& one) {
  if (got.dtype() != want.dtype() || got.shape() != want.shape()) {
    return TypeText(got.dtype(), got.shape()) + " instead of " +
           TypeText(want.dtype(), want.shape());
  }
  if (IsRandom(one.name)) return "";
  const double rtol =
      want.dtype() == DType::kBF16 ? std::max(one.rtol, 0x1p-6) : one.rtol;
  return Dispatch(got.dtype(), [&]<typename T>() -> std::string {
    for (int64_t i = 0; i < want.num_elements(); ++i) {
      const auto a = static_cast<double>(got.data<T>()[i]);
      const auto b = static_cast<double>(want.data<T>()[i]);
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                        std::fabs(a - b) <= one.atol + rtol * std::fabs(b);
      if (same) continue;
      return "element " + std::to_string(i) + " is " + std::to_string(a) +
             " instead of " + std::to_string(b);
    }
    return "";
  });
}

}  // namespace

std::string Difference(const RuntimeValue& got, const RuntimeValue& want,
                       const Case& one) {
  if (got.is_sequence != want.is_sequence) return "a sequence or none";
  if (!got.is_sequence) return DifferenceOf(got.tensor, want.tensor, one);
  if (got.sequence.size() != want.sequence.size()) {
    return "a sequence of " + std::to_string(got.sequence.size()) +
           " instead of " + std::to_string(want.sequence.size());
  }
  for (size_t i = 0; i < got.sequence.size(); ++i) {
    std::string text = DifferenceOf(got.sequence[i], want.sequence[i], one);
    if (!text.empty()) return "of the sequence, " + text;
  }
  return "";
}

}  // namespace millrace::models::graph
