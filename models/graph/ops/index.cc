// Indexing by several tensors at once, as numpy and PyTorch have it and ONNX
// has not:
//
//   Index(x, i0, i1, …) {axes}
//       x indexed along `axes` by integer tensors that are broadcast together;
//       the broadcast dimensions stand where the axes were when those are
//       neighbours, else in front (numpy's advanced indexing).
//   IndexPut(x, values, i0, i1, …) {axes, accumulate}
//       x with the elements that Index would read replaced by `values`, or with
//       `values` added to them.
//
// Negative indices count from the end.
#include <algorithm>
#include <cstring>

#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

using Types = StatusOr<std::vector<ValueType>>;

// How Index and IndexPut see x: some axes are chosen from, others are whole.
struct Indexing {
  std::vector<int> axes;  // indexed, in the order of the index operands
  Shape indices;          // of all index tensors together
  Shape out;              // of what is read
  int front = 0;          // where in `out` the dimensions of indices begin
};

StatusOr<Indexing> IndexingOf(const Call& call, size_t first_index) {
  const Arg& x = call.arg(0);
  const std::vector<int64_t>& axes = call.attrs().Ints("axes");
  if (!x.given || axes.empty() ||
      call.args.size() != first_index + axes.size()) {
    return InvalidArgument("an operand and an index for each axis are needed");
  }
  Indexing indexing;
  bool neighbours = true;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Arg& index = call.arg(first_index + i);
    if (index.dtype != DType::kI64 && index.dtype != DType::kI32) {
      return InvalidArgument("an index is " +
                             TypeText(index.dtype, index.shape) +
                             ", not INT64 or INT32");
    }
    if (axes[i] < 0 || axes[i] >= x.shape.rank() ||
        (i > 0 && axes[i] <= axes[i - 1])) {
      return InvalidArgument("axes must ascend within the operand's rank");
    }
    neighbours &= i == 0 || axes[i] == axes[i - 1] + 1;
    indexing.axes.push_back(static_cast<int>(axes[i]));
    ASSIGN_OR_RETURN(indexing.indices,
                     Broadcast(indexing.indices, index.shape));
  }
  std::vector<int64_t> dims;
  indexing.front = neighbours ? indexing.axes[0] : 0;
  for (int axis = 0; axis <= x.shape.rank(); ++axis) {
    if (static_cast<int>(dims.size()) == indexing.front &&
        (neighbours ? axis == indexing.axes[0] : axis == 0)) {
      dims.insert(dims.end(), indexing.indices.begin(), indexing.indices.end());
    }
    if (axis < x.shape.rank() &&
        std::count(indexing.axes.begin(), indexing.axes.end(), axis) == 0) {
      dims.push_back(x.shape[axis]);
    }
  }
  ASSIGN_OR_RETURN(indexing.out, Shape::Checked(dims));
  return indexing;
}

// For each combination of indices, where in x the chosen elements begin.
StatusOr<std::vector<int64_t>> OffsetsOf(const Call& call,
                                         const Indexing& indexing,
                                         size_t first_index) {
  const Shape& shape = call.arg(0).shape;
  const Shape strides = shape.Strides();
  std::vector<int64_t> offsets(
      static_cast<size_t>(indexing.indices.num_elements()));
  for (size_t k = 0; k < indexing.axes.size(); ++k) {
    const Arg& index = call.arg(first_index + k);
    const int64_t size = shape[indexing.axes[k]];
    const int64_t stride = strides[indexing.axes[k]];
    const BroadcastWalk walk(indexing.indices, {index.shape});
    int64_t wrong = 0;
    bool failed = false;
    walk.ForRows(0, walk.num_rows(), [&](const BroadcastRow& row) {
      for (int64_t i = 0; i < row.length; ++i) {
        const int64_t from = row.at[0] + i * row.step[0];
        int64_t at = index.dtype == DType::kI64 ? index.data<int64_t>()[from]
                                                : index.data<int32_t>()[from];
        if (at < -size || at >= size) {
          wrong = at;
          failed = true;
          at = 0;
        }
        offsets[static_cast<size_t>(row.out + i)] +=
            (at < 0 ? at + size : at) * stride;
      }
    });
    if (failed) {
      return OutOfRange("index " + std::to_string(wrong) +
                        " is outside of an axis of size " +
                        std::to_string(size));
    }
  }
  return offsets;
}

