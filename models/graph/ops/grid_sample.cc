// GridSample and AffineGrid (spatial transformers, Jaderberg et al. 2015).
// Coordinates and sums are in f32, of doubles in f64.
#include <algorithm>
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

enum class Mode : uint8_t { kNearest, kLinear, kCubic };
enum class Padding : uint8_t { kZeros, kBorder, kReflection };

struct Sampling {
  Mode mode = Mode::kLinear;
  Padding padding = Padding::kZeros;
  bool align = false;
};

StatusOr<Sampling> SamplingOf(const Attrs& attrs) {
  Sampling sampling;
  const std::string_view mode = attrs.Text("mode", "linear");
  const std::string_view padding = attrs.Text("padding_mode", "zeros");
  if (mode == "nearest") {
    sampling.mode = Mode::kNearest;
  } else if (mode == "cubic" || mode == "bicubic") {
    sampling.mode = Mode::kCubic;
  } else if (mode != "linear" && mode != "bilinear") {
    return Unimplemented("mode '" + std::string(mode) + "'");
  }
  if (padding == "border") {
    sampling.padding = Padding::kBorder;
  } else if (padding == "reflection") {
    sampling.padding = Padding::kReflection;
  } else if (padding != "zeros") {
    return Unimplemented("padding_mode '" + std::string(padding) + "'");
  }
  sampling.align = attrs.Int("align_corners", 0) != 0;
  return sampling;
}

// x [n, c, sizes...], grid [n, out..., rank], innermost coordinate first.
Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(FloatOperand(call, 1, "the grid"));
  RETURN_IF_ERROR(SamplingOf(call.attrs()).status());
  const Shape& x = call.arg(0).shape;
  const Shape& grid = call.arg(1).shape;
  const int rank = x.rank() - 2;
  if (rank < 1 || grid.rank() != x.rank() || grid[0] != x[0] ||
      grid.back() != rank) {
    return InvalidArgument("a grid of shape " + grid.ToString() +
                           " does not fit x of shape " + x.ToString());
  }
  Shape out = {x[0], x[1]};
  for (int i = 1; i <= rank; ++i) out.Append(grid[i]);
  if (x.num_elements() == 0 && out.num_elements() > 0) {
    return InvalidArgument("x of shape " + x.ToString() + " is empty");
  }
  ASSIGN_OR_RETURN(out, Shape::Checked(out.dims()));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

template <typename M>
M Reflect(M x, M low, M high) {
  const M range = high - low;
  if (range <= 0) return low;
  if (x >= low && x <= high) return x;
  const M away = std::fmod(std::abs(x - low), 2 * range);
  return low + (away <= range ? away : 2 * range - away);
}

// Elements of one axis that make a value, at most four, and their weights; an
// index of -1 is a zero of the padding.
template <typename M>
struct Taps {
  int count = 0;
  int64_t index[4];
  M weight[4];
};

