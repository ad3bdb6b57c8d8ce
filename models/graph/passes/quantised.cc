// Graphs with QuantizeLinear and DequantizeLinear: what stands between them
// works on the bytes, and gives what the graph defines up to the rounding of
// floats; products of two activations are finer, see float_products.cc. What
// has no way to do so keeps its FP32 form between the two.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/activation.h"
#include "models/graph/op.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/passes/copied_pixels.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/lookup_tables.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

const FusedEpilogue& EpilogueOf(const Node& layer) {
  return LayerParamsOf(layer.attrs).epilogue;
}
bool IsActivated(const Node& layer) {
  return EpilogueOf(layer).activation.f != Unary::kNone;
}
const Quantization& QuantizationOf(const Node& layer) {
  return LayerParamsOf(layer.attrs).quantization;
}

// The operands behind this one stay as they are.
void SetOperand(std::vector<ValueId>& inputs, size_t i, ValueId id) {
  inputs.resize(std::max(inputs.size(), i + 1), kNoValue);
  inputs[i] = id;
}

// The layer on bytes in place of one on floats; null where there is none.
const OpDef* OnBytes(const Node& layer) {
  if (layer.op == &fused::kConv) return &fused::kByteConv;
  if (layer.op == &fused::kLinear) return &fused::kByteLinear;
  const bool transposed = layer.op == &fused::kConvTranspose;
  return transposed && GroupsOf(layer.attrs) == 1 ? &fused::kByteConvTranspose
                                                  : nullptr;
}
bool IsLayer(const Node* node) {
  return node != nullptr && OnBytes(*node) != nullptr;
}
bool IsByteLayer(const Node* node) {
  return node != nullptr && (node->op == &fused::kByteConv ||
                             node->op == &fused::kByteConvTranspose ||
                             node->op == &fused::kByteLinear);
}

class QuantisedPass {
 public:
  explicit QuantisedPass(Graph& graph) : graph_(graph), editor_(graph) {}

  void Layers() {
    EachQuantize(graph_, [&](Node& node, const ByteScale& scale) {
      Node* maker = editor_.Maker(node.inputs[0]);
      if (maker == nullptr || editor_.NumReaders(node.inputs[0]) != 1) return;
      if (IsLayer(maker)) {
        Layer(node, *maker, &scale);
      } else if (maker->op == &fused::kPool) {
        Mean(node, *maker, &scale);
      }
    });
    for (Node& node : graph_.nodes) {
      if (IsLayer(&node)) {
        Layer(node, node, nullptr);
      } else if (node.op == &fused::kPool) {
        Mean(node, node, nullptr);
      }
    }
    editor_.Finish();
  }

  // Node by node, so that what cannot join leaves what did.
  void Chains() {
    for (Node& node : graph_.nodes) {
      if (node.outputs.size() != 1) continue;
      if (node.Is("Add")) {
        Bias(node) || Residual(node);
      } else if (node.Is("Mul") || node.Is("Div")) {
        Factor(node);
      } else if (node.Is("QuantizeLinear")) {
        Bytes(node);
      } else if (const auto f = ActivationOf(graph_, node)) {
        Activate(node, *f);
      }
    }
    editor_.Finish();
  }

  void Tables() {
    for (Node& node : graph_.nodes) {
      if (node.op != &fused::kLookup) continue;
      const Node* layer = SoleByteLayer(node.inputs[0]);
      if (layer == nullptr) continue;
      std::vector<ValueId> inputs = layer->inputs;
      SetOperand(inputs, fused::kTable, node.inputs[1]);
      editor_.Rewrite(node, *layer->op, std::move(inputs), layer->attrs);
    }
    editor_.Finish();
  }

 private:
  const Shape& ShapeOf(ValueId id) const {
    return graph_.value(id).type->shape;
  }

  // ---- layers ----
  bool IsConstantFloat(ValueId id) const {
    const Tensor* tensor = editor_.Constant(id);
    return tensor != nullptr && tensor->dtype() == DType::kF32;
  }

  static int OutputsAxis(const Node& layer) {
    return layer.op == &fused::kConvTranspose ||
                   (layer.op == &fused::kLinear &&
                    ParamsOf<LinearParams>(layer.attrs).weight_kn)
               ? 1
               : 0;
  }

