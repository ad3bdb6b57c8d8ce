#include "models/graph/pt2/emitter.h"

#include <utility>

#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"
#include "models/graph/ops/dispatch.h"

namespace millrace::models::graph::pt2 {
namespace {

// Known integers, unless the result would wrap around.
bool Fold(const Num& a, const Num& b,
          bool (*compute)(int64_t, int64_t, int64_t*), Num* out) {
  if (!a.known() || !b.known() || a.dtype == DType::kF64 ||
      b.dtype == DType::kF64) {
    return false;
  }
  int64_t value = 0;
  if (compute(a.integer, b.integer, &value)) return false;
  *out = Num::Of(value);
  return true;
}

}  // namespace

void Emitter::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Status Emitter::TakeStatus() { return std::exchange(status_, OkStatus()); }

ValueId Emitter::Op(std::string_view op, std::vector<ValueId> inputs,
                    Attrs attrs) {
  return Ops(op, std::move(inputs), std::move(attrs), 1)[0];
}

std::vector<ValueId> Emitter::Ops(std::string_view op,
                                  std::vector<ValueId> inputs, Attrs attrs,
                                  size_t num_outputs) {
  std::vector<ValueId> outputs(num_outputs, kNoValue);
  const OpDef* def = FindOp(op);
  if (def == nullptr) {
    Fail(Unimplemented("the runtime has no operator " + std::string(op)));
  }
  if (static_cast<int64_t>(graph_->nodes.size()) >= max_nodes_) {
    Fail(ResourceExhausted("the graph has more than " +
                           std::to_string(max_nodes_) + " nodes"));
  }
  if (!ok()) return outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs[i] = graph_->AddValue(
        num_outputs == 1 ? name_ : name_ + "." + std::to_string(i));
    made_by_[outputs[i]] = graph_->nodes.size();
  }
  graph_->nodes.push_back({.op = def,
                           .name = name_,
                           .inputs = std::move(inputs),
                           .outputs = outputs,
                           .attrs = std::move(attrs),
                           .bodies = {}});
  return outputs;
}

const Node* Emitter::MakerOf(ValueId value) const {
  const auto found = made_by_.find(value);
  return found == made_by_.end() ? nullptr : &graph_->nodes[found->second];
}

ValueId Emitter::Constant(Tensor tensor) {
  return graph_->AddConstant(name_, std::move(tensor));
}

