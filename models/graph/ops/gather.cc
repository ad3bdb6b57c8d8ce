// Gather, GatherElements and GatherND. An index counts from the end when it is
// negative; one that is out of range is an error of the request.
#include <algorithm>
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/indices.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> InferGather(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  RETURN_IF_ERROR(CheckIndices(call.arg(1)));
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.rank()));
  std::vector<int64_t> dims(x.begin(), x.begin() + axis);
  dims.insert(dims.end(), call.arg(1).shape.begin(), call.arg(1).shape.end());
  dims.insert(dims.end(), x.begin() + axis + 1, x.end());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  return OutTypes{{call.arg(0).dtype, shape}};
}

// Runs [begin, end) of the result; copy(to, from) copies a run by its number.
template <typename Copy>
Status GatherRuns(const Indices& indices, int64_t count, int64_t size,
                  int64_t begin, int64_t end, Copy&& copy) {
  for (int64_t i = begin; i < end;) {
    const int64_t outer = i / count;
    const int64_t stop = std::min(end, (outer + 1) * count);
    for (int64_t k = i - outer * count; i < stop; ++i, ++k) {
      const int64_t at = indices.Find(k, size);
      if (at < 0) return indices.Outside(k, size);
      copy(i, outer * size + at);
    }
  }
  return OkStatus();
}

Status RunGather(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.rank()));
  const Indices indices(call.arg(1));
  const int64_t count = call.arg(1).num_elements();
  const int64_t run = x.Product(axis + 1, x.rank());
  const auto [begin, end] = team.Share(x.Product(0, axis) * count);
  const auto gather = [&, b = begin, e = end](auto&& copy) {
    return GatherRuns(indices, count, x[axis], b, e, copy);
  };
  if (run == 1 && DTypeBytes(results[0].dtype) <= 8) {
    return DispatchBytes(DTypeBytes(results[0].dtype), [&]<typename T>() {
      const T* from = call.arg(0).data<T>();
      T* to = results[0].data<T>();
      return gather([=](int64_t i, int64_t at) { to[i] = from[at]; });
    });
  }
  const int64_t bytes = run * DTypeBytes(results[0].dtype);
  return gather([&](int64_t i, int64_t at) {
    if (bytes == 0) return;
    std::memcpy(results[0].bytes + i * bytes, call.arg(0).bytes + at * bytes,
                static_cast<size_t>(bytes));
  });
}

StatusOr<OutTypes> InferGatherElements(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  RETURN_IF_ERROR(CheckIndices(call.arg(1)));
  RETURN_IF_ERROR(CheckWithin(call.arg(0).shape, call.arg(1).shape,
                              call.attrs().Int("axis", 0)));
  return OutTypes{{call.arg(0).dtype, call.arg(1).shape}};
}

Status RunGatherElements(const Call& call, std::span<const Result> results,
                         const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.rank()));
  const Indices indices(call.arg(1));
  const Shape strides = x.Strides();
  const auto [begin, end] = team.Share(out.num_elements(), 64);
  const int64_t row = out.rank() > 0 ? out.back() : 1;
  const bool along_row = axis == out.rank() - 1;
  return DispatchBytes(DTypeBytes(results[0].dtype), [&, b = begin,
                                                      e = end]<typename T>() {
    T* y = results[0].data<T>();
    for (int64_t i = b; i < e;) {
      const int64_t stop = std::min(e, (i / row + 1) * row);
      const T* from = call.arg(0).data<T>() + Elsewhere(i, out, strides, axis);
      const int64_t step = along_row ? 0 : strides.back();
      for (; i < stop; ++i, from += step) {
        const int64_t at = indices.Find(i, x[axis]);
        if (at < 0) return indices.Outside(i, x[axis]);
        y[i] = from[at * strides[axis]];
      }
    }
    return OkStatus();
  });
}

StatusOr<OutTypes> InferGatherNd(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  RETURN_IF_ERROR(CheckIndices(call.arg(1)));
  const Shape& x = call.arg(0).shape;
  const Shape& indices = call.arg(1).shape;
  const int64_t batch = call.attrs().Int("batch_dims", 0);
  if (x.rank() < 1 || indices.rank() < 1 || batch < 0 ||
      batch >= indices.rank() || batch >= x.rank() ||
      indices.back() > x.rank() - batch) {
    return InvalidArgument("indices " + indices.ToString() + " with " +
                           std::to_string(batch) + " batch_dims for " +
                           x.ToString());
  }
  for (int i = 0; i < batch; ++i) {
    if (x[i] != indices[i]) {
      return InvalidArgument("the batches of " + x.ToString() + " and " +
                             indices.ToString() + " differ");
    }
  }
  std::vector<int64_t> dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), x.begin() + batch + indices.back(), x.end());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  return OutTypes{{call.arg(0).dtype, shape}};
}

Status RunGatherNd(const Call& call, std::span<const Result> results,
                   const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape& of = call.arg(1).shape;
  const auto batch = static_cast<int>(call.attrs().Int("batch_dims", 0));
  const auto depth = static_cast<int>(of.back());
  const Indices indices(call.arg(1));
  const int64_t rows = of.Product(0, of.rank() - 1);
  const int64_t rows_per_batch = of.Product(batch, of.rank() - 1);
  const int64_t batch_size = x.Product(batch, x.rank());
  const int64_t run = x.Product(batch + depth, x.rank());
  const Shape strides = x.Strides();
  const int64_t size = DTypeBytes(results[0].dtype);
  const auto [begin, end] = team.Share(rows);
  for (int64_t row = begin; row < end; ++row) {
    int64_t from = row / rows_per_batch * batch_size;
    for (int k = 0; k < depth; ++k) {
      ASSIGN_OR_RETURN(const int64_t at,
                       indices.At(row * depth + k, x[batch + k]));
      from += at * strides[batch + k];
    }
    if (run == 0) continue;
    std::memcpy(results[0].bytes + row * run * size,
                call.arg(0).bytes + from * size,
                static_cast<size_t>(run * size));
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Gather",
     InferGather,
     RunGather,
     Work::kSplits,
     {.looks_up = true,
      .layout = LayoutRule::kSelect,
      .strings = Strings::kTakes,
      .keeps_rows = rows::Gathered}},
    {"GatherElements",
     InferGatherElements,
     RunGatherElements,
     Work::kSplits,
     {.looks_up = true}},
    {"GatherND",
     InferGatherNd,
     RunGatherNd,
     Work::kSplits,
     {.looks_up = true,
      .row_numbers = RowNumbers::kTuples,
      .keeps_rows = rows::IndexedByRow}},
};

}  // namespace

std::span<const OpDef> GatherOps() { return kOps; }

}  // namespace millrace::models::graph