  // `node`, which is the layer or the QuantizeLinear behind it, becomes the
  // layer on bytes.
  void Layer(Node& node, const Node& layer, const ByteScale* out) {
    const auto x = DequantisedOf(graph_, editor_, layer.inputs[0]);
    const auto& integers = graph_.value(layer.inputs[1]).integers;
    const auto measured = MeasuredOf(graph_, editor_, layer.inputs[0]);
    if ((!x && !measured) || integers == nullptr ||
        layer.inputs.size() > fused::kResidual + 1 ||
        !HasSignedWeight(*integers, OutputsAxis(layer))) {
      return;
    }
    if (layer.inputs.size() > 2 && layer.inputs[2] != kNoValue &&
        !IsConstantFloat(layer.inputs[2])) {
      return;
    }
    std::vector<ValueId> inputs = layer.inputs;
    Attrs attrs = layer.attrs;
    Quantization& quantization = EditLayerParams(attrs).quantization;
    if (measured) {
      // Only into floats, and channels go together.
      if (out != nullptr || GroupsOf(layer.attrs) != 1 ||
          layer.op == &fused::kConvTranspose) {
        return;
      }
      inputs[0] = measured->bytes;
      SetOperand(inputs, fused::kMeasured, measured->scale);
      SetOperand(inputs, fused::kMeasured + 1, measured->zero);
    } else {
      inputs[0] = x->bytes;
      quantization.x = x->scale;
    }
    if (out != nullptr) quantization.y = *out;
    if (inputs.size() > fused::kResidual &&
        inputs[fused::kResidual] != kNoValue) {
      if (const auto r =
              DequantisedOf(graph_, editor_, inputs[fused::kResidual])) {
        inputs[fused::kResidual] = r->bytes;
        quantization.residual = r->scale;
      }
    }
    editor_.Rewrite(node, *OnBytes(layer), std::move(inputs), std::move(attrs));
  }

  // The mean over a whole image.
  void Mean(Node& node, const Node& pool, const ByteScale* out) {
    const auto x = DequantisedOf(graph_, editor_, pool.inputs[0]);
    const auto& params = ParamsOf<PoolParams>(pool.attrs);
    if (!x || params.is_max) return;
    const Shape& image = ShapeOf(pool.inputs[0]);
    const NodeWindow& window = params.window;
    for (size_t i = 0; i < window.kernel.size(); ++i) {
      if (window.kernel[i] != image[static_cast<int>(i) + 1]) return;
    }
    if (std::any_of(window.pads.begin(), window.pads.end(),
                    [](int64_t pad) { return pad != 0; })) {
      return;
    }
    Attrs attrs = pool.attrs;
    auto& edited = EditParams<PoolParams>(attrs);
    edited.x = x->scale;
    if (out != nullptr) edited.y = *out;
    editor_.Rewrite(node, fused::kBytePool, {x->bytes}, std::move(attrs));
  }

  // ---- tables behind layers ----
  // The layer on bytes that makes these bytes for one reader, without anything
  // behind its sum yet.
  const Node* SoleByteLayer(ValueId bytes) {
    const Node* layer = editor_.Maker(bytes);
    if (!IsByteLayer(layer) || editor_.NumReaders(bytes) != 1 ||
        (layer->inputs.size() > fused::kTable &&
         layer->inputs[fused::kTable] != kNoValue)) {
      return nullptr;
    }
    return layer;
  }

  // ---- what follows a layer on bytes joins it ----
  static bool HasOperand(const Node& layer, size_t i) {
    return layer.inputs.size() > i && layer.inputs[i] != kNoValue;
  }

  // The layer that gives these floats to one reader: itself, or through bytes
  // that only that reader dequantises, which then become its middle.
  struct Open {
    Node layer;
    bool has_middle;
  };
  std::optional<Open> OpenLayer(ValueId floats) {
    if (editor_.NumReaders(floats) != 1) return std::nullopt;
    const Node* maker = editor_.Maker(floats);
    if (IsByteLayer(maker)) {
      return Open{*maker, QuantizationOf(*maker).middle.given()};
    }
    const auto x = DequantisedOf(graph_, editor_, floats);
    if (!x) return std::nullopt;
    const Node* layer = SoleByteLayer(x->bytes);
    if (layer == nullptr || IsActivated(*layer) ||
        QuantizationOf(*layer).middle.given() ||
        HasOperand(*layer, fused::kResidual)) {
      return std::nullopt;
    }
    Open open{*layer, true};
    Quantization& edited = EditLayerParams(open.layer.attrs).quantization;
    edited.y = {};
    edited.middle = x->scale;
    return open;
  }
  // Whether nothing stands behind the sum, or its middle, yet.
  static bool IsBare(const Node& layer) {
    return !IsActivated(layer) && !HasOperand(layer, fused::kResidual);
  }

  bool Become(Node& node, Node layer) {
    editor_.Rewrite(node, *layer.op, std::move(layer.inputs),
                    std::move(layer.attrs));
    return true;
  }

  // A constant for each output, or for all.
  bool Bias(Node& node) {
    for (size_t side = 0; side < 2; ++side) {
      const ValueId id = node.inputs[1 - side];
      const Tensor* bias = editor_.Constant(id);
      if (bias == nullptr || bias->dtype() != DType::kF32) continue;
      const Shape& out = ShapeOf(node.outputs[0]);
      const auto open = OpenLayer(node.inputs[side]);
      const bool fits =
          bias->num_elements() == 1 || (bias->num_elements() == out.back() &&
                                        bias->shape().back() == out.back());
      if (!open || !open->has_middle || !IsBare(open->layer) || !fits ||
          HasOperand(open->layer, fused::kMiddleBias) ||
          ShapeOf(node.inputs[side]) != out) {
        continue;
      }
      Node layer = open->layer;
      SetOperand(layer.inputs, fused::kMiddleBias, id);
      return Become(node, std::move(layer));
    }
    return false;
  }

