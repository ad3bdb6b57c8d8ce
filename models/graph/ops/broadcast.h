// Walking several operands that are broadcast to one shape: dimensions that
// can be walked as one are merged, and the innermost is left to the caller's
// loop.
//
//   const BroadcastWalk walk(out_shape, {a.shape, b.shape});
//   const auto [begin, end] = team.Share(walk.num_rows());
//   walk.ForRows(begin, end, [&](const BroadcastRow& row) {
//     for (int64_t i = 0; i < row.length; ++i) {
//       out[row.out + i] = a[row.at[0] + i * row.step[0]] + …
//     }
//   });
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "models/tensor/shape.h"

namespace millrace::models::graph {

inline constexpr int kMaxBroadcast = 4;

// One innermost run. Offsets and steps are in elements; a step is 0 or 1 (or
// more only where the operand was walked by WithStrides).
struct BroadcastRow {
  int64_t length = 0;
  int64_t out = 0;
  std::array<int64_t, kMaxBroadcast> at = {};
  std::array<int64_t, kMaxBroadcast> step = {};
};

class BroadcastWalk {
 public:
  // Each operand's shape can be broadcast to `out`.
  BroadcastWalk(const Shape& out, std::initializer_list<Shape> operands);
  // Operands with strides of their own for each dimension of `out`.
  static BroadcastWalk WithStrides(const Shape& out,
                                   std::span<const Shape> strides);

  int64_t num_rows() const { return num_rows_; }
  int64_t row_length() const { return length_; }

  template <typename Body>
  void ForRows(int64_t begin, int64_t end, Body&& body) const {
    for (int64_t row = begin; row < end; ++row) body(Row(row));
  }

 private:
  BroadcastWalk() = default;
  void Build(const Shape& out, std::span<const Shape> strides);
  BroadcastRow Row(int64_t index) const;

  int num_operands_ = 0;
  int64_t num_rows_ = 1;
  int64_t length_ = 1;
  Shape outer_;  // merged dimensions but the innermost
  std::array<Shape, kMaxBroadcast> strides_;
  std::array<int64_t, kMaxBroadcast> step_ = {};
};

// The strides with which an operand of `shape` is read as if it had the shape
// `out`: 0 where it is repeated.
Shape BroadcastStrides(const Shape& shape, const Shape& out);

}  // namespace millrace::models::graph
