// EmbeddingBag(weight, indices, offsets, per_sample_weights) {mode,
// padding_idx, include_last_offset}: rows of a table, gathered and reduced by
// bag, as torch.nn.functional.embedding_bag. ONNX has none.
//
//   weight              [rows, d] floats
//   indices             [n] INT64 or INT32 with offsets, [bags, size] without
//   offsets             [bags] of the indices' type: where each bag begins,
//                       rising from 0; with include_last_offset 1 one more,
//                       where the last one ends
//   per_sample_weights  like indices, of weight's type; mode "sum" only
//
// mode is "sum" (the default), "mean" or "max". Indices equal to padding_idx
// (-1: none) count for nothing; an empty bag is 0. Sums are taken in f32, of
// doubles in f64.
#include <algorithm>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

bool IsIndex(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32;
}

int64_t IndexAt(const Arg& arg, int64_t i) {
  return arg.dtype == DType::kI64 ? arg.data<int64_t>()[i]
                                  : int64_t{arg.data<int32_t>()[i]};
}

StatusOr<int64_t> CountBags(const Call& call) {
  const Shape& indices = call.arg(1).shape;
  const Arg& offsets = call.arg(2);
  if (!offsets.given && indices.rank() == 2) return indices[0];
  if (!offsets.given || indices.rank() != 1 || offsets.shape.rank() != 1 ||
      !IsIndex(offsets.dtype)) {
    return InvalidArgument(
        "indices must be [bags, size], or a list that a "
        "list of offsets cuts into bags");
  }
  const int64_t last = call.attrs().Int("include_last_offset", 0) != 0 ? 1 : 0;
  if (offsets.shape[0] < last) {
    return InvalidArgument("the last offset is missing");
  }
  return offsets.shape[0] - last;
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 4));
  RETURN_IF_ERROR(FloatOperand(call, 0, "weight"));
  RETURN_IF_ERROR(SameType(call, 3, "per_sample_weights"));
  if (call.arg(0).shape.rank() != 2 || !IsIndex(call.arg(1).dtype)) {
    return InvalidArgument(
        "weight must be [rows, size] and indices INT64 or "
        "INT32");
  }
  RETURN_IF_ERROR(ShapeIs(call, 3, call.arg(1).shape, "per_sample_weights"));
  const std::string_view mode = call.attrs().Text("mode", "sum");
  if (mode != "sum" && mode != "mean" && mode != "max") {
    return InvalidArgument("mode is '" + std::string(mode) +
                           "'; sum, mean and max are known");
  }
  if (call.arg(3).given && mode != "sum") {
    return InvalidArgument("per_sample_weights need mode sum");
  }
  ASSIGN_OR_RETURN(const int64_t bags, CountBags(call));
  const int64_t dims[] = {bags, call.arg(0).shape[1]};
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

Status Check(const Call& call, int64_t bags) {
  const Arg& indices = call.arg(1);
  const Arg& offsets = call.arg(2);
  const int64_t rows = call.arg(0).shape[0];
  for (int64_t i = 0; i < indices.num_elements(); ++i) {
    const int64_t row = IndexAt(indices, i);
    if (row < 0 || row >= rows) {
      return OutOfRange("index " + std::to_string(row) + " of a table of " +
                        std::to_string(rows) + " rows");
    }
  }
  if (!offsets.given) return OkStatus();
  int64_t before = 0;
  for (int64_t i = 0; i < offsets.num_elements(); ++i) {
    const int64_t at = IndexAt(offsets, i);
    if (at < before || at > indices.num_elements() || (i == 0 && at != 0)) {
      return OutOfRange("offset " + std::to_string(at) + " of bag " +
                        std::to_string(i) + "; offsets rise from 0 to " +
                        std::to_string(indices.num_elements()));
    }
    before = at;
  }
  (void)bags;
  return OkStatus();
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const int64_t bags, CountBags(call));
  RETURN_IF_ERROR(Check(call, bags));
  const Arg& indices = call.arg(1);
  const Arg& offsets = call.arg(2);
  const int64_t size = call.arg(0).shape[1];
  const int64_t padding = call.attrs().Int("padding_idx", -1);
  const std::string_view mode = call.attrs().Text("mode", "sum");
  const auto first_of = [&](int64_t bag) {
    if (!offsets.given) return bag * indices.shape[1];
    return bag < offsets.num_elements() ? IndexAt(offsets, bag)
                                        : indices.num_elements();
  };
  const auto [begin, end] = team.Share(bags);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    std::vector<M> sum(static_cast<size_t>(size));
    for (int64_t bag = b; bag < e; ++bag) {
      std::fill(sum.begin(), sum.end(), M(0));
      int64_t count = 0;
      for (int64_t i = first_of(bag); i < first_of(bag + 1); ++i) {
        const int64_t row = IndexAt(indices, i);
        if (row == padding) continue;
        const T* x = call.arg(0).data<T>() + row * size;
        const M factor = call.arg(3).given ? M(call.arg(3).data<T>()[i]) : M(1);
        for (int64_t j = 0; j < size; ++j) {
          M& to = sum[static_cast<size_t>(j)];
          if (mode == "max") {
            to = count == 0 ? M(x[j]) : std::max(to, M(x[j]));
          } else {
            to += factor * M(x[j]);
          }
        }
        ++count;
      }
      const M divisor =
          mode == "mean" ? static_cast<M>(std::max<int64_t>(count, 1)) : M(1);
      for (int64_t j = 0; j < size; ++j) {
        results[0].data<T>()[bag * size + j] =
            static_cast<T>(sum[static_cast<size_t>(j)] / divisor);
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"EmbeddingBag", Infer, Run, Work::kSplits}};

}  // namespace

std::span<const OpDef> EmbeddingBagOps() { return kOps; }

}  // namespace millrace::models::graph
