// ScatterElements and ScatterND: a copy of the data with some places changed,
// in the order of the updates.
#include <algorithm>
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/indices.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

enum class Reduction { kNone, kAdd, kMul, kMin, kMax };

StatusOr<Reduction> ReductionOf(const Call& call) {
  const std::string_view name = call.attrs().Text("reduction", "none");
  if (name == "none") return Reduction::kNone;
  if (call.arg(0).dtype == DType::kBool) return WrongType(call.arg(0));
  if (name == "add") return Reduction::kAdd;
  if (name == "mul") return Reduction::kMul;
  if (name == "min") return Reduction::kMin;
  if (name == "max") return Reduction::kMax;
  return InvalidArgument("there is no reduction '" + std::string(name) + "'");
}

template <typename T>
T Reduced(Reduction how, T old, T update) {
  using Math = std::conditional_t<std::is_integral_v<T>, uint64_t, MathType<T>>;
  const auto a = static_cast<Math>(old);
  const auto b = static_cast<Math>(update);
  switch (how) {
    case Reduction::kAdd:
      return static_cast<T>(a + b);
    case Reduction::kMul:
      return static_cast<T>(a * b);
    case Reduction::kMin:
      return update < old ? update : old;
    case Reduction::kMax:
      return update > old ? update : old;
    case Reduction::kNone:
      break;
  }
  return update;
}

void CopyData(const Call& call, const Result& out) {
  const auto bytes =
      static_cast<size_t>(out.num_elements() * DTypeBytes(out.dtype));
  if (bytes > 0) std::memcpy(out.bytes, call.arg(0).bytes, bytes);
}

StatusOr<OutTypes> InferElements(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 3));
  RETURN_IF_ERROR(CheckIndices(call.arg(1)));
  RETURN_IF_ERROR(CheckSameType(call.arg(0), call.arg(2)));
  RETURN_IF_ERROR(ReductionOf(call).status());
  RETURN_IF_ERROR(CheckWithin(call.arg(0).shape, call.arg(1).shape,
                              call.attrs().Int("axis", 0)));
  if (call.arg(1).shape != call.arg(2).shape) {
    return InvalidArgument("there is not one update for each index");
  }
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

Status RunElements(const Call& call, std::span<const Result> results,
                   const Team&) {
  CopyData(call, results[0]);
  ASSIGN_OR_RETURN(const Reduction how, ReductionOf(call));
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.rank()));
  const Indices indices(call.arg(1));
  const Shape strides = x.Strides();
  return Dispatch(results[0].dtype, [&]<typename T>() -> Status {
    for (int64_t i = 0; i < call.arg(1).num_elements(); ++i) {
      ASSIGN_OR_RETURN(const int64_t at, indices.At(i, x[axis]));
      T& y =
          results[0].data<T>()[Elsewhere(i, call.arg(1).shape, strides, axis) +
                               at * strides[axis]];
      y = Reduced(how, y, call.arg(2).data<T>()[i]);
    }
    return OkStatus();
  });
}

StatusOr<OutTypes> InferNd(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 3));
  RETURN_IF_ERROR(CheckIndices(call.arg(1)));
  RETURN_IF_ERROR(CheckSameType(call.arg(0), call.arg(2)));
  RETURN_IF_ERROR(ReductionOf(call).status());
  const Shape& x = call.arg(0).shape;
  const Shape& indices = call.arg(1).shape;
  if (indices.rank() < 1 || indices.back() > x.rank()) {
    return InvalidArgument("indices " + indices.ToString() + " for " +
                           x.ToString());
  }
  std::vector<int64_t> dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), x.begin() + indices.back(), x.end());
  const Shape& updates = call.arg(2).shape;
  if (!std::equal(dims.begin(), dims.end(), updates.begin(), updates.end())) {
    return InvalidArgument("updates " + updates.ToString() + " for indices " +
                           indices.ToString() + " of " + x.ToString());
  }
  return OutTypes{{call.arg(0).dtype, x}};
}

Status RunNd(const Call& call, std::span<const Result> results, const Team&) {
  CopyData(call, results[0]);
  ASSIGN_OR_RETURN(const Reduction how, ReductionOf(call));
  const Shape& x = call.arg(0).shape;
  const Shape& of = call.arg(1).shape;
  const auto depth = static_cast<int>(of.back());
  const Indices indices(call.arg(1));
  const Shape strides = x.Strides();
  const int64_t run = x.Product(depth, x.rank());
  return Dispatch(results[0].dtype, [&]<typename T>() -> Status {
    for (int64_t row = 0; row < of.Product(0, of.rank() - 1); ++row) {
      int64_t to = 0;
      for (int k = 0; k < depth; ++k) {
        ASSIGN_OR_RETURN(const int64_t at, indices.At(row * depth + k, x[k]));
        to += at * strides[k];
      }
      T* y = results[0].data<T>() + to;
      const T* update = call.arg(2).data<T>() + row * run;
      for (int64_t i = 0; i < run; ++i) y[i] = Reduced(how, y[i], update[i]);
    }
    return OkStatus();
  });
}

constexpr OpDef kOps[] = {
    {"ScatterElements", InferElements, RunElements},
    {"ScatterND", InferNd, RunNd},
};

}  // namespace

std::span<const OpDef> ScatterOps() { return kOps; }

}  // namespace millrace::models::graph