// Calls body(place among what is read, place in x) for every element.
template <typename Body>
void ForElements(const Call& call, const Indexing& indexing,
                 const std::vector<int64_t>& offsets, Body&& body) {
  const Shape& shape = call.arg(0).shape;
  const Shape own = shape.Strides();
  Shape strides = indexing.out;  // in x, of each dimension of what is read
  int dim = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (std::count(indexing.axes.begin(), indexing.axes.end(), axis) > 0) {
      continue;
    }
    if (dim == indexing.front) dim += indexing.indices.rank();
    strides[dim++] = own[axis];
  }
  const int64_t outer = indexing.out.Product(0, indexing.front);
  const int inner_from = indexing.front + indexing.indices.rank();
  const int64_t inner = indexing.out.Product(inner_from, indexing.out.rank());
  const auto place = [&](int64_t index, int first, int last) {
    int64_t at = 0;
    for (int i = last - 1; i >= first; --i) {
      at += index % indexing.out[i] * strides[i];
      index /= indexing.out[i];
    }
    return at;
  };
  int64_t read = 0;
  for (int64_t o = 0; o < outer; ++o) {
    const int64_t before = place(o, 0, indexing.front);
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < inner; ++i) {
        body(read++,
             before + offset + place(i, inner_from, indexing.out.rank()));
      }
    }
  }
}

Types InferIndex(const Call& call) {
  ASSIGN_OR_RETURN(const Indexing indexing, IndexingOf(call, 1));
  return std::vector<ValueType>{{call.arg(0).dtype, indexing.out}};
}

Status RunIndex(const Call& call, std::span<const Result> results,
                const Team&) {
  ASSIGN_OR_RETURN(const Indexing indexing, IndexingOf(call, 1));
  ASSIGN_OR_RETURN(const auto offsets, OffsetsOf(call, indexing, 1));
  DispatchBytes(DTypeBytes(results[0].dtype), [&]<typename T>() {
    const T* x = call.arg(0).data<T>();
    T* y = results[0].data<T>();
    ForElements(call, indexing, offsets,
                [&](int64_t read, int64_t at) { y[read] = x[at]; });
  });
  return OkStatus();
}

Types InferIndexPut(const Call& call) {
  ASSIGN_OR_RETURN(const Indexing indexing, IndexingOf(call, 2));
  const Arg& x = call.arg(0);
  const Arg& values = call.arg(1);
  if (!values.given || values.dtype != x.dtype) {
    return InvalidArgument("values must be of the operand's type");
  }
  ASSIGN_OR_RETURN(const Shape both, Broadcast(indexing.out, values.shape));
  if (both != indexing.out) {
    return InvalidArgument("values " + values.shape.ToString() +
                           " do not fit the places " + indexing.out.ToString());
  }
  return std::vector<ValueType>{{x.dtype, x.shape}};
}

Status RunIndexPut(const Call& call, std::span<const Result> results,
                   const Team&) {
  ASSIGN_OR_RETURN(const Indexing indexing, IndexingOf(call, 2));
  ASSIGN_OR_RETURN(const auto offsets, OffsetsOf(call, indexing, 2));
  const Arg& x = call.arg(0);
  std::memcpy(results[0].bytes, x.bytes,
              static_cast<size_t>(x.num_elements() * DTypeBytes(x.dtype)));
  const bool accumulate = call.attrs().Int("accumulate", 0) != 0;
  const Shape strides = BroadcastStrides(call.arg(1).shape, indexing.out);
  // Where among the values an element of what is written lies.
  const auto value_at = [&](int64_t read) {
    int64_t at = 0;
    for (int i = indexing.out.rank() - 1; i >= 0; --i) {
      at += read % indexing.out[i] * strides[i];
      read /= indexing.out[i];
    }
    return at;
  };
  Dispatch(x.dtype, [&]<typename T>() {
    const T* values = call.arg(1).data<T>();
    T* y = results[0].data<T>();
    ForElements(call, indexing, offsets, [&](int64_t read, int64_t at) {
      const T value = values[value_at(read)];
      if constexpr (std::is_same_v<T, bool>) {
        y[at] = accumulate ? y[at] || value : value;
      } else if constexpr (std::is_integral_v<T>) {
        y[at] = accumulate ? static_cast<T>(static_cast<uint64_t>(y[at]) +
                                            static_cast<uint64_t>(value))
                           : value;
      } else {
        using M = MathType<T>;
        y[at] =
            accumulate
                ? static_cast<T>(static_cast<M>(y[at]) + static_cast<M>(value))
                : value;
      }
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Index",
     InferIndex,
     RunIndex,
     Work::kWhole,
     {.row_numbers = RowNumbers::kPlain, .keeps_rows = rows::IndexedByRow}},
    {"IndexPut", InferIndexPut, RunIndexPut},
};

}  // namespace

std::span<const OpDef> IndexOps() { return kOps; }

}  // namespace millrace::models::graph
