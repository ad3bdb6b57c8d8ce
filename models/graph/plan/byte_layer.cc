#include "models/graph/plan/byte_layer.h"

#include "models/graph/activation.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

ValueId Operand(const Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoValue;
}

}  // namespace

ByteEpilogue::ByteEpilogue(const Node& node, const SlottedGraph& values,
                           const ByteOutputs& weight, int64_t outputs)
    : x_(LayerParamsOf(node.attrs).quantization.x),
      y_(LayerParamsOf(node.attrs).quantization.y),
      gives_bytes_(y_.given()) {
  const FusedEpilogue& epilogue = LayerParamsOf(node.attrs).epilogue;
  fixed_.f = epilogue.activation.f;
  fixed_.a = epilogue.activation.a;
  fixed_.b = epilogue.activation.b;
  fixed_.residual_first = epilogue.residual_first;
  fixed_.ld_residual = outputs;
  fixed_.y_zero = y_.zero;
  if (const ValueId id = Operand(node, fused::kResidual); id != kNoValue) {
    residual_ = values.slot(id);
    residual_is_bytes_ = values.dtype(id) == DType::kU8;
  }
  if (const ValueId id = Operand(node, fused::kTable); id != kNoValue) {
    lookup_ = values.constant(id)->data<uint8_t>();
  }
  if (const ValueId id = Operand(node, fused::kMeasured); id != kNoValue) {
    x_scale_ = values.slot(id);
    x_zero_ = values.slot(Operand(node, fused::kMeasured + 1));
  }
  Scales(node, values, weight);
}

// Where the function behind the sum lets a factor through, all is counted in
// steps of the result.
void ByteEpilogue::Scales(const Node& node, const SlottedGraph& values,
                          const ByteOutputs& weight) {
  const bool through = fixed_.f == Unary::kNone || fixed_.f == Unary::kRelu ||
                       fixed_.f == Unary::kClip;
  const double y_scale = gives_bytes_ ? double{y_.scale} : 1.0;
  const double unit = through ? y_scale : 1.0;  // of v behind the sum
  fixed_.y_scale = static_cast<float>(through ? 1.0 : 1.0 / y_scale);
  if (fixed_.f == Unary::kClip) {
    fixed_.a = static_cast<float>(fixed_.a / unit);
    fixed_.b = static_cast<float>(fixed_.b / unit);
  }
  double sum_unit = unit;
  const Quantization& quantization = LayerParamsOf(node.attrs).quantization;
  const ByteScale& middle = quantization.middle;
  if (middle.given()) {
    sum_unit = middle.scale;
    const double factor = quantization.middle_factor;
    fixed_.middle_scale = static_cast<float>(middle.scale * factor / unit);
    fixed_.middle_low = static_cast<float>(-middle.zero);
    fixed_.middle_high = static_cast<float>(255 - middle.zero);
  }
  const ByteScale& residual = quantization.residual;
  if (residual_is_bytes_) {
    fixed_.residual_scale = static_cast<float>(residual.scale / unit);
    fixed_.residual_zero = static_cast<float>(residual.zero);
  } else {
    fixed_.residual_scale = static_cast<float>(1 / unit);
  }
  const Tensor* bias = Operand(node, fused::kBias) != kNoValue
                           ? values.constant(node.inputs[fused::kBias])
                           : nullptr;
  const Tensor* behind = Operand(node, fused::kMiddleBias) != kNoValue
                             ? values.constant(node.inputs[fused::kMiddleBias])
                             : nullptr;
  const auto num_outputs = static_cast<int64_t>(weight.sums.size());
  for (int64_t n = 0; behind != nullptr && n < num_outputs; ++n) {
    const float b = behind->data<float>()[n % behind->num_elements()];
    middle_bias_.push_back(static_cast<float>(b / unit));
  }
  const ByteScale x = x_scale_ == kNoSlot ? x_ : ByteScale{1, 1};
  for (int64_t n = 0; n < num_outputs; ++n) {
    const auto at = static_cast<size_t>(n);
    offset_.push_back(-x.zero * weight.sums[at]);
    scale_.push_back(static_cast<float>(
        double{x.scale} * weight.scales[at % weight.scales.size()] / sum_unit));
    if (bias == nullptr) continue;
    const float b = bias->data<float>()[n % bias->num_elements()];
    bias_.push_back(static_cast<float>(b / sum_unit));
  }
}

Int8Epilogue ByteEpilogue::At(const Slots& slots, float* measured) const {
  Int8Epilogue epilogue = fixed_;
  epilogue.offset = offset_.data();
  epilogue.scale = scale_.data();
  if (x_scale_ != kNoSlot) {
    const float x_scale = *slots.data<float>(x_scale_);
    const int32_t x_zero = *slots.data<uint8_t>(x_zero_);
    const size_t n = scale_.size();
    auto* offset = reinterpret_cast<int32_t*>(measured + n);
    for (size_t i = 0; i < n; ++i) {
      measured[i] = x_scale * scale_[i];
      offset[i] = x_zero * offset_[i];
    }
    epilogue.scale = measured;
    epilogue.offset = offset;
  }
  if (!bias_.empty()) epilogue.bias = bias_.data();
  if (!middle_bias_.empty()) epilogue.middle_bias = middle_bias_.data();
  epilogue.lookup = lookup_;
  if (residual_ == kNoSlot) return epilogue;
  if (residual_is_bytes_) {
    epilogue.residual = slots.data<uint8_t>(residual_);
  } else {
    epilogue.residual_f32 = slots.data<float>(residual_);
  }
  return epilogue;
}

std::string ByteEpilogue::Text() const {
  std::string text;
  if (x_scale_ != kNoSlot) text += " measured";
  if (!bias_.empty()) text += " +bias";
  if (fixed_.middle_scale != 0) text += " q";
  if (!middle_bias_.empty()) text += " +bias";
  const std::string residual =
      residual_is_bytes_ ? " +residual" : " +residual(f32)";
  if (residual_ != kNoSlot && fixed_.residual_first) text += residual;
  if (fixed_.f != Unary::kNone) {
    text += " " + std::string(UnaryName(fixed_.f));
  }
  if (residual_ != kNoSlot && !fixed_.residual_first) text += residual;
  if (lookup_ != nullptr) text += " lookup";
  return text + (gives_bytes_ ? "" : " -> f32");
}

Int8Epilogue Moved(const Int8Epilogue& epilogue, int64_t row, int64_t output) {
  Int8Epilogue moved = epilogue;
  moved.offset += output;
  moved.scale += output;
  if (moved.bias != nullptr) moved.bias += output;
  if (moved.middle_bias != nullptr) moved.middle_bias += output;
  const int64_t at = row * epilogue.ld_residual + output;
  if (moved.residual != nullptr) moved.residual += at;
  if (moved.residual_f32 != nullptr) moved.residual_f32 += at;
  return moved;
}

}  // namespace millrace::models::graph
