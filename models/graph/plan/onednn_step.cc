// Layers that oneDNN computes, each member of the team calls of its own
// (onednn_cut.h). Which layers those are is said in onednn_layers.h; the others
// are left to the makers of our kernels.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/passes/bytes.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/byte_layer.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/onednn_cut.h"
#include "models/graph/plan/onednn_layers.h"

namespace millrace::models::graph {
namespace {

using onednn::LayerArgs;
using onednn::LayerSizes;
using onednn::Type;

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

Type TypeOf(const ValueType& type) {
  return type.dtype == DType::kBF16 ? Type::kBf16
         : type.dtype == DType::kU8 ? Type::kU8
                                    : Type::kF32;
}

ValueId Operand(const Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoValue;
}

Status CannotPack() {
  return Internal(
      "oneDNN cannot pack the weight of a layer; set graph_backend to "
      "millrace");
}

// What decides how its weight is packed, and more: few weights are shared.
PackedForm FormOf(const OneDnnCalls& calls) {
  const LayerSizes& s = calls.sizes;
  return {PackedForm::Kind::kOneDnn,
          {static_cast<int64_t>(s.kind),
           static_cast<int64_t>(s.x),
           static_cast<int64_t>(s.y),
           static_cast<int64_t>(s.residual),
           static_cast<int64_t>(s.f),
           s.residual_first,
           s.has_bias,
           s.has_gate,
           s.weight_kn,
           s.height,
           s.width,
           s.out_height,
           s.out_width,
           s.groups,
           s.kernel_h,
           s.stride_h,
           s.stride_w,
           s.dilation_h,
           s.dilation_w,
           s.pad_top,
           s.pad_left}};
}

class OneDnnStep : public Step {
 public:
  OneDnnStep(const Node& node, const LowerContext& context, OneDnnCalls calls,
             const void* packed)
      : calls_(std::move(calls)),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        packed_(packed),
        num_members_(context.num_members) {
    for (const OneDnnCall& part : calls_.parts) {
      layer_scratch_ =
          std::max(layer_scratch_, Aligned(part.layer->scratch_bytes()));
      most_x_ = std::max(most_x_, part.x_count);
    }
  }

  bool splits() const override { return calls_.parts.size() > 1; }
  int64_t held_bytes() const override {
    return static_cast<int64_t>(calls_.parts.size() * sizeof(OneDnnCall));
  }
  double macs() const override { return calls_.macs; }
  std::string onednn_shape() const override { return ShapeText(calls_.sizes); }

 protected:
  std::string TextWith(const std::string& epilogue) const {
    const LayerSizes& s = calls_.sizes;
    const std::string calls = std::to_string(calls_.parts.size());
    return "oneDNN " + ShapeText(s) + epilogue + ", " + calls + " calls of " +
           calls_.first().Implementation();
  }
  // One call is all of the work of any one member.
  std::pair<int64_t, int64_t> MyCalls(const Team& team) const {
    const auto count = static_cast<int64_t>(calls_.parts.size());
    return splits() ? team.Share(count) : std::pair<int64_t, int64_t>(0, count);
  }
  Status Call(const OneDnnCall& part, const LayerArgs& args) const {
    if (part.layer->Run(args)) return OkStatus();
    return Internal("oneDNN failed in a layer of " + ShapeText(calls_.sizes) +
                    "; set graph_backend to millrace");
  }

  const OneDnnCalls calls_;
  const Slot x_;
  const Slot y_;
  const void* const packed_;
  const int64_t num_members_;
  int64_t layer_scratch_ = 0;
  int64_t most_x_ = 0;
};

// On floats and bf16.
class FloatStep final : public OneDnnStep {
 public:
  FloatStep(const Node& node, const LowerContext& context, OneDnnCalls calls,
            const void* packed)
      : OneDnnStep(node, context, std::move(calls), packed),
        epilogue_(node, context, context.shape(node.outputs[0]).back()),
        round_(calls_.sizes.x == Type::kBf16 && !context.is_bf16(node.inputs[0])
                   ? context.bf16->round
                   : nullptr) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }
  Factors factors() const override {
    return calls_.sizes.x == Type::kBf16 ? Factors::kBf16 : Factors::kF32;
  }
  std::string Text() const override { return TextWith(epilogue_.Text()); }

