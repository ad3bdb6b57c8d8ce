// Operators whose shapes depend on their data: NonZero, Compress, Unique.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

std::vector<int64_t> PlacesOfNonZero(const Arg& x) {
  std::vector<int64_t> places;
  Dispatch(x.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      if (static_cast<MathType<T>>(x.data<T>()[i]) != 0) places.push_back(i);
    }
  });
  return places;
}

StatusOr<OutTypes> InferNonZero(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  if (x.bytes == nullptr) return NeedsBytes("what may be zero");
  const auto count = static_cast<int64_t>(PlacesOfNonZero(x).size());
  return OutTypes{{DType::kI64, {x.shape.rank(), count}}};
}

Status RunNonZero(const Call& call, std::span<const Result> results,
                  const Team&) {
  const Shape& x = call.arg(0).shape;
  const std::vector<int64_t> places = PlacesOfNonZero(call.arg(0));
  const auto count = static_cast<int64_t>(places.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = places[static_cast<size_t>(i)];
    for (int k = x.rank() - 1; k >= 0; --k) {
      results[0].data<int64_t>()[k * count + i] = rest % x[k];
      rest /= x[k];
    }
  }
  return OkStatus();
}

StatusOr<std::vector<int64_t>> Chosen(const Call& call, int64_t size) {
  const Arg& condition = call.arg(1);
  if (condition.dtype != DType::kBool || condition.shape.rank() != 1) {
    return WrongType(condition);
  }
  if (condition.bytes == nullptr) return NeedsBytes("the condition");
  std::vector<int64_t> chosen = PlacesOfNonZero(condition);
  std::erase_if(chosen, [&](int64_t at) { return at >= size; });
  return chosen;
}

// Without an axis the operand is seen as one list.
StatusOr<OutTypes> InferCompress(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  Shape shape = call.arg(0).shape;
  if (!call.attrs().Has("axis")) shape = {shape.num_elements()};
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), shape.rank()));
  ASSIGN_OR_RETURN(const auto chosen, Chosen(call, shape[axis]));
  shape[axis] = static_cast<int64_t>(chosen.size());
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunCompress(const Call& call, std::span<const Result> results,
                   const Team&) {
  Shape shape = call.arg(0).shape;
  if (!call.attrs().Has("axis")) shape = {shape.num_elements()};
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), shape.rank()));
  ASSIGN_OR_RETURN(const auto chosen, Chosen(call, shape[axis]));
  const auto run = static_cast<size_t>(shape.Product(axis + 1, shape.rank()) *
                                       DTypeBytes(results[0].dtype));
  std::byte* to = results[0].bytes;
  for (int64_t i = 0; i < shape.Product(0, axis) && run > 0; ++i) {
    for (const int64_t at : chosen) {
      std::memcpy(
          to,
          call.arg(0).bytes + static_cast<size_t>(i * shape[axis] + at) * run,
          run);
      to += run;
    }
  }
  return OkStatus();
}

// Slices along an axis, or single elements; equal ones share a group.
struct Groups {
  std::vector<int64_t> first;     // of each group, in the order of the result
  std::vector<int64_t> group_of;  // of each slice
  std::vector<int64_t> count;
};

struct Slices {
  int64_t outer, count, inner;
};

Slices SlicesOf(const Call& call, std::optional<int> axis) {
  const Shape& x = call.arg(0).shape;
  if (!axis.has_value()) return {1, x.num_elements(), 1};
  return {x.Product(0, *axis), x[*axis], x.Product(*axis + 1, x.rank())};
}

StatusOr<std::optional<int>> AxisOf(const Call& call) {
  if (!call.attrs().Has("axis")) return std::optional<int>();
  ASSIGN_OR_RETURN(const int axis, NormalAxis(call.attrs().Int("axis", 0),
                                              call.arg(0).shape.rank()));
  return std::optional<int>(axis);
}