template <typename M>
Taps<M> TapsOf(const Sampling& sampling, M normal, int64_t size) {
  const auto n = static_cast<M>(size);
  M x =
      sampling.align ? (normal + 1) / 2 * (n - 1) : ((normal + 1) * n - 1) / 2;
  const M low = sampling.align ? M(0) : M(-0.5);
  const M high = sampling.align ? n - 1 : n - M(0.5);
  // NaN and what lies far away must not become an integer.
  if (!(std::abs(x) < M(0x1p30))) x = x > 0 ? M(0x1p30) : M(-0x1p30);
  if (sampling.mode == Mode::kNearest) x = std::nearbyint(x);
  if (x < low || x > high) {
    if (sampling.padding == Padding::kBorder) x = std::clamp(x, M(0), n - 1);
    if (sampling.padding == Padding::kReflection) x = Reflect(x, low, high);
  }
  const M base = std::floor(x);
  const M r = x - base;
  Taps<M> taps;
  int64_t first = static_cast<int64_t>(base);
  if (sampling.mode == Mode::kNearest) {
    first = static_cast<int64_t>(std::nearbyint(x));
    taps = {1, {}, {M(1)}};
  } else if (sampling.mode == Mode::kLinear) {
    taps = {2, {}, {1 - r, r}};
  } else {
    first -= 1;
    const M a = M(-0.75);
    const auto near = [a](M d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [a](M d) {
      return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    };
    taps = {4, {}, {far(r + 1), near(r), near(1 - r), far(2 - r)}};
  }
  for (int i = 0; i < taps.count; ++i) {
    int64_t at = first + i;
    if (sampling.padding == Padding::kReflection) {
      at = static_cast<int64_t>(
          std::nearbyint(Reflect(static_cast<M>(at), low, high)));
      at = std::clamp<int64_t>(at, 0, size - 1);
    } else if (sampling.padding == Padding::kBorder) {
      at = std::clamp<int64_t>(at, 0, size - 1);
    } else if (at < 0 || at >= size) {
      at = -1;
    }
    taps.index[i] = at;
  }
  return taps;
}

// The weighted sum over the taps of all axes from `axis` on.
template <typename M, typename T>
M Sum(const T* x, const std::vector<Taps<M>>& taps,
      const std::vector<int64_t>& strides, size_t axis) {
  if (axis == taps.size()) return static_cast<M>(*x);
  M sum = 0;
  for (int i = 0; i < taps[axis].count; ++i) {
    if (taps[axis].index[i] < 0) continue;
    sum += taps[axis].weight[i] * Sum(x + taps[axis].index[i] * strides[axis],
                                      taps, strides, axis + 1);
  }
  return sum;
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const Sampling sampling, SamplingOf(call.attrs()));
  const Shape& x = call.arg(0).shape;
  const Shape& out = results[0].shape;
  const int rank = x.rank() - 2;
  const int64_t points = out.Product(2, out.rank());
  const int64_t plane = x.Product(2, x.rank());
  std::vector<int64_t> strides;
  for (int i = 0; i < rank; ++i) {
    strides.push_back(x.Product(3 + i, x.rank()));
  }
  const auto [begin, end] = team.Share(x[0] * points);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    std::vector<Taps<M>> taps(static_cast<size_t>(rank));
    for (int64_t i = b; i < e; ++i) {
      for (int a = 0; a < rank; ++a) {
        const int64_t at = i * rank + rank - 1 - a;
        const M normal = DispatchFloat(call.arg(1).dtype, [&]<typename G>() {
          return static_cast<M>(call.arg(1).data<G>()[at]);
        });
        taps[static_cast<size_t>(a)] = TapsOf<M>(sampling, normal, x[2 + a]);
      }
      const int64_t n = i / points;
      for (int64_t c = 0; c < x[1]; ++c) {
        results[0].data<T>()[(n * x[1] + c) * points + i % points] =
            static_cast<T>(
                Sum<M>(call.arg(0).data<T>() + (n * x[1] + c) * plane, taps,
                       strides, 0));
      }
    }
  });
  return OkStatus();
}

// theta [n, 2, 3] or [n, 3, 4], size [n, c, h, w] or [n, c, d, h, w].
Types InferAffine(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(FloatOperand(call, 0, "theta"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> size,
                   IntsOf(call.arg(1), "size"));
  const Shape& theta = call.arg(0).shape;
  const auto rank = static_cast<int64_t>(size.size()) - 2;
  if ((rank != 2 && rank != 3) || !(theta == Shape{size[0], rank, rank + 1})) {
    return InvalidArgument("theta of shape " + theta.ToString() +
                           " does not fit " + std::to_string(size.size()) +
                           " sizes");
  }
  std::vector<int64_t> dims = {size[0]};
  dims.insert(dims.end(), size.begin() + 2, size.end());
  dims.push_back(rank);
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

Status RunAffine(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Shape& out = results[0].shape;
  const auto rank = static_cast<int>(out.back());
  const bool align = call.attrs().Int("align_corners", 0) != 0;
  const int64_t points = out.Product(1, 1 + rank);
  const auto [begin, end] = team.Share(out[0] * points);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = b; i < e; ++i) {
      const T* theta = call.arg(0).data<T>() + i / points * rank * (rank + 1);
      M at[4] = {0, 0, 0, 1};  // innermost coordinate first, then 1
      at[rank] = 1;
      int64_t rest = i % points;
      for (int a = rank - 1; a >= 0; --a) {
        const int64_t size = out[1 + a];
        const auto p = static_cast<M>(rest % size);
        const auto n = static_cast<M>(size);
        rest /= size;
        at[rank - 1 - a] = align ? (size == 1 ? M(0) : 2 * p / (n - 1) - 1)
                                 : (2 * p + 1) / n - 1;
      }
      for (int r = 0; r < rank; ++r) {
        M sum = 0;
        for (int c = 0; c <= rank; ++c) {
          sum += M(theta[r * (rank + 1) + c]) * at[c];
        }
        results[0].data<T>()[i * rank + r] = static_cast<T>(sum);
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"GridSample", Infer, Run, Work::kSplits},
    {"AffineGrid", InferAffine, RunAffine, Work::kSplits},
};

}  // namespace

std::span<const OpDef> GridSampleOps() { return kOps; }

}  // namespace millrace::models::graph
