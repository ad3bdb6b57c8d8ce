// The sizes of a tensor's dimensions, outermost first, without an allocation.
//
//   Shape shape = {2, 3, 224, 224};
//   shape.rank();              // 4
//   shape.num_elements();      // 301056
//   shape.Strides();           // {150528, 50176, 224, 1}
//
// Sizes are 0 or more; rank 0 is a scalar of one element.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

class Shape {
 public:
  static constexpr int kMaxRank = 8;
  // Of num_elements, so that bytes never overflow.
  static constexpr int64_t kMaxElements = int64_t{1} << 48;

  Shape() = default;
  // Dimensions known to be valid.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);
  // Foreign dimensions: INVALID_ARGUMENT says which limit they break.
  static StatusOr<Shape> Checked(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  int64_t back() const { return dims_[rank_ - 1]; }
  std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_)};
  }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }

  int64_t num_elements() const;
  // The product of dimensions [first, last).
  int64_t Product(int first, int last) const;
  // Elements between neighbours of each dimension, of a dense tensor.
  Shape Strides() const;

  void Append(int64_t size);
  void Insert(int axis, int64_t size);
  void Erase(int axis);

  bool operator==(const Shape& other) const;
  std::string ToString() const;  // "[2, 3, 224, 224]"

 private:
  std::array<int64_t, kMaxRank> dims_ = {};
  int8_t rank_ = 0;
};

// The shape of which both are broadcast to (ONNX "Multidirectional
// Broadcasting", which is numpy's rule). INVALID_ARGUMENT names both shapes.
StatusOr<Shape> Broadcast(const Shape& a, const Shape& b);

// An axis counted from the front or, when negative, from the back, within a
// tensor of `rank` dimensions. INVALID_ARGUMENT names the range.
StatusOr<int> NormalAxis(int64_t axis, int rank);

}  // namespace millrace::models