template <typename T>
Groups GroupsOf(const T* x, const Slices& slices, bool sorted) {
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < slices.outer; ++o) {
      const T* row = x + o * slices.count * slices.inner;
      for (int64_t i = 0; i < slices.inner; ++i) {
        const auto p = static_cast<MathType<T>>(row[a * slices.inner + i]);
        const auto q = static_cast<MathType<T>>(row[b * slices.inner + i]);
        // NaN is the greatest, and like no other.
        if (p < q || (p == p && q != q)) return -1;
        if (q < p || (q == q && p != p)) return 1;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(slices.count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Groups groups;
  groups.group_of.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      groups.first.push_back(order[i]);
      groups.count.push_back(0);
    }
    ++groups.count.back();
    groups.group_of[static_cast<size_t>(order[i])] =
        static_cast<int64_t>(groups.first.size()) - 1;
  }
  if (sorted) return groups;
  // In the order in which they first appear.
  std::vector<int64_t> by_first(groups.first.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  std::sort(by_first.begin(), by_first.end(), [&](int64_t a, int64_t b) {
    return groups.first[static_cast<size_t>(a)] <
           groups.first[static_cast<size_t>(b)];
  });
  Groups moved;
  std::vector<int64_t> place(by_first.size());
  for (size_t i = 0; i < by_first.size(); ++i) {
    const auto old = static_cast<size_t>(by_first[i]);
    moved.first.push_back(groups.first[old]);
    moved.count.push_back(groups.count[old]);
    place[old] = static_cast<int64_t>(i);
  }
  for (const int64_t group : groups.group_of) {
    moved.group_of.push_back(place[static_cast<size_t>(group)]);
  }
  return moved;
}

StatusOr<Groups> UniqueGroups(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (call.arg(0).bytes == nullptr) return NeedsBytes("what may be equal");
  ASSIGN_OR_RETURN(const std::optional<int> axis, AxisOf(call));
  const bool sorted = call.attrs().Int("sorted", 1) != 0;
  return Dispatch(call.arg(0).dtype, [&]<typename T>() {
    return GroupsOf(call.arg(0).data<T>(), SlicesOf(call, axis), sorted);
  });
}

StatusOr<OutTypes> InferUnique(const Call& call) {
  ASSIGN_OR_RETURN(const Groups groups, UniqueGroups(call));
  ASSIGN_OR_RETURN(const std::optional<int> axis, AxisOf(call));
  const auto count = static_cast<int64_t>(groups.first.size());
  Shape shape = {count};
  if (axis.has_value()) {
    shape = call.arg(0).shape;
    shape[*axis] = count;
  }
  return OutTypes{{call.arg(0).dtype, shape},
                  {DType::kI64, {count}},
                  {DType::kI64, {static_cast<int64_t>(groups.group_of.size())}},
                  {DType::kI64, {count}}};
}

Status RunUnique(const Call& call, std::span<const Result> results,
                 const Team&) {
  ASSIGN_OR_RETURN(const Groups groups, UniqueGroups(call));
  ASSIGN_OR_RETURN(const std::optional<int> axis, AxisOf(call));
  const Slices slices = SlicesOf(call, axis);
  const auto run =
      static_cast<size_t>(slices.inner * DTypeBytes(results[0].dtype));
  std::byte* to = results[0].bytes;
  for (int64_t o = 0; o < slices.outer && run > 0; ++o) {
    for (const int64_t at : groups.first) {
      std::memcpy(
          to,
          call.arg(0).bytes + static_cast<size_t>(o * slices.count + at) * run,
          run);
      to += run;
    }
  }
  const std::vector<int64_t>* lists[] = {&groups.first, &groups.group_of,
                                         &groups.count};
  for (size_t i = 0; i < std::size(lists); ++i) {
    std::copy(lists[i]->begin(), lists[i]->end(),
              results[i + 1].data<int64_t>());
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Compress", InferCompress, RunCompress},
    {"NonZero", InferNonZero, RunNonZero},
    {"Unique", InferUnique, RunUnique},
};

}  // namespace

std::span<const OpDef> DynamicOps() { return kOps; }

}  // namespace millrace::models::graph
