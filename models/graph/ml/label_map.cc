#include "models/graph/ml/label_map.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph {
namespace {

// Equal numbers have equal bits.
int64_t BitsOf(double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<int64_t>(value + 0.0);  // -0 becomes 0
}

}  // namespace

LabelColumn LabelColumn::Of(std::vector<std::string> values) {
  LabelColumn column;
  column.dtype = kString;
  column.texts = std::move(values);
  return column;
}

LabelColumn LabelColumn::Of(std::vector<int64_t> values) {
  LabelColumn column;
  column.numbers = std::move(values);
  return column;
}

LabelColumn LabelColumn::Of(std::vector<double> values, DType dtype) {
  LabelColumn column;
  column.dtype = dtype;
  column.reals = std::move(values);
  return column;
}

StatusOr<LabelColumn> LabelColumn::Of(const Tensor& tensor) {
  LabelColumn column;
  column.dtype = tensor.dtype();
  const int64_t count = tensor.num_elements();
  if (tensor.dtype() == kString) {
    const auto* texts = tensor.data<std::string_view>();
    column.texts.assign(texts, texts + count);
    return column;
  }
  Dispatch(tensor.dtype(), [&]<typename T>() {
    const T* values = tensor.data<T>();
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (kIsFloat<T>) {
        column.reals.push_back(
            static_cast<double>(static_cast<MathType<T>>(values[i])));
      } else {
        column.numbers.push_back(static_cast<int64_t>(values[i]));
      }
    }
  });
  return column;
}

LabelMap::LabelMap(LabelColumn keys, LabelColumn values, LabelColumn otherwise)
    : keys_(std::move(keys)),
      values_(std::move(values)),
      otherwise_(std::move(otherwise)) {
  // The last one counts where a key comes twice.
  int64_t at = 0;
  for (const std::string& key : keys_.texts) by_text_[key] = at++;
  for (const int64_t key : keys_.numbers) by_number_[key] = at++;
  for (const double key : keys_.reals) by_number_[BitsOf(key)] = at++;
}

StatusOr<std::shared_ptr<LabelMap>> LabelMap::Make(LabelColumn keys,
                                                   LabelColumn values,
                                                   LabelColumn otherwise) {
  if (keys.size() != values.size()) {
    return InvalidArgument("there are " + std::to_string(keys.size()) +
                           " keys and " + std::to_string(values.size()) +
                           " values");
  }
  if (keys.size() == 0) return InvalidArgument("there are no keys");
  CHECK(otherwise.size() == 1, "one value for what is not found");
  return std::shared_ptr<LabelMap>(
      new LabelMap(std::move(keys), std::move(values), std::move(otherwise)));
}

int64_t LabelMap::Find(std::string_view key) const {
  const auto found = by_text_.find(key);
  return found != by_text_.end() ? found->second : -1;
}

int64_t LabelMap::Find(int64_t key) const {
  if (IsFloat(keys_.dtype)) return Find(static_cast<double>(key));
  const auto found = by_number_.find(key);
  return found != by_number_.end() ? found->second : -1;
}

int64_t LabelMap::Find(double key) const {
  if (!IsFloat(keys_.dtype)) {
    const bool fits = std::abs(key) < 0x1p63;
    return fits ? Find(static_cast<int64_t>(key)) : -1;
  }
  const auto found = by_number_.find(BitsOf(key));
  return found != by_number_.end() ? found->second : -1;
}

int64_t LabelMap::num_bytes() const {
  constexpr int64_t kEach = 96;  // of a key and its entry
  int64_t bytes = static_cast<int64_t>(keys_.size()) * kEach;
  for (const auto* texts : {&keys_.texts, &values_.texts}) {
    for (const std::string& text : *texts) {
      bytes += static_cast<int64_t>(text.size());
    }
  }
  return bytes + (back != nullptr ? back->num_bytes() : 0);
}

}  // namespace millrace::models::graph
