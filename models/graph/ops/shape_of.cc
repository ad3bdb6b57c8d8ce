// Shape and Size, and tensors made of a few numbers: Range, EyeLike, OneHot,
// Trilu.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "models/graph/onnx_dtype.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

std::span<const int64_t> SizesOf(const Call& call) {
  const Shape& shape = call.arg(0).shape;
  const int64_t rank = shape.rank();
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = place(call.attrs().Int("start", 0));
  const int64_t end = std::max(begin, place(call.attrs().Int("end", rank)));
  return shape.dims().subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(end - begin));
}

StatusOr<OutTypes> InferShape(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  return OutTypes{{DType::kI64, {static_cast<int64_t>(SizesOf(call).size())}}};
}
Status RunShape(const Call& call, std::span<const Result> results,
                const Team&) {
  const auto sizes = SizesOf(call);
  std::copy(sizes.begin(), sizes.end(), results[0].data<int64_t>());
  return OkStatus();
}

StatusOr<OutTypes> InferSize(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  return OutTypes{{DType::kI64, {}}};
}
Status RunSize(const Call& call, std::span<const Result> results, const Team&) {
  *results[0].data<int64_t>() = call.arg(0).num_elements();
  return OkStatus();
}

// Exact, since the distance of two integers of 64 bits has 65. A step of 0
// never ends.
double CountOfIntegers(__int128 start, __int128 end, __int128 step) {
  if (step == 0) return std::numeric_limits<double>::infinity();
  const __int128 way = step > 0 ? end - start : start - end;
  const __int128 stride = step > 0 ? step : -step;
  return way <= 0 ? 0 : static_cast<double>((way + stride - 1) / stride);
}

StatusOr<OutTypes> InferRange(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 3));
  for (const Arg& arg : call.args) {
    RETURN_IF_ERROR(CheckSameType(call.arg(0), arg));
    if (arg.num_elements() != 1 || arg.dtype == DType::kBool) {
      return WrongType(arg);
    }
    if (arg.bytes == nullptr) return NeedsBytes("a bound of the range");
  }
  const double count = Dispatch(call.arg(0).dtype, [&]<typename T>() -> double {
    const T start = *call.arg(0).data<T>();
    const T end = *call.arg(1).data<T>();
    const T step = *call.arg(2).data<T>();
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return CountOfIntegers(start, end, step);
    } else {
      return std::ceil((static_cast<double>(end) - static_cast<double>(start)) /
                       static_cast<double>(step));
    }
  });
  if (!(count < 0x1p40)) return InvalidArgument("the range has no end");
  return OutTypes{
      {call.arg(0).dtype, {static_cast<int64_t>(std::max(count, 0.0))}}};
}
Status RunRange(const Call& call, std::span<const Result> results,
                const Team&) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      using Math =
          std::conditional_t<std::is_integral_v<T>, uint64_t, MathType<T>>;
      const auto start = static_cast<Math>(*call.arg(0).data<T>());
      const auto step = static_cast<Math>(*call.arg(2).data<T>());
      T* y = results[0].data<T>();
      for (int64_t i = 0; i < results[0].num_elements(); ++i) {
        y[i] = static_cast<T>(start + static_cast<Math>(i) * step);
      }
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferEyeLike(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  if (x.shape.rank() != 2) return WrongType(x);
  const int64_t to = call.attrs().Int("dtype", OnnxNumber(x.dtype));
  const auto dtype = DTypeFromOnnx(to);
  if (!dtype.has_value()) {
    return Unimplemented("the type " + OnnxTypeName(to) + " is not supported");
  }
  return OutTypes{{*dtype, x.shape}};
}
Status RunEyeLike(const Call& call, std::span<const Result> results,
                  const Team&) {
  const Result& out = results[0];
  const int64_t k = call.attrs().Int("k", 0);
  std::memset(out.bytes, 0,
              static_cast<size_t>(out.num_elements() * DTypeBytes(out.dtype)));
  Dispatch(out.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      if (k < -i || k >= out.shape[1] - i) continue;
      out.data<T>()[i * out.shape[1] + i + k] = static_cast<T>(1);
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferTrilu(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 2));
  if (call.arg(0).shape.rank() < 2) return WrongType(call.arg(0));
  const Arg& k = call.arg(1);
  if (k.given && (k.dtype != DType::kI64 || k.num_elements() != 1)) {
    return WrongType(k);
  }
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}
Status RunTrilu(const Call& call, std::span<const Result> results,
                const Team& team) {
  ASSIGN_OR_RETURN(const int64_t k, IntOf(call.arg(1), "k", 0));
  const bool upper = call.attrs().Int("upper", 1) != 0;
  const Shape& shape = results[0].shape;
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t columns = shape.back();
  const int64_t size = DTypeBytes(results[0].dtype);
  const auto [begin, end] = team.Share(shape.Product(0, shape.rank() - 1));
  for (int64_t row = begin; row < end; ++row) {
    // Columns before `cut` are below the diagonal k.
    const int64_t i = row % rows;
    const int64_t shifted = k > columns ? columns : k < -rows ? -rows : k;
    const int64_t cut =
        std::clamp<int64_t>(i + shifted + (upper ? 0 : 1), 0, columns);
    std::byte* y = results[0].bytes + row * columns * size;
    const std::byte* x = call.arg(0).bytes + row * columns * size;
    const auto bytes = static_cast<size_t>(columns * size);
    if (bytes > 0) std::memcpy(y, x, bytes);
    if (upper) {
      std::fill(y, y + cut * size, std::byte{0});
    } else {
      std::fill(y + cut * size, y + columns * size, std::byte{0});
    }
  }
  return OkStatus();
}

