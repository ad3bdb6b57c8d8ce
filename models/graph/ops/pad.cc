// Pad in all modes: for each axis, which element each place of the result is.
#include <cstring>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

// Elements added before and after each axis; negative ones are cut off.
struct Margins {
  std::vector<int64_t> before;
  std::vector<int64_t> after;
};

StatusOr<Margins> MarginsOf(const Call& call) {
  const int rank = call.arg(0).shape.rank();
  ASSIGN_OR_RETURN(const auto pads, IntsOf(call.arg(1), "pads"));
  std::vector<int64_t> axes;
  if (call.arg(3).given) {
    ASSIGN_OR_RETURN(axes, IntsOf(call.arg(3), "axes"));
  } else {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  RETURN_IF_ERROR(AxesOf(axes, rank).status());
  if (pads.size() != 2 * axes.size()) {
    return InvalidArgument("there are " + std::to_string(pads.size()) +
                           " pads for " + std::to_string(axes.size()) +
                           " axes");
  }
  const auto zeros = std::vector<int64_t>(static_cast<size_t>(rank));
  Margins margins{zeros, zeros};
  for (size_t i = 0; i < axes.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(axes[i], rank));
    margins.before[static_cast<size_t>(axis)] = pads[i];
    margins.after[static_cast<size_t>(axis)] = pads[i + axes.size()];
  }
  return margins;
}

StatusOr<OutTypes> InferPad(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 4));
  const Arg& x = call.arg(0);
  const std::string_view mode = call.attrs().Text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" &&
      mode != "wrap") {
    return Unimplemented("mode '" + std::string(mode) + "'");
  }
  if (call.arg(2).given) {
    RETURN_IF_ERROR(CheckSameType(x, call.arg(2)));
    if (call.arg(2).num_elements() != 1) return WrongType(call.arg(2));
  }
  ASSIGN_OR_RETURN(const Margins margins, MarginsOf(call));
  std::vector<int64_t> dims;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    int64_t size = x.shape[i];
    if (__builtin_add_overflow(size, margins.before[at], &size) ||
        __builtin_add_overflow(size, margins.after[at], &size)) {
      return InvalidArgument("the pads are too large");
    }
    if (mode != "constant" && x.shape[i] == 0 && size > 0) {
      return InvalidArgument("there is nothing to fill the pads with");
    }
    dims.push_back(size);
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  return OutTypes{{x.dtype, shape}};
}

// The element at `at` (which may be outside of [0, size)), or -1.
int64_t Source(int64_t at, int64_t size, std::string_view mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant") return -1;
  if (mode == "edge") return at < 0 ? 0 : size - 1;
  const auto modulo = [](int64_t a, int64_t n) { return (a % n + n) % n; };
  if (mode == "wrap") return modulo(at, size);
  if (size == 1) return 0;
  const int64_t folded = modulo(at, 2 * (size - 1));
  return folded < size ? folded : 2 * (size - 1) - folded;
}

Status RunPad(const Call& call, std::span<const Result> results,
              const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  ASSIGN_OR_RETURN(const Margins margins, MarginsOf(call));
  const std::string_view mode = call.attrs().Text("mode", "constant");
  const int rank = out.rank();
  std::vector<std::vector<int64_t>> sources(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    for (int64_t at = 0; at < out[i]; ++at) {
      const auto axis = static_cast<size_t>(i);
      sources[axis].push_back(Source(at - margins.before[axis], x[i], mode));
    }
  }
  const Shape strides = x.Strides();
  const int64_t length = rank == 0 ? 1 : out.back();
  const auto [begin, end] =
      team.Share(rank == 0 ? 1 : out.Product(0, rank - 1));
  DispatchBytes(DTypeBytes(results[0].dtype), [&]<typename T>() {
    const T fill = call.arg(2).given ? *call.arg(2).data<T>() : T{0};
    for (int64_t row = begin; row < end; ++row) {
      int64_t from = 0;
      int64_t rest = row;
      bool inside = true;
      for (int axis = rank - 2; axis >= 0; --axis) {
        const int64_t at = sources[static_cast<size_t>(axis)]
                                  [static_cast<size_t>(rest % out[axis])];
        rest /= out[axis];
        inside = inside && at >= 0;
        from += at * strides[axis];
      }
      T* y = results[0].data<T>() + row * length;
      if (!inside) {
        std::fill_n(y, length, fill);
        continue;
      }
      const T* run = call.arg(0).data<T>() + from;
      if (rank == 0) {
        *y = *run;
        continue;
      }
      const int64_t* source = sources.back().data();
      for (int64_t i = 0; i < length; ++i) {
        y[i] = source[i] < 0 ? fill : run[source[i]];
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Pad", InferPad, RunPad, Work::kSplits, {.keeps_rows = rows::Padded}}};

}  // namespace

std::span<const OpDef> PadOps() { return kOps; }

}  // namespace millrace::models::graph
