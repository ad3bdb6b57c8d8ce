#include "models/tensor/shape.h"

#include <algorithm>

namespace millrace::models {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  CHECK(dims.size() <= kMaxRank, "a shape has 8 dimensions at most");
  rank_ = static_cast<int8_t>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

StatusOr<Shape> Shape::Checked(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return InvalidArgument("a tensor has " + std::to_string(dims.size()) +
                           " dimensions, the limit is 8");
  }
  Shape shape(dims);
  int64_t count = 1;
  for (const int64_t size : dims) {
    if (size < 0) {
      return InvalidArgument("the shape " + shape.ToString() +
                             " has a negative size");
    }
    // A zero hides an overflow of the others: they are limited all the same.
    const int64_t factor = std::max<int64_t>(size, 1);
    if (count > kMaxElements / factor) {
      return InvalidArgument("the shape " + shape.ToString() +
                             " has more than 2^48 elements");
    }
    count *= factor;
  }
  return shape;
}

int64_t Shape::num_elements() const { return Product(0, rank_); }

int64_t Shape::Product(int first, int last) const {
  int64_t product = 1;
  for (int i = first; i < last; ++i) product *= dims_[i];
  return product;
}

Shape Shape::Strides() const {
  Shape strides = *this;
  int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    strides.dims_[i] = stride;
    stride *= dims_[i];
  }
  return strides;
}

void Shape::Append(int64_t size) { Insert(rank_, size); }

void Shape::Insert(int axis, int64_t size) {
  CHECK(rank_ < kMaxRank, "a shape has 8 dimensions at most");
  std::copy_backward(dims_.begin() + axis, dims_.begin() + rank_,
                     dims_.begin() + rank_ + 1);
  dims_[axis] = size;
  ++rank_;
}

void Shape::Erase(int axis) {
  std::copy(dims_.begin() + axis + 1, dims_.begin() + rank_,
            dims_.begin() + axis);
  --rank_;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

StatusOr<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape out = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const int skipped = out.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    int64_t& size = out[i + skipped];
    if (size == 1) {
      size = shorter[i];
    } else if (shorter[i] != 1 && shorter[i] != size) {
      return InvalidArgument("shapes " + a.ToString() + " and " + b.ToString() +
                             " cannot be broadcast together");
    }
  }
  return out;
}

StatusOr<int> NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis " + std::to_string(axis) +
                           " is outside of a tensor of rank " +
                           std::to_string(rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace millrace::models
