// EmbeddingBag(weight, indices, offsets, per_sample_weights) {mode,
// padding_idx, include_last_offset, wide, rowwise}: rows of a table, gathered
// and reduced by bag, as torch.nn.functional.embedding_bag. ONNX has none.
//
//   weight              [rows, d] floats; with rowwise 1 [rows, d + 8] UINT8,
//   the
//                       values of a row, then its scale and bias in FP32
//   indices             [n] INT64 or INT32 with offsets, [bags, size] without
//   offsets             [bags] of the indices' type: where each bag begins,
//                       rising from 0; with include_last_offset 1 one more,
//                       where the last one ends
//   per_sample_weights  like indices, of the result's type; mode "sum" only
//
// mode is "sum" (the default), "mean" or "max". Indices equal to padding_idx
// (-1: none) count for nothing; an empty bag is 0. The result has weight's
// type, with wide 1 and of rows in bytes FP32. Sums are taken in f32, of
// doubles in f64.
#include "models/graph/ops/embedding_bag.h"

#include <algorithm>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/row_view.h"

namespace millrace::models::graph {
namespace {

bool IsIndex(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32;
}

int64_t IndexAt(const Arg& arg, int64_t i) {
  return arg.dtype == DType::kI64 ? arg.data<int64_t>()[i]
                                  : int64_t{arg.data<int32_t>()[i]};
}

bool IsRowwise(const Attrs& attrs) { return attrs.Int("rowwise", 0) != 0; }

// Values of a row.
int64_t RowSize(const Call& call) {
  const int64_t columns = call.arg(0).shape[1];
  return IsRowwise(call.attrs()) ? columns - kInt8RowExtra : columns;
}

DType ResultType(const Node& node, DType table) {
  return PoolsByKernel(node, table) ? DType::kF32 : table;
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

Status CheckTable(const Call& call) {
  if (!IsRowwise(call.attrs())) return FloatOperand(call, 0, "weight");
  if (call.arg(0).dtype != DType::kU8) {
    return InvalidArgument("weight must be UINT8 where rows have scales");
  }
  return OkStatus();
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 4));
  RETURN_IF_ERROR(CheckTable(call));
  const Shape& table = call.arg(0).shape;
  if (table.rank() != 2 || !IsIndex(call.arg(1).dtype)) {
    return InvalidArgument(
        "weight must be [rows, size] and indices INT64 or "
        "INT32");
  }
  if (RowSize(call) < 0) {
    return InvalidArgument("rows of " + std::to_string(table[1]) +
                           " bytes are too short for a scale and a bias");
  }
  const DType type = ResultType(call.node, call.arg(0).dtype);
  if (call.arg(3).given && call.arg(3).dtype != type) {
    return InvalidArgument("per_sample_weights must be " +
                           std::string(DTypeName(type)));
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
  const int64_t dims[] = {bags, RowSize(call)};
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{type, out}});
}

// Where bags begin; behind the last one they end.
int64_t OffsetAt(const Call& call, int64_t bag) {
  const Arg& indices = call.arg(1);
  const Arg& offsets = call.arg(2);
  if (!offsets.given) return bag * indices.shape[1];
  return bag < offsets.num_elements() ? IndexAt(offsets, bag)
                                      : indices.num_elements();
}

Status CheckOffsets(const Call& call, const BagNames& names) {
  const Arg& offsets = call.arg(2);
  if (!offsets.given) return OkStatus();
  const int64_t count = call.arg(1).num_elements();
  const int64_t num_offsets = offsets.num_elements();
  int64_t before = 0;
  for (int64_t i = 0; i < num_offsets; ++i) {
    const int64_t at = IndexAt(offsets, i);
    if (at >= before && at <= count && (i > 0 || at == 0)) {
      before = at;
      continue;
    }
    return OutOfRange("'" + names.offsets + "' has " + std::to_string(at) +
                      " at place " + std::to_string(i) +
                      "; offsets begin with 0, do not fall, and end at " +
                      std::to_string(count) + ", the number of values in '" +
                      names.indices + "'")
        .At(names.offsets);
  }
  return OkStatus();
}

// The place of the first of [begin, end) that is no row; end: none.
template <typename T>
int64_t FirstOutside(const T* indices, int64_t begin, int64_t end,
                     uint64_t rows) {
  for (int64_t i = begin; i < end; ++i) {
    if (static_cast<uint64_t>(indices[i]) >= rows) return i;
  }
  return end;
}

// Of bags [begin, end).
Status CheckIndices(const Call& call, int64_t begin, int64_t end,
                    const BagNames& names) {
  const Arg& indices = call.arg(1);
  const auto rows = static_cast<uint64_t>(call.arg(0).shape[0]);
  const int64_t first = OffsetAt(call, begin);
  const int64_t behind = OffsetAt(call, end);
  const int64_t at =
      indices.dtype == DType::kI64
          ? FirstOutside(indices.data<int64_t>(), first, behind, rows)
          : FirstOutside(indices.data<int32_t>(), first, behind, rows);
  if (at == behind) return OkStatus();
  return OutOfRange("'" + names.indices + "' has the index " +
                    std::to_string(IndexAt(indices, at)) + " at place " +
                    std::to_string(at) + ", but the table '" + names.table +
                    "' has " + std::to_string(rows) +
                    " rows; send indices from 0 to " +
                    std::to_string(static_cast<int64_t>(rows) - 1))
      .At(names.indices);
}

