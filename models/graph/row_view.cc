#include "models/graph/row_view.h"

#include <algorithm>
#include <cstring>

namespace millrace::models::graph {

bool RepeatsARow(const Tensor& x, int64_t times) {
  const int64_t each = x.num_bytes() / times;
  for (int64_t i = 1; i < times; ++i) {
    if (std::memcmp(x.bytes() + i * each, x.bytes(),
                    static_cast<size_t>(each)) != 0) {
      return false;
    }
  }
  return true;
}

bool CountsRows(const Tensor& x, int64_t rows, int64_t tuple) {
  if (x.dtype() != DType::kI64 || x.shape().rank() == 0 ||
      x.shape()[0] != rows || tuple == 0) {
    return false;
  }
  const auto* numbers = x.data<int64_t>();
  const int64_t each = x.num_elements() / rows;
  for (int64_t i = 0; i < rows * each; ++i) {
    const bool is_row = i % tuple == 0;
    if (numbers[i] != (is_row ? i / each : numbers[i % each])) return false;
  }
  return true;
}

bool RowView::any_rows() const {
  for (size_t i = 0; i < num_operands(); ++i) {
    if (given(i) && has_rows(i)) return true;
  }
  return false;
}

const Tensor* RowView::constant(size_t i) const {
  return given(i) ? graph_.value(node_.inputs[i]).constant.get() : nullptr;
}

bool RowView::OnlyRows(std::initializer_list<size_t> with) const {
  for (size_t i = 0; i < num_operands(); ++i) {
    if (!given(i)) continue;
    const bool wanted = std::find(with.begin(), with.end(), i) != with.end();
    if (has_rows(i) != wanted) return false;
  }
  return true;
}

bool RowView::AxesLeaveRows(size_t i) const {
  const Tensor* axes = constant(i);
  if (axes == nullptr || axes->num_elements() == 0 ||
      axes->dtype() != DType::kI64) {
    return false;
  }
  const auto* list = axes->data<int64_t>();
  return std::none_of(list, list + axes->num_elements(),
                      [&](int64_t axis) { return IsFirst(axis); });
}

bool RowView::MayHaveRows(size_t i, int64_t size) const {
  if (has_rows(i)) return shape(i)[0] == size;
  const Tensor* tensor = constant(i);
  return tensor != nullptr && IsCut(shape(i)) && shape(i)[0] == size &&
         RepeatsARow(*tensor, batch_);
}

}  // namespace millrace::models::graph
