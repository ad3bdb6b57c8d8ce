// Pools over windows: MaxPool (with indices), AveragePool, LpPool. Sums are
// taken in f32, of doubles in f64.
#include <cmath>
#include <limits>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/window.h"

namespace millrace::models::graph {
namespace {

StatusOr<Window> WindowOf(const Call& call) {
  const Shape& x = call.arg(0).shape;
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 3, "the operand"));
  return MakeWindow(call.attrs(), x.dims().subspan(2),
                    call.attrs().Ints("kernel_shape"));
}

Types InferFloat(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  ASSIGN_OR_RETURN(const Window window, WindowOf(call));
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const Shape out, window.OutShape(x[0], x[1]));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

// The second output is the place of each maximum in the whole operand.
Types InferMax(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  if (call.arg(0).dtype == DType::kBool) {
    return InvalidArgument("the operand is BOOL; numbers are needed");
  }
  ASSIGN_OR_RETURN(const Window window, WindowOf(call));
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const Shape out, window.OutShape(x[0], x[1]));
  return Outputs(call, {{call.arg(0).dtype, out}, {DType::kI64, out}});
}

// The part of one window that lies inside of the plane: elements
// (z0 + i * dz, ...) for i in [first, last) of each axis.
struct Box {
  std::array<int64_t, kSpatial> begin;
  std::array<std::pair<int64_t, int64_t>, kSpatial> inside;

  int64_t count() const {
    int64_t product = 1;
    for (const auto& [first, last] : inside) product *= last - first;
    return product;
  }
};

// Calls body(o, box) for each window of a plane, and box.Each(element).
template <typename Body>
void ForWindows(const Window& window, Body&& body) {
  const auto& axes = window.axes;
  int64_t o = 0;
  Box box;
  const auto enter = [&](size_t axis, int64_t at) {
    box.begin[axis] = axes[axis].Begin(at);
    box.inside[axis] = axes[axis].Inside(at);
  };
  for (int64_t z = 0; z < axes[0].out; ++z) {
    enter(0, z);
    for (int64_t y = 0; y < axes[1].out; ++y) {
      enter(1, y);
      for (int64_t x = 0; x < axes[2].out; ++x) {
        enter(2, x);
        body(o++, box);
      }
    }
  }
}

template <typename Body>
void ForElements(const Window& window, const Box& box, Body&& body) {
  const auto& [depth, height, width] = window.axes;
  for (int64_t i = box.inside[0].first; i < box.inside[0].second; ++i) {
    const int64_t z = box.begin[0] + i * depth.dilation;
    for (int64_t j = box.inside[1].first; j < box.inside[1].second; ++j) {
      const int64_t y = box.begin[1] + j * height.dilation;
      const int64_t row = (z * height.in + y) * width.in + box.begin[2];
      for (int64_t k = box.inside[2].first; k < box.inside[2].second; ++k) {
        body(row + k * width.dilation);
      }
    }
  }
}

// storage_order 1 counts the innermost two axes the other way round.
int64_t PlaceOf(const Window& window, int64_t element, bool columns) {
  if (!columns) return element;
  const auto& [depth, height, width] = window.axes;
  const int64_t x = element % width.in;
  const int64_t y = element / width.in % height.in;
  const int64_t z = element / width.in / height.in;
  return (x * height.in + y) * depth.in + z;
}

// NaN wins, as in PyTorch. A window that lies in the padding alone has the
// lowest value there is, and place 0 of its plane.
Status RunMax(const Call& call, std::span<const Result> results,
              const Team& team) {
  ASSIGN_OR_RETURN(const Window window, WindowOf(call));
  const Shape& x = call.arg(0).shape;
  const bool columns = call.attrs().Int("storage_order", 0) == 1;
  int64_t* places = results.size() > 1 ? results[1].data<int64_t>() : nullptr;
  const auto [begin, end] = team.Share(x[0] * x[1]);
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    M lowest = std::numeric_limits<M>::lowest();
    if constexpr (kIsFloat<T>) lowest = -std::numeric_limits<M>::infinity();
    for (int64_t i = b; i < e; ++i) {
      const T* plane = call.arg(0).data<T>() + i * window.num_in();
      ForWindows(window, [&](int64_t o, const Box& box) {
        M best = lowest;
        int64_t place = -1;
        ForElements(window, box, [&](int64_t at) {
          const M v = plane[at];
          if (place < 0 || v > best || (v != v && best == best)) {
            best = v;
            place = at;
          }
        });
        const int64_t out = i * window.num_out() + o;
        results[0].data<T>()[out] = static_cast<T>(best);
        if (places != nullptr) {
          places[out] = i * window.num_in() +
                        PlaceOf(window, std::max<int64_t>(place, 0), columns);
        }
      });
    }
  });
  return OkStatus();
}

// What an average divides by: the elements inside, or, when padding counts,
// all of the window that does not reach beyond the last padding.
int64_t Divisor(const Window& window, const Box& box, bool with_padding) {
  if (!with_padding) return box.count();
  int64_t product = 1;
  for (size_t i = 0; i < kSpatial; ++i) {
    const WindowAxis& axis = window.axes[i];
    const int64_t room = axis.in + axis.pad_end - box.begin[i];
    product *= std::min(axis.kernel, (room - 1) / axis.dilation + 1);
  }
  return product;
}

// PyTorch's divisor_override takes the place of the count where it is not 0.
Status RunAverage(const Call& call, std::span<const Result> results,
                  const Team& team) {
  ASSIGN_OR_RETURN(const Window window, WindowOf(call));
  const Shape& x = call.arg(0).shape;
  const bool padding = call.attrs().Int("count_include_pad", 0) != 0;
  const int64_t fixed = call.attrs().Int("divisor_override", 0);
  const auto [begin, end] = team.Share(x[0] * x[1]);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = b; i < e; ++i) {
      const T* plane = call.arg(0).data<T>() + i * window.num_in();
      T* y = results[0].data<T>() + i * window.num_out();
      ForWindows(window, [&](int64_t o, const Box& box) {
        M sum = 0;
        ForElements(window, box, [&](int64_t at) { sum += M(plane[at]); });
        const int64_t count =
            fixed != 0 ? fixed : Divisor(window, box, padding);
        y[o] = static_cast<T>(sum / static_cast<M>(count));
      });
    }
  });
  return OkStatus();
}

Status RunLp(const Call& call, std::span<const Result> results,
             const Team& team) {
  ASSIGN_OR_RETURN(const Window window, WindowOf(call));
  const Shape& x = call.arg(0).shape;
  const auto p = static_cast<double>(call.attrs().Int("p", 2));
  const auto [begin, end] = team.Share(x[0] * x[1]);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = b; i < e; ++i) {
      const T* plane = call.arg(0).data<T>() + i * window.num_in();
      T* y = results[0].data<T>() + i * window.num_out();
      ForWindows(window, [&](int64_t o, const Box& box) {
        M sum = 0;
        ForElements(window, box, [&](int64_t at) {
          sum += std::pow(std::abs(M(plane[at])), static_cast<M>(p));
        });
        y[o] = static_cast<T>(std::pow(sum, static_cast<M>(1 / p)));
      });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"MaxPool", InferMax, RunMax, Work::kSplits, {.layout = LayoutRule::kPool}},
    {"AveragePool",
     InferFloat,
     RunAverage,
     Work::kSplits,
     {.layout = LayoutRule::kPool}},
    {"LpPool", InferFloat, RunLp, Work::kSplits},
};

}  // namespace

std::span<const OpDef> PoolOps() { return kOps; }

}  // namespace millrace::models::graph