  bool Residual(Node& node) {
    for (const size_t side : {size_t{1}, size_t{0}}) {
      const ValueId own = node.inputs[side];
      const ValueId other = node.inputs[1 - side];
      if (own == other || ShapeOf(other) != ShapeOf(own) ||
          graph_.value(own).type->dtype != DType::kF32) {
        return false;
      }
      auto open = OpenLayer(own);
      if (!open || HasOperand(open->layer, fused::kResidual)) continue;
      Node& layer = open->layer;
      SetOperand(layer.inputs, fused::kResidual, other);
      LayerParams& params = EditLayerParams(layer.attrs);
      params.epilogue.residual_first = false;
      if (const auto r = DequantisedOf(graph_, editor_, other)) {
        layer.inputs[fused::kResidual] = r->bytes;
        params.quantization.residual = r->scale;
      }
      return Become(node, std::move(layer));
    }
    return false;
  }

  // A number times the middle; a bias that it has already is left alone.
  void Factor(Node& node) {
    for (size_t side = 0; side < (node.Is("Mul") ? 2u : 1u); ++side) {
      const Tensor* by = editor_.Constant(node.inputs[1 - side]);
      if (by == nullptr || by->dtype() != DType::kF32 ||
          by->num_elements() != 1) {
        continue;
      }
      auto open = OpenLayer(node.inputs[side]);
      if (!open || !open->has_middle || !IsBare(open->layer) ||
          HasOperand(open->layer, fused::kMiddleBias) ||
          ShapeOf(node.inputs[side]) != ShapeOf(node.outputs[0])) {
        continue;
      }
      const double number = *by->data<float>();
      const double factor = node.Is("Mul") ? number : 1 / number;
      if (!std::isfinite(factor)) return;
      EditLayerParams(open->layer.attrs).quantization.middle_factor *= factor;
      Become(node, std::move(open->layer));
      return;
    }
  }

  void Activate(Node& node, const Activation& f) {
    auto open = OpenLayer(node.inputs[0]);
    if (!open || IsActivated(open->layer)) return;
    EditLayerParams(open->layer.attrs).epilogue = {
        .activation = f,
        .residual_first = HasOperand(open->layer, fused::kResidual)};
    Become(node, std::move(open->layer));
  }

  // Only of a layer that gives floats: quantising bytes anew is a table.
  void Bytes(Node& node) {
    const auto scale = ByteScaleOf(graph_, node);
    const Node* maker = editor_.Maker(node.inputs[0]);
    if (!scale || !IsByteLayer(maker) ||
        editor_.NumReaders(node.inputs[0]) != 1) {
      return;
    }
    Node layer = *maker;
    EditLayerParams(layer.attrs).quantization.y = *scale;
    Become(node, std::move(layer));
  }

  Graph& graph_;
  Editor editor_;
};

}  // namespace

void FuseQuantised(Graph& graph) {
  const bool quantised =
      std::any_of(graph.nodes.begin(), graph.nodes.end(),
                  [](const Node& node) { return node.Is("DequantizeLinear"); });
  if (!quantised) return;
  UnsignBytes(graph);
  QuantiseBeforeCopies(graph);
  FunctionsOfBytes(graph);
  QuantisedPass(graph).Layers();
  QuantisedPass(graph).Chains();
  QuantisedPass(graph).Tables();
}

void FuseQuantisedPointwise(Graph& graph) {
  Editor editor(graph);
  const auto join = [&](Node& node, const Node& program,
                        std::optional<ByteScale> out) {
    std::vector<ValueId> inputs = program.inputs;
    std::vector<ByteScale> scales;
    for (ValueId& id : inputs) {
      const auto x = DequantisedOf(graph, editor, id);
      if (x) id = x->bytes;
      scales.push_back(x ? x->scale : ByteScale{});
    }
    scales.push_back(out.value_or(ByteScale{}));
    if (std::none_of(scales.begin(), scales.end(),
                     [](const ByteScale& scale) { return scale.given(); })) {
      return;
    }
    Attrs attrs = program.attrs;
    EditParams<PointwiseParams>(attrs).scales = std::move(scales);
    editor.Rewrite(node, fused::kBytePointwise, std::move(inputs),
                   std::move(attrs));
  };
  for (Node& node : graph.nodes) {
    if (!node.Is("QuantizeLinear")) continue;
    const auto scale = ByteScaleOf(graph, node);
    const Node* program =
        editor.SoleMaker(node.inputs[0], fused::kPointwise.name);
    if (scale && program != nullptr) join(node, *program, scale);
  }
  for (Node& node : graph.nodes) {
    if (node.op == &fused::kPointwise) join(node, node, std::nullopt);
  }
  editor.Finish();
}

}  // namespace millrace::models::graph
