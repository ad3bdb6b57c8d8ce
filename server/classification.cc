#include "server/classification.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <type_traits>

#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::server {
namespace {

using models::DType;
using models::Tensor;

std::string Shown(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%f", value);
  return text;
}
template <typename T>
std::string Shown(T value) requires std::is_integral_v<T> {
  return std::to_string(value);
}

template <typename T, typename Read>
void Rows(const T* values, int64_t rows, int64_t width, int64_t count,
          Read read, std::vector<std::string>& texts) {
  std::vector<int64_t> order(static_cast<size_t>(width));
  for (int64_t row = 0; row < rows; ++row, values += width) {
    std::iota(order.begin(), order.end(), 0);
    // NaN last, so that the order is one.
    std::partial_sort(order.begin(), order.begin() + count, order.end(),
                      [&](int64_t a, int64_t b) {
                        const auto x = read(values[a]);
                        const auto y = read(values[b]);
                        if (x != x || y != y) return x == x && y != y;
                        return x != y ? x > y : a < b;
                      });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = order[static_cast<size_t>(i)];
      texts.push_back(Shown(read(values[at])) + ":" + std::to_string(at));
    }
  }
}

}  // namespace

Status CheckClassified(const std::string& output, const Tensor& tensor) {
  if (tensor.dtype() != models::kString) return OkStatus();
  return InvalidArgument("output '" + output +
                         "' is BYTES, which cannot be classified; ask for an "
                         "output of numbers or leave classification out")
      .At(output);
}

Classes Classify(const Tensor& tensor, int64_t count) {
  const models::Shape& shape = tensor.shape();
  const int64_t rows = shape.rank() >= 2 ? shape[0] : 1;
  const int64_t width = rows > 0 ? tensor.num_elements() / rows : 0;
  count = std::min(count, width);
  Classes classes;
  if (shape.rank() >= 2) classes.shape.push_back(rows);
  classes.shape.push_back(count);
  if (count == 0) return classes;
  const auto as = [&]<typename T>(T) {
    Rows(
        tensor.data<T>(), rows, width, count, [](T v) { return v; },
        classes.texts);
  };
  const auto halves = [&](float (*widen)(uint16_t)) {
    Rows(
        tensor.data<uint16_t>(), rows, width, count,
        [widen](uint16_t v) { return double{widen(v)}; }, classes.texts);
  };
  switch (tensor.dtype()) {
    case DType::kBool:
    case DType::kU8:
      as(uint8_t{});
      break;
    case DType::kU16:
      as(uint16_t{});
      break;
    case DType::kU32:
      as(uint32_t{});
      break;
    case DType::kU64:
      as(uint64_t{});
      break;
    case DType::kI8:
      as(int8_t{});
      break;
    case DType::kI16:
      as(int16_t{});
      break;
    case DType::kI32:
      as(int32_t{});
      break;
    case DType::kI64:
      as(int64_t{});
      break;
    case DType::kF32:
      as(float{});
      break;
    case DType::kF64:
      as(double{});
      break;
    case DType::kF16:
      halves(models::HalfToFloat);
      break;
    case DType::kBF16:
      halves(models::BFloat16ToFloat);
      break;
  }
  return classes;
}

std::string PackTexts(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(text.size() >> shift & 0xff);
    }
    bytes += text;
  }
  return bytes;
}

}  // namespace millrace::server
