#include "models/graph/passes/lazy.h"

#include <algorithm>
#include <numeric>

#include "models/graph/interpreter.h"
#include "models/graph/op.h"

namespace millrace::models::graph {
namespace {

// A constant is moved while the plan is made, unless it is a large one.
constexpr int64_t kMostMovedConstant = int64_t{1} << 20;

std::vector<int64_t> Wide(const Order& order) {
  return {order.begin(), order.end()};
}

// Which sizes of `from` and `to`, walked side by side, have equal products:
// ends of ranges in both. Sizes of 1 must have been left out of `from`.
struct Group {
  int from_begin, from_end, to_begin, to_end;
};

std::vector<Group> MatchGroups(const std::vector<int64_t>& from,
                               const Shape& to) {
  std::vector<Group> groups;
  int i = 0;
  int j = 0;
  const auto num_from = static_cast<int>(from.size());
  while (i < num_from || j < to.rank()) {
    Group group{i, i, j, j};
    int64_t a = 1;
    int64_t b = 1;
    if (i < num_from) a = from[static_cast<size_t>(i++)];
    if (j < to.rank()) b = to[j++];
    while (a != b) {
      if (a < b) {
        a *= from[static_cast<size_t>(i++)];
      } else {
        b *= to[j++];
      }
    }
    // Ones at the end belong to the last group.
    if (i == num_from) {
      while (j < to.rank()) ++j;
    }
    group.from_end = i;
    group.to_end = j;
    groups.push_back(group);
  }
  return groups;
}

}  // namespace

Order Straight(int rank) {
  Order order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool IsStraight(const Order& order) {
  return order == Straight(static_cast<int>(order.size()));
}

Shape LazyGraph::ViewShape(const Lazy& lazy) const {
  Shape shape = base_shape(lazy);
  for (int i = 0; i < shape.rank(); ++i) {
    shape[i] = base_shape(lazy)[lazy.perm[static_cast<size_t>(i)]];
  }
  return shape;
}

ValueId LazyGraph::As(const Lazy& lazy, const Order& order) {
  Order perm;
  for (const int axis : order) {
    perm.push_back(lazy.perm[static_cast<size_t>(axis)]);
  }
  if (IsStraight(perm)) return lazy.base;
  const auto [known, is_new] = moved_.try_emplace({lazy.base, perm}, kNoValue);
  if (!is_new) return known->second;
  const Shape& from = base_shape(lazy);
  Shape to = from;
  for (int i = 0; i < to.rank(); ++i)
    to[i] = from[perm[static_cast<size_t>(i)]];
  // Moving axes of size 1 moves nothing.
  Order kept;
  for (const int axis : perm) {
    if (from[axis] != 1) kept.push_back(axis);
  }
  ValueId id = kNoValue;
  if (std::is_sorted(kept.begin(), kept.end())) {
    id = AddReshape(lazy.base, to);
  } else {
    id = Add("move", "Transpose", {lazy.base}, {{"perm", Wide(perm)}},
             {dtype(lazy), to});
  }
  known->second = id;
  return id;
}

Lazy LazyGraph::Simplified(const Lazy& lazy) {
  Order kept;
  for (const int axis : lazy.perm) {
    if (base_shape(lazy)[axis] != 1) kept.push_back(axis);
  }
  if (!std::is_sorted(kept.begin(), kept.end())) return lazy;
  return {Plain(lazy), Straight(static_cast<int>(lazy.perm.size()))};
}

Lazy LazyGraph::Reshaped(const Lazy& lazy, const Shape& shape) {
  Lazy out;
  if (ReshapedInPlace(lazy, shape, out)) return out;
  return {AddReshape(Plain(lazy), shape), Straight(shape.rank())};
}

bool LazyGraph::ReshapedInPlace(const Lazy& lazy, const Shape& shape,
                                Lazy& out) {
  if (shape.num_elements() == 0) return false;
  // View axes that are not of size 1, and which axis of the base each is.
  const Shape& base = base_shape(lazy);
  std::vector<int64_t> sizes;
  Order axes;
  for (const int axis : lazy.perm) {
    if (base[axis] == 1) continue;
    sizes.push_back(base[axis]);
    axes.push_back(axis);
  }
  const std::vector<Group> groups = MatchGroups(sizes, shape);
  // The base's axes that are not of size 1, counted in their order.
  Order rank_of(static_cast<size_t>(base.rank()), -1);
  int count = 0;
  for (int axis = 0; axis < base.rank(); ++axis) {
    if (base[axis] != 1) rank_of[static_cast<size_t>(axis)] = count++;
  }
  std::vector<int> place(groups.size());  // of the group's first axis
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    place[g] = -1;
    for (int i = group.from_begin; i < group.from_end; ++i) {
      const int rank =
          rank_of[static_cast<size_t>(axes[static_cast<size_t>(i)])];
      if (i == group.from_begin) {
        place[g] = rank;
      } else if (rank != place[g] + (i - group.from_begin)) {
        return false;
      }
    }
  }
  // Axes of size 1 may stand anywhere: where the others keep their order, the
  // view is a value as it stands.
  std::vector<int> moved;
  for (const int at : place) {
    if (at >= 0) moved.push_back(at);
  }
  if (std::is_sorted(moved.begin(), moved.end())) {
    out = {AddReshape(lazy.base, shape), Straight(shape.rank())};
    return true;
  }
  // Otherwise groups of ones alone stay beside the group before them in the
  // base, too.
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t g = 0; g < groups.size(); ++g) {
    if (place[g] < 0) place[g] = g > 0 ? place[g - 1] : -1;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return place[a] < place[b]; });
  Shape new_base;
  out.perm.assign(static_cast<size_t>(shape.rank()), 0);
  for (const size_t g : order) {
    for (int axis = groups[g].to_begin; axis < groups[g].to_end; ++axis) {
      out.perm[static_cast<size_t>(axis)] = new_base.rank();
      new_base.Append(shape[axis]);
    }
  }
  out.base = AddReshape(lazy.base, new_base);
  return true;
}

