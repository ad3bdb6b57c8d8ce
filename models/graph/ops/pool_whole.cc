// Pools whose windows follow from the sizes: the global ones, of whole planes,
// AdaptiveAveragePool and AdaptiveMaxPool. Sums are taken in f64.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/window.h"

namespace millrace::models::graph {
namespace {

Types InferGlobal(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  Shape out = call.arg(0).shape;
  for (int i = 2; i < out.rank(); ++i) out[i] = 1;
  if (call.arg(0).num_elements() == 0 && out.num_elements() > 0) {
    return InvalidArgument("planes of shape " + call.arg(0).shape.ToString() +
                           " are empty");
  }
  return Outputs(call, {{call.arg(0).dtype, out}});
}

enum class Kind : uint8_t { kAverage, kMax, kLp };

template <Kind kKind>
Status RunGlobal(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Shape& x = call.arg(0).shape;
  const int64_t inner = x.Product(2, x.rank());
  const auto p = static_cast<double>(call.attrs().Int("p", 2));
  const auto [begin, end] = team.Share(x[0] * x[1]);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = b; i < e; ++i) {
      const T* plane = call.arg(0).data<T>() + i * inner;
      double y = kKind == Kind::kMax ? double{M(plane[0])} : 0;
      for (int64_t j = 0; j < inner; ++j) {
        const M v = plane[j];
        if constexpr (kKind == Kind::kMax) {
          if (v > y || v != v) y = v;
        } else if constexpr (kKind == Kind::kLp) {
          y += std::pow(std::abs(v), static_cast<M>(p));
        } else {
          y += v;
        }
      }
      if constexpr (kKind == Kind::kAverage) y /= static_cast<double>(inner);
      if constexpr (kKind == Kind::kLp) y = std::pow(y, 1 / p);
      results[0].data<T>()[i] = static_cast<T>(static_cast<M>(y));
    }
  });
  return OkStatus();
}

// AdaptiveAveragePool(x) {output_size}: the mean over windows that divide each
// spatial axis as evenly as may be, window o being [floor(o * in / out),
// ceil((o + 1) * in / out)), as torch.nn.functional.adaptive_avg_pool does.
// One number for each spatial axis, -1 for the operand's own size. ONNX has
// none.
Types InferAdaptive(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  Shape out = call.arg(0).shape;
  const std::vector<int64_t>& sizes = call.attrs().Ints("output_size");
  const auto rank = static_cast<int>(sizes.size());
  if (rank < 1 || rank > kSpatial || out.rank() <= rank) {
    return InvalidArgument("output_size has " + std::to_string(rank) +
                           " numbers for a tensor of shape " + out.ToString());
  }
  for (int i = 0; i < rank; ++i) {
    int64_t& size = out[out.rank() - rank + i];
    if (size == 0) {
      return InvalidArgument("planes of shape " + out.ToString() +
                             " are empty");
    }
    const int64_t wanted = sizes[static_cast<size_t>(i)];
    if (wanted < -1 || wanted > int64_t{1} << 24) {
      return InvalidArgument("an output_size of " + std::to_string(wanted) +
                             "; it must be -1 to 2^24");
    }
    if (wanted != -1) size = wanted;
  }
  ASSIGN_OR_RETURN(out, Shape::Checked(out.dims()));
  return Outputs(call, {{call.arg(0).dtype, out}, {DType::kI64, out}});
}