StatusOr<OutTypes> InferOneHot(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 3, 3));
  Shape shape = call.arg(0).shape;
  const Arg& depth = call.arg(1);
  if (depth.num_elements() != 1 || depth.dtype == DType::kBool) {
    return WrongType(depth);
  }
  if (call.arg(2).num_elements() != 2) return WrongType(call.arg(2));
  if (depth.bytes == nullptr) return NeedsBytes("the depth");
  const double classes = Dispatch(depth.dtype, [&]<typename T>() -> double {
    return static_cast<double>(*depth.data<T>());
  });
  if (!(classes >= 0 && classes < 0x1p40) || shape.rank() == Shape::kMaxRank) {
    return InvalidArgument("the depth or rank is too large");
  }
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), shape.rank() + 1));
  shape.Insert(axis, static_cast<int64_t>(classes));
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{call.arg(2).dtype, shape}};
}
// An index outside of [-depth, depth) is nowhere hot.
Status RunOneHot(const Call& call, std::span<const Result> results,
                 const Team&) {
  const Shape& out = results[0].shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), out.rank()));
  const int64_t depth = out[axis];
  const int64_t inner = out.Product(axis + 1, out.rank());
  Dispatch(call.arg(0).dtype, [&]<typename I>() {
    DispatchBytes(DTypeBytes(results[0].dtype), [&]<typename T>() {
      const T* values = call.arg(2).data<T>();
      T* y = results[0].data<T>();
      std::fill_n(y, out.num_elements(), values[0]);
      for (int64_t i = 0; i < call.arg(0).num_elements(); ++i) {
        const auto given = static_cast<double>(call.arg(0).data<I>()[i]);
        const double at =
            given < 0 ? given + static_cast<double>(depth) : given;
        if (!(at >= 0 && at < static_cast<double>(depth))) continue;
        y[(i / inner * depth + static_cast<int64_t>(at)) * inner + i % inner] =
            values[1];
      }
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"EyeLike", InferEyeLike, RunEyeLike},
    {"OneHot", InferOneHot, RunOneHot},
    {"Range", InferRange, RunRange},
    {"Shape", InferShape, RunShape, Work::kWhole, {.strings = Strings::kTakes}},
    {"Size", InferSize, RunSize, Work::kWhole, {.strings = Strings::kTakes}},
    {"Trilu", InferTrilu, RunTrilu, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ShapeOps() { return kOps; }

}  // namespace millrace::models::graph
