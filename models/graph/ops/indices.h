// Tensors of places along an axis, INT32 or INT64.
#pragma once

#include <string>

#include "models/graph/ops/checks.h"

namespace millrace::models::graph {

inline Status CheckIndices(const Arg& arg) {
  const bool fits = arg.dtype == DType::kI64 || arg.dtype == DType::kI32;
  return fits ? OkStatus() : WrongType(arg);
}

class Indices {
 public:
  explicit Indices(const Arg& arg)
      : wide_(arg.dtype == DType::kI64 ? arg.data<int64_t>() : nullptr),
        narrow_(arg.data<int32_t>()) {}

  // The i-th, from 0 on; INVALID_ARGUMENT unless it is in [-size, size).
  StatusOr<int64_t> At(int64_t i, int64_t size) const {
    const int64_t at = Find(i, size);
    if (at < 0) return Outside(i, size);
    return at;
  }

  // The same for loops over elements: -1 where At fails, as Outside says.
  int64_t Find(int64_t i, int64_t size) const {
    const int64_t at = Given(i);
    if (at < -size || at >= size) return -1;
    return at < 0 ? at + size : at;
  }
  Status Outside(int64_t i, int64_t size) const {
    return InvalidArgument("the index " + std::to_string(Given(i)) +
                           " is outside of a dimension of " +
                           std::to_string(size));
  }

 private:
  int64_t Given(int64_t i) const {
    return wide_ != nullptr ? wide_[i] : narrow_[i];
  }

  const int64_t* wide_;
  const int32_t* narrow_;
};

// Of *Elements operators: indices are no larger than the data but along axis.
inline Status CheckWithin(const Shape& data, const Shape& indices,
                          int64_t along) {
  bool fits = data.rank() == indices.rank() && data.rank() > 0;
  if (fits) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(along, data.rank()));
    for (int i = 0; i < data.rank(); ++i) {
      fits = fits && (i == axis || indices[i] <= data[i]);
    }
  }
  return fits ? OkStatus()
              : InvalidArgument("indices " + indices.ToString() + " for " +
                                data.ToString());
}

// Where element i of a tensor of `shape` stands in one of those strides, but
// for its part along `axis`.
inline int64_t Elsewhere(int64_t i, const Shape& shape, const Shape& strides,
                         int axis) {
  int64_t at = 0;
  for (int k = shape.rank() - 1; k >= 0; --k) {
    if (k != axis) at += i % shape[k] * strides[k];
    i /= shape[k];
  }
  return at;
}

}  // namespace millrace::models::graph