// The members' parts have about as many rows and bags together.
std::pair<int64_t, int64_t> ShareBags(const Call& call, int64_t bags,
                                      const Team& team) {
  const auto work_before = [&](int64_t bag) {
    return OffsetAt(call, bag) + bag;
  };
  const int64_t all = work_before(bags);
  const auto begin_of = [&](int64_t member) {
    int64_t low = 0;
    int64_t high = bags;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (work_before(middle) * team.count < all * member) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  return {begin_of(team.index), begin_of(team.index + 1)};
}

// Bags of one size, and the table is the same for all.
bool BagsOfRows(const RowView& node) {
  return !node.given(2) &&
         (node.given(3) ? node.OnlyRows({1, 3}) : node.OnlyRows({1}));
}

template <typename T>
void PoolPlainly(const Call& call, const Result& result, int64_t begin,
                 int64_t end) {
  using M = MathType<T>;
  const int64_t size = RowSize(call);
  const int64_t padding = call.attrs().Int("padding_idx", -1);
  const std::string_view mode = call.attrs().Text("mode", "sum");
  std::vector<M> sum(static_cast<size_t>(size));
  for (int64_t bag = begin; bag < end; ++bag) {
    std::fill(sum.begin(), sum.end(), M(0));
    int64_t count = 0;
    for (int64_t i = OffsetAt(call, bag); i < OffsetAt(call, bag + 1); ++i) {
      const int64_t row = IndexAt(call.arg(1), i);
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
      result.data<T>()[bag * size + j] =
          static_cast<T>(sum[static_cast<size_t>(j)] / divisor);
    }
  }
}

TableRows RowsOf(DType table) {
  return table == DType::kU8     ? TableRows::kInt8
         : table == DType::kF16  ? TableRows::kF16
         : table == DType::kBF16 ? TableRows::kBf16
                                 : TableRows::kF32;
}

// Checked bags [begin, end) as the kernels take them.
PoolRowsArgs KernelArgs(const Call& call, const Result& result) {
  const Arg& table = call.arg(0);
  const Arg& indices = call.arg(1);
  const Arg& offsets = call.arg(2);
  const std::string_view mode = call.attrs().Text("mode", "sum");
  PoolRowsArgs args;
  args.table = table.bytes;
  args.type = RowsOf(table.dtype);
  args.pool = mode == "mean"  ? BagPool::kMean
              : mode == "max" ? BagPool::kMax
                              : BagPool::kSum;
  args.size = RowSize(call);
  args.row_bytes = table.shape[1] * DTypeBytes(table.dtype);
  if (indices.dtype == DType::kI64) {
    args.rows = indices.data<int64_t>();
  } else {
    args.rows32 = indices.data<int32_t>();
  }
  args.num_rows = indices.num_elements();
  if (!offsets.given) {
    args.bag_rows = indices.shape[1];
  } else if (offsets.dtype == DType::kI64) {
    args.offsets = offsets.data<int64_t>();
  } else {
    args.offsets32 = offsets.data<int32_t>();
  }
  if (offsets.given) args.num_offsets = offsets.num_elements();
  if (call.arg(3).given) args.weights = call.arg(3).data<float>();
  args.padding_row = call.attrs().Int("padding_idx", -1);
  args.out = result.data<float>();
  return args;
}

Status RunPlain(const Call& call, std::span<const Result> results,
                const Team& team) {
  return RunBags(call, results[0], team, PoolRowsScalar, {});
}

constexpr OpDef kOps[] = {{"EmbeddingBag",
                           Infer,
                           RunPlain,
                           Work::kSplits,
                           {.keeps_rows = BagsOfRows}}};

}  // namespace

bool PoolsByKernel(const Node& node, DType table) {
  const bool is_half = table == DType::kF16 || table == DType::kBF16;
  return table == DType::kF32 || IsRowwise(node.attrs) ||
         (is_half && node.attrs.Int("wide", 0) != 0);
}

Status RunBags(const Call& call, const Result& result, const Team& team,
               PoolRows pool, const BagNames& names) {
  ASSIGN_OR_RETURN(const int64_t bags, CountBags(call));
  RETURN_IF_ERROR(CheckOffsets(call, names));
  const auto [begin, end] = ShareBags(call, bags, team);
  RETURN_IF_ERROR(CheckIndices(call, begin, end, names));
  const DType table = call.arg(0).dtype;
  if (!PoolsByKernel(call.node, table)) {
    DispatchFloat(table, [&, b = begin, e = end]<typename T>() {
      PoolPlainly<T>(call, result, b, e);
    });
    return OkStatus();
  }
  PoolRowsArgs args = KernelArgs(call, result);
  args.bag_begin = begin;
  args.bag_end = end;
  pool(args);
  return OkStatus();
}

std::span<const OpDef> EmbeddingBagOps() { return kOps; }

}  // namespace millrace::models::graph