ValueId Emitter::Number(double value, DType dtype) {
  Tensor tensor = Tensor::Make(dtype, {});
  Dispatch(dtype, [&]<typename T>() {
    if constexpr (kIsHalf<T>) {
      *tensor.data<T>() = T(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      *tensor.data<T>() = value != 0;
    } else if constexpr (std::is_integral_v<T>) {
      // Only values in range become integers: others would be no C++.
      const bool fits = value > -9.2e18 && value < 9.2e18;
      *tensor.data<T>() =
          fits ? static_cast<T>(static_cast<int64_t>(value)) : T{0};
    } else {
      *tensor.data<T>() = static_cast<T>(value);
    }
  });
  return Constant(std::move(tensor));
}

ValueId Emitter::Integer(int64_t value, DType dtype) {
  if (dtype != DType::kI64) return Number(static_cast<double>(value), dtype);
  return Constant(Tensor::Scalar(value));
}

ValueId Emitter::Ints(const std::vector<int64_t>& values) {
  const auto [row, is_new] = lists_.try_emplace(values, kNoValue);
  if (is_new) row->second = Constant(Tensor::Int64s(values));
  return row->second;
}

ValueId Emitter::Cast(ValueId x, DType from, DType to) {
  if (from == to) return x;
  return Op("Cast", {x}, {{"to", OnnxNumber(to)}});
}

ValueId Emitter::Reshape(ValueId x, const std::vector<Num>& sizes) {
  // Sizes of 0 are meant as they are.
  return Op("Reshape", {x, List(sizes)}, {{"allowzero", int64_t{1}}});
}

ValueId Emitter::ReshapeLike(ValueId x, ValueId like) {
  return Op("Reshape", {x, Shape(like)}, {{"allowzero", int64_t{1}}});
}

ValueId Emitter::Expand(ValueId x, ValueId sizes) {
  return Op("Expand", {x, sizes});
}

ValueId Emitter::Transpose(ValueId x, const std::vector<int64_t>& order) {
  return Op("Transpose", {x}, {{"perm", order}});
}

ValueId Emitter::Unsqueeze(ValueId x, const std::vector<int64_t>& axes) {
  return axes.empty() ? x : Op("Unsqueeze", {x, Ints(axes)});
}

ValueId Emitter::Squeeze(ValueId x, const std::vector<int64_t>& axes) {
  return axes.empty() ? x : Op("Squeeze", {x, Ints(axes)});
}

ValueId Emitter::Slice(ValueId x, int64_t axis, Num start, Num end, Num step) {
  return Op("Slice",
            {x, List({start}), List({end}), Ints({axis}), List({step})});
}

ValueId Emitter::Concat(std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return Op("Concat", std::move(parts), {{"axis", axis}});
}

ValueId Emitter::Shape(ValueId x) { return Op("Shape", {x}); }

Num Emitter::SizeOf(ValueId x, int64_t axis) {
  return {.id = Op("Gather", {Shape(x), Integer(axis, DType::kI64)},
                   {{"axis", int64_t{0}}})};
}

ValueId Emitter::Value(const Num& number, DType dtype) {
  if (!number.known()) return Cast(number.id, number.dtype, dtype);
  if (number.dtype == DType::kF64) return Number(number.real, dtype);
  return Integer(number.integer, dtype);
}

ValueId Emitter::List(const std::vector<Num>& numbers) {
  std::vector<ValueId> parts;
  std::vector<int64_t> known;
  const auto flush = [&] {
    if (!known.empty()) parts.push_back(Ints(known));
    known.clear();
  };
  for (const Num& number : numbers) {
    if (number.known()) {
      known.push_back(number.integer);
      continue;
    }
    flush();
    parts.push_back(Unsqueeze(Cast(number.id, number.dtype, DType::kI64), {0}));
  }
  if (parts.empty()) return Ints(known);
  flush();
  return Concat(std::move(parts), 0);
}

Num Emitter::Add(const Num& a, const Num& b) {
  Num out;
  if (Fold(
          a, b,
          [](int64_t x, int64_t y, int64_t* z) {
            return __builtin_add_overflow(x, y, z);
          },
          &out)) {
    return out;
  }
  return {.id = Op("Add", {Value(a, DType::kI64), Value(b, DType::kI64)})};
}

Num Emitter::Sub(const Num& a, const Num& b) {
  Num out;
  if (Fold(
          a, b,
          [](int64_t x, int64_t y, int64_t* z) {
            return __builtin_sub_overflow(x, y, z);
          },
          &out)) {
    return out;
  }
  return {.id = Op("Sub", {Value(a, DType::kI64), Value(b, DType::kI64)})};
}

Num Emitter::Mul(const Num& a, const Num& b) {
  Num out;
  if (Fold(
          a, b,
          [](int64_t x, int64_t y, int64_t* z) {
            return __builtin_mul_overflow(x, y, z);
          },
          &out)) {
    return out;
  }
  return {.id = Op("Mul", {Value(a, DType::kI64), Value(b, DType::kI64)})};
}

// Python's: towards minus infinity. Mod has the sign of the divisor.
Num Emitter::FloorDiv(const Num& a, const Num& b) {
  if (a.known() && b.known() && a.integer >= 0 && b.integer > 0) {
    return Num::Of(a.integer / b.integer);
  }
  const ValueId x = Value(a, DType::kI64);
  const ValueId y = Value(b, DType::kI64);
  return {.id = Op("Div", {Op("Sub", {x, Op("Mod", {x, y})}), y})};
}

}  // namespace millrace::models::graph::pt2