// Calls window(plane, o, each), o counting the windows of one plane, each(body)
// giving body the places of the window's elements in the plane.
template <typename Body>
void ForAdaptive(const Call& call, const Shape& out, const Team& team,
                 Body&& window) {
  const Shape& in = call.arg(0).shape;
  const auto rank = static_cast<int>(call.attrs().Ints("output_size").size());
  const int first = in.rank() - rank;
  // Padded to three axes; window o of axis a is [at(a, o), stop(a, o)).
  std::array<int64_t, kSpatial> sizes = {1, 1, 1};
  std::array<int64_t, kSpatial> counts = {1, 1, 1};
  for (int i = 0; i < rank; ++i) {
    sizes[static_cast<size_t>(kSpatial - rank + i)] = in[first + i];
    counts[static_cast<size_t>(kSpatial - rank + i)] = out[first + i];
  }
  const auto at = [&](size_t a, int64_t o) { return o * sizes[a] / counts[a]; };
  const auto stop = [&](size_t a, int64_t o) {
    return ((o + 1) * sizes[a] + counts[a] - 1) / counts[a];
  };
  const auto [begin, end] = team.Share(in.Product(0, first));
  for (int64_t plane = begin; plane < end; ++plane) {
    int64_t o = 0;
    for (int64_t oz = 0; oz < counts[0]; ++oz) {
      for (int64_t oy = 0; oy < counts[1]; ++oy) {
        for (int64_t ox = 0; ox < counts[2]; ++ox) {
          window(plane, o++, [&](auto&& body) {
            for (int64_t z = at(0, oz); z < stop(0, oz); ++z) {
              for (int64_t r = at(1, oy); r < stop(1, oy); ++r) {
                for (int64_t c = at(2, ox); c < stop(2, ox); ++c) {
                  body((z * sizes[1] + r) * sizes[2] + c);
                }
              }
            }
          });
        }
      }
    }
  }
}

struct Planes {
  Planes(const Call& call, const Shape& out)
      : in_size(Size(call, call.arg(0).shape)), out_size(Size(call, out)) {}
  static int64_t Size(const Call& call, const Shape& shape) {
    const auto rank = static_cast<int>(call.attrs().Ints("output_size").size());
    return shape.Product(shape.rank() - rank, shape.rank());
  }
  int64_t in_size, out_size;
};

Status RunAdaptiveAverage(const Call& call, std::span<const Result> results,
                          const Team& team) {
  const Shape& out = results[0].shape;
  const Planes planes(call, out);
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    ForAdaptive(call, out, team, [&](int64_t plane, int64_t o, auto&& each) {
      const T* x = call.arg(0).data<T>() + plane * planes.in_size;
      double sum = 0;
      int64_t count = 0;
      each([&](int64_t i) {
        sum += M(x[i]);
        ++count;
      });
      results[0].data<T>()[plane * planes.out_size + o] =
          static_cast<T>(static_cast<M>(sum / static_cast<double>(count)));
    });
  });
  return OkStatus();
}

// AdaptiveMaxPool(x) {output_size}: over the same windows. Its second output is
// the place of each maximum in its plane. NaN wins.
Status RunAdaptiveMax(const Call& call, std::span<const Result> results,
                      const Team& team) {
  const Shape& out = results[0].shape;
  const Planes planes(call, out);
  int64_t* places = results.size() > 1 ? results[1].data<int64_t>() : nullptr;
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    ForAdaptive(call, out, team, [&](int64_t plane, int64_t o, auto&& each) {
      const T* x = call.arg(0).data<T>() + plane * planes.in_size;
      int64_t place = -1;
      M best = 0;
      each([&](int64_t i) {
        const M v = x[i];
        if (place < 0 || v > best || (v != v && best == best)) {
          best = v;
          place = i;
        }
      });
      const int64_t to = plane * planes.out_size + o;
      results[0].data<T>()[to] = static_cast<T>(best);
      if (places != nullptr) places[to] = place;
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"GlobalAveragePool",
     InferGlobal,
     RunGlobal<Kind::kAverage>,
     Work::kSplits,
     {.layout = LayoutRule::kPool}},
    {"GlobalMaxPool",
     InferGlobal,
     RunGlobal<Kind::kMax>,
     Work::kSplits,
     {.layout = LayoutRule::kPool}},
    {"GlobalLpPool", InferGlobal, RunGlobal<Kind::kLp>, Work::kSplits},
    {"AdaptiveAveragePool", InferAdaptive, RunAdaptiveAverage, Work::kSplits},
    {"AdaptiveMaxPool", InferAdaptive, RunAdaptiveMax, Work::kSplits},
};

}  // namespace

std::span<const OpDef> WholePoolOps() { return kOps; }

}  // namespace millrace::models::graph