  Status Run(const Slots& slots, const Team& team) const override {
    const LayerSizes& s = calls_.sizes;
    const Epilogue epilogue = epilogue_.At(slots);
    std::byte* scratch = slots.scratch + team.index * MemberScratch();
    const auto [begin, end] = MyCalls(team);
    for (int64_t i = begin; i < end; ++i) {
      const OneDnnCall& part = calls_.parts[static_cast<size_t>(i)];
      LayerArgs args{.weights = packed_,
                     .bias = epilogue.bias,
                     .y = slots.at[y_] + part.y_at * BytesOf(s.y),
                     .scratch = scratch};
      if (round_ != nullptr) {
        auto* rounded = reinterpret_cast<Bf16*>(scratch + layer_scratch_);
        round_(slots.data<float>(x_) + part.x_at, part.x_count, rounded);
        args.x = rounded;
      } else {
        args.x = slots.at[x_] + part.x_at * BytesOf(s.x);
      }
      if (epilogue.residual != nullptr) {
        args.residual = epilogue.residual + part.y_at;
      } else if (epilogue.residual_bf16 != nullptr) {
        args.residual = epilogue.residual_bf16 + part.y_at;
      }
      if (epilogue.gate != nullptr) args.gate = epilogue.gate + part.y_at;
      RETURN_IF_ERROR(Call(part, args));
    }
    return OkStatus();
  }

 private:
  int64_t MemberScratch() const {
    return layer_scratch_ + (round_ == nullptr ? 0 : Aligned(most_x_ * 2));
  }

  const StepEpilogue epilogue_;
  const Rounding round_;
};

// On bytes. A residual is first put where the result will be.
class ByteStep final : public OneDnnStep {
 public:
  ByteStep(const Node& node, const LowerContext& context, OneDnnCalls calls,
           const void* packed, ByteEpilogue epilogue)
      : OneDnnStep(node, context, std::move(calls), packed),
        epilogue_(std::move(epilogue)) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch();
  }
  Factors factors() const override { return Factors::kInt8; }
  std::string Text() const override { return TextWith(epilogue_.Text()); }

  Status Run(const Slots& slots, const Team& team) const override {
    const LayerSizes& s = calls_.sizes;
    std::byte* scratch = slots.scratch + team.index * MemberScratch();
    const Int8Epilogue epilogue =
        epilogue_.At(slots, reinterpret_cast<float*>(scratch + layer_scratch_));
    const auto [begin, end] = MyCalls(team);
    for (int64_t i = begin; i < end; ++i) {
      const OneDnnCall& part = calls_.parts[static_cast<size_t>(i)];
      std::byte* y = slots.at[y_] + part.y_at * BytesOf(s.y);
      LayerArgs args{.x = slots.data<uint8_t>(x_) + part.x_at,
                     .weights = packed_,
                     .bias = epilogue.bias,
                     .y = y,
                     .scratch = scratch,
                     .scales = epilogue.scale,
                     .x_zero = epilogue_.x_zero(slots),
                     .y_zero = epilogue.y_zero};
      if (s.residual != Type::kNone) {
        const void* from =
            epilogue.residual != nullptr
                ? static_cast<const void*>(epilogue.residual + part.y_at)
                : epilogue.residual_f32 + part.y_at;
        std::memcpy(y, from, static_cast<size_t>(part.y_count * BytesOf(s.y)));
        args.residual = y;
      }
      RETURN_IF_ERROR(Call(part, args));
    }
    return OkStatus();
  }

 private:
  int64_t MemberScratch() const {
    return layer_scratch_ + Aligned(epilogue_.measured_floats() * 4);
  }

  const ByteEpilogue epilogue_;
};