ValueId LazyGraph::Add(std::string_view name, std::string_view op,
                       std::vector<ValueId> inputs, Attrs attrs,
                       const ValueType& type) {
  const OpDef* def = FindOp(op);
  CHECK(def != nullptr, "an operator that the layout is made of");
  Node node{.op = def,
            .name = std::string(name),
            .inputs = inputs,
            .outputs = {0},
            .attrs = attrs,
            .bodies = {}};
  const auto small = [&](ValueId id) {
    return id == kNoValue ||
           (made_.value(id).constant != nullptr &&
            made_.value(id).constant->num_bytes() <= kMostMovedConstant);
  };
  if (std::all_of(inputs.begin(), inputs.end(), small)) {
    std::vector<const Tensor*> operands;
    for (const ValueId id : inputs) {
      operands.push_back(id == kNoValue ? nullptr
                                        : made_.value(id).constant.get());
    }
    auto results = RunNode(node, operands);
    CHECK(results.ok(), "what is made here is valid");
    return made_.AddConstant(name, std::move((*results)[0]));
  }
  return AddFused(name, *def, std::move(inputs), std::move(attrs), type);
}

ValueId LazyGraph::AddFused(std::string_view name, const OpDef& op,
                            std::vector<ValueId> inputs, Attrs attrs,
                            const ValueType& type) {
  const ValueId id =
      made_.AddNode(name, op, std::move(inputs), std::move(attrs));
  made_.value(id).type = type;
  return id;
}

ValueId LazyGraph::AddReshape(ValueId of, const Shape& shape) {
  const ValueType type{made_.value(of).type->dtype, shape};
  if (made_.value(of).type->shape == shape) return of;
  return Add("reshape", "Reshape", {of, Ints({shape.begin(), shape.end()})}, {},
             type);
}

ValueId LazyGraph::Ints(const std::vector<int64_t>& values) {
  return made_.AddConstant("ints", Tensor::Int64s(values));
}

}  // namespace millrace::models::graph
