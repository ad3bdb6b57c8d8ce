// Layout views: values with their axes in another order, and the graph that is
// made while a pass keeps them as views instead of transposing.
//
//   view axis i is axis perm[i] of the base
//   NCHW view of an NHWC base: perm = {0, 3, 1, 2}
//
// Every helper returns values of the graph being made.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

using Order = std::vector<int>;  // of axes

Order Straight(int rank);
bool IsStraight(const Order& order);

struct Lazy {
  ValueId base = kNoValue;
  Order perm;
};

class LazyGraph {
 public:
  explicit LazyGraph(Graph& made) : made_(made) {}

  const Shape& base_shape(const Lazy& lazy) const {
    return made_.value(lazy.base).type->shape;
  }
  Shape ViewShape(const Lazy& lazy) const;
  DType dtype(const Lazy& lazy) const {
    return made_.value(lazy.base).type->dtype;
  }
  bool IsConstant(const Lazy& lazy) const {
    return made_.value(lazy.base).constant != nullptr;
  }

  // A value whose axes are the view's axes in this order.
  ValueId As(const Lazy& lazy, const Order& order);
  ValueId Plain(const Lazy& lazy) {
    return As(lazy, Straight(static_cast<int>(lazy.perm.size())));
  }
  // The view of another shape with as many elements, without moving anything;
  // where that cannot be, of a value that was moved.
  Lazy Reshaped(const Lazy& lazy, const Shape& shape);

  // The same view; a value as it stands where only axes of size 1 are moved.
  Lazy Simplified(const Lazy& lazy);

  // A node with one result of this type; of small constants, a constant.
  ValueId Add(std::string_view name, std::string_view op,
              std::vector<ValueId> inputs, Attrs attrs, const ValueType& type);
  // A node of an operator that only plans know.
  ValueId AddFused(std::string_view name, const OpDef& op,
                   std::vector<ValueId> inputs, Attrs attrs,
                   const ValueType& type);
  ValueId AddReshape(ValueId of, const Shape& shape);
  ValueId Ints(const std::vector<int64_t>& values);

  Graph& graph() { return made_; }

 private:
  bool ReshapedInPlace(const Lazy& lazy, const Shape& shape, Lazy& out);

  Graph& made_;
  std::map<std::pair<ValueId, Order>, ValueId> moved_;
};

}  // namespace millrace::models::graph