StatusOr<std::unique_ptr<Step>> MakeFloatStep(const Node& node,
                                              const LowerContext& context) {
  const FusedEpilogue& epilogue = LayerParamsOf(node.attrs).epilogue;
  const bool is_linear = node.op == &fused::kLinear;
  LayerSizes sizes;
  const bool rounds = &context.products(node) == context.bf16;
  sizes.x = rounds ? Type::kBf16 : Type::kF32;
  sizes.y = TypeOf(context.type(node.outputs[0]));
  sizes.weight_kn = is_linear && ParamsOf<LinearParams>(node.attrs).weight_kn;
  sizes.has_bias = Operand(node, fused::kBias) != kNoValue;
  if (const ValueId id = Operand(node, fused::kResidual); id != kNoValue) {
    sizes.residual = TypeOf(context.type(id));
    sizes.residual_first = epilogue.residual_first;
  }
  sizes.has_gate = Operand(node, fused::kGate) != kNoValue;
  sizes.f = epilogue.activation.f;
  sizes.a = epilogue.activation.a;
  sizes.b = epilogue.activation.b;
  std::optional<OneDnnCalls> calls = CutForOneDnn(node, context, sizes);
  if (!calls) return std::unique_ptr<Step>();
  ASSIGN_OR_RETURN(const float* packed,
                   context.packed.Get(
                       context.graph.value(node.inputs[1]).constant,
                       FormOf(*calls), (calls->first().packed_bytes() + 3) / 4,
                       [&](const Tensor& from, float* to) {
                         return calls->first().Pack(from.bytes(), to)
                                    ? OkStatus()
                                    : CannotPack();
                       }));
  return std::unique_ptr<Step>(
      std::make_unique<FloatStep>(node, context, *std::move(calls), packed));
}

StatusOr<std::unique_ptr<Step>> MakeByteStep(const Node& node,
                                             const LowerContext& context) {
  if (Operand(node, fused::kTable) != kNoValue ||
      Operand(node, fused::kMiddleBias) != kNoValue ||
      LayerParamsOf(node.attrs).quantization.middle.given()) {
    return std::unique_ptr<Step>();
  }
  const bool weight_kn = node.op == &fused::kByteLinear &&
                         ParamsOf<LinearParams>(node.attrs).weight_kn;
  const Integers& integers = *context.graph.value(node.inputs[1]).integers;
  // oneDNN takes x's zero off each value itself, so sums of weights, which
  // would do it behind the product, do not matter.
  const int64_t n = context.shape(node.outputs[0]).back();
  const std::vector<int32_t> no_sums(static_cast<size_t>(n));
  ByteEpilogue epilogue(node, {context.graph, context.slot_of},
                        {no_sums, integers.scales}, n);
  const Int8Epilogue& fixed = epilogue.fixed();
  LayerSizes sizes;
  sizes.x = Type::kU8;
  sizes.y = epilogue.gives_bytes() ? Type::kU8 : Type::kF32;
  sizes.has_bias = !epilogue.bias().empty();
  if (const ValueId id = Operand(node, fused::kResidual); id != kNoValue) {
    sizes.residual = TypeOf(context.type(id));
    if (sizes.residual != sizes.y) return std::unique_ptr<Step>();
    sizes.residual_first = fixed.residual_first;
    sizes.residual_scale = fixed.residual_scale;
    sizes.residual_zero = static_cast<int32_t>(fixed.residual_zero);
  }
  sizes.f = fixed.f;
  sizes.a = fixed.a;
  sizes.b = fixed.b;
  sizes.y_scale = 1 / fixed.y_scale;
  std::optional<OneDnnCalls> calls = CutForOneDnn(node, context, sizes);
  if (!calls) return std::unique_ptr<Step>();
  const onednn::Layer& layer = calls->first();
  ASSIGN_OR_RETURN(
      const PackedBytes* packed,
      context.packed.GetBytes(
          integers.values, FormOf(*calls), [&]() -> BytesToPack {
            auto weight = SignedWeightOf(integers, weight_kn ? 1 : 0);
            CHECK(weight.has_value(), "the pass has proven the weights");
            return {{0},
                    {},
                    layer.packed_bytes(),
                    [&layer, weight = *std::move(weight)](int8_t* to) {
                      return layer.Pack(weight.values.data(), to)
                                 ? OkStatus()
                                 : CannotPack();
                    }};
          }));
  return std::unique_ptr<Step>(std::make_unique<ByteStep>(
      node, context, *std::move(calls), packed->data, std::move(epilogue)));
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeOneDnnStep(const Node& node,
                                               const LowerContext& context) {
  if (context.onednn == nullptr) return std::unique_ptr<Step>();
  if (node.op == &fused::kConv || node.op == &fused::kLinear) {
    return MakeFloatStep(node, context);
  }
  if (node.op == &fused::kByteConv || node.op == &fused::kByteLinear) {
    return MakeByteStep(node, context);
  }
  return std::unique_ptr<Step>();
}

}  // namespace millrace::models::graph
