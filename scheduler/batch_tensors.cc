// Rows of a row-major tensor are contiguous, so joining is one copy for each
// part and parting copies nothing.
#include "scheduler/batch_tensors.h"

#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

namespace millrace::scheduler {
namespace {

using models::Shape;
using models::Tensor;

Shape WithRows(const Shape& shape, int64_t rows) {
  Shape changed = shape;
  changed[0] = rows;
  return changed;
}

}  // namespace

StatusOr<int32_t> RowsOf(const std::vector<Tensor>& inputs,
                         const std::vector<std::string>& names) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape();
    if (shape.rank() == 0) {
      return InvalidArgument("input '" + names[i] +
                             "' is a scalar, but requests of this model are "
                             "joined along their first dimension; give it one")
          .At(names[i]);
    }
    if (shape[0] != inputs[0].shape()[0]) {
      return InvalidArgument("input '" + names[i] + "' has " +
                             std::to_string(shape[0]) + " rows but input '" +
                             names[0] + "' has " +
                             std::to_string(inputs[0].shape()[0]) +
                             "; the first dimension of all inputs is the batch")
          .At(names[i]);
    }
  }
  if (inputs.empty()) return 1;
  const int64_t rows = inputs[0].shape()[0];
  if (rows > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a request of " + std::to_string(rows) +
                           " rows is too large; send fewer at a time")
        .At(names[0]);
  }
  return static_cast<int32_t>(rows);
}

std::string KindOf(const std::vector<Tensor>& inputs) {
  std::string kind;
  const auto append = [&kind](int64_t value) {
    kind.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const Tensor& input : inputs) {
    append(static_cast<int64_t>(input.dtype()));
    append(input.shape().rank());
    for (int i = 1; i < input.shape().rank(); ++i) append(input.shape()[i]);
  }
  return kind;
}

std::vector<Tensor> JoinRows(
    const std::vector<const std::vector<Tensor>*>& parts) {
  std::vector<Tensor> joined;
  for (size_t i = 0; i < parts[0]->size(); ++i) {
    const Tensor& first = (*parts[0])[i];
    int64_t rows = 0;
    for (const auto* part : parts) rows += (*part)[i].shape()[0];
    Tensor all = Tensor::Make(first.dtype(), WithRows(first.shape(), rows));
    std::byte* to = all.bytes();
    for (const auto* part : parts) {
      const Tensor& from = (*part)[i];
      if (from.num_bytes() == 0) continue;
      std::memcpy(to, from.bytes(), static_cast<size_t>(from.num_bytes()));
      to += from.num_bytes();
    }
    joined.push_back(std::move(all));
  }
  return joined;
}

StatusOr<std::vector<std::vector<Tensor>>> PartRows(
    std::vector<Tensor> outputs, const std::vector<int32_t>& rows) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<std::vector<Tensor>> parts(rows.size());
  for (Tensor& output : outputs) {
    const Shape shape = output.shape();
    if (shape.rank() == 0 || shape[0] != all) {
      return Internal("an output does not have the " + std::to_string(all) +
                      " rows of its batch");
    }
    const int64_t row_bytes = all == 0 ? 0 : output.num_bytes() / all;
    // Shared: each request's part may live longer than the others.
    const auto whole = std::make_shared<const Tensor>(std::move(output));
    const std::byte* at = whole->bytes();
    for (size_t i = 0; i < rows.size(); ++i) {
      parts[i].push_back(
          Tensor::Borrow(whole->dtype(), WithRows(shape, rows[i]), at, whole));
      at += rows[i] * row_bytes;
    }
  }
  return parts;
}

}  // namespace millrace::scheduler
