// Activations that depend on more than one element: PRelu, which has slopes of
// its own, and Glu, whose one half gates the other. 16-bit floats are computed
// in f32 and rounded once.
#include <cmath>

#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Types InferPRelu(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(SameType(call, 1, "slope"));
  const Shape& x = call.arg(0).shape;
  if (call.arg(0).dtype == DType::kBool) {
    return InvalidArgument("the operand is BOOL; numbers are needed");
  }
  ASSIGN_OR_RETURN(const Shape shape, Broadcast(x, call.arg(1).shape));
  if (!(shape == x)) {
    return InvalidArgument("the slope of shape " +
                           call.arg(1).shape.ToString() +
                           " cannot be broadcast to " + x.ToString());
  }
  return Outputs(call, {{call.arg(0).dtype, shape}});
}

Status RunPRelu(const Call& call, std::span<const Result> results,
                const Team& team) {
  const BroadcastWalk walk(results[0].shape,
                           {call.arg(0).shape, call.arg(1).shape});
  const auto [begin, end] = team.Share(walk.num_rows());
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const T* x = call.arg(0).data<T>();
    const T* slope = call.arg(1).data<T>();
    T* y = results[0].data<T>();
    walk.ForRows(b, e, [&](const BroadcastRow& row) {
      for (int64_t i = 0; i < row.length; ++i) {
        const M v = x[row.at[0] + i * row.step[0]];
        const M s = slope[row.at[1] + i * row.step[1]];
        if constexpr (std::is_integral_v<T>) {
          // In 64 bits, so that a product wraps and never overflows.
          const auto wide = static_cast<uint64_t>(v) * static_cast<uint64_t>(s);
          y[row.out + i] = v < M(0) ? static_cast<T>(wide) : v;
        } else {
          y[row.out + i] = static_cast<T>(v < M(0) ? v * s : v);
        }
      }
    });
  });
  return OkStatus();
}

template <typename M>
M Sigmoid(M x) {
  const M small = std::exp(-std::abs(x));
  return (x >= 0 ? M(1) : small) / (M(1) + small);
}

// Glu(x) {axis = -1}: x cut in two halves a and b along the axis, a *
// sigmoid(b). ONNX has none; this is torch.nn.functional.glu.
Types InferGlu(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  Shape shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), shape.rank()));
  if (shape[axis] % 2 != 0) {
    return InvalidArgument("axis " + std::to_string(axis) + " of " +
                           shape.ToString() + " cannot be cut in two halves");
  }
  shape[axis] /= 2;
  return Outputs(call, {{call.arg(0).dtype, shape}});
}

Status RunGlu(const Call& call, std::span<const Result> results,
              const Team& team) {
  const Shape& shape = results[0].shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), shape.rank()));
  const int64_t length = shape.Product(axis, shape.rank());
  const auto [begin, end] = team.Share(shape.Product(0, axis));
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t row = b; row < e; ++row) {
      const T* x = call.arg(0).data<T>() + row * 2 * length;
      T* y = results[0].data<T>() + row * length;
      for (int64_t i = 0; i < length; ++i) {
        y[i] = static_cast<T>(static_cast<M>(x[i]) *
                              Sigmoid(static_cast<M>(x[length + i])));
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"PRelu", InferPRelu, RunPRelu, Work::kSplits, kBroadcastFact},
    {"Glu", InferGlu, RunGlu, Work::kSplits},
};

}  // namespace

std::span<const OpDef> GatedOps() { return kOps; }

}  // namespace millrace::models::graph
