// Older forms of operators as the newest: what used to be an attribute becomes
// an operand, what used to flatten its operand says so.
#include <utility>

#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

// Makes the list attribute the operand `i`.
void AttrToOperand(NodeWriter& node, std::string_view attr, size_t i) {
  if (!node.attrs.Has(attr)) return;
  node.SetInput(i, node.Ints(node.attrs.Ints(attr)));
  node.attrs.Erase(attr);
}

Values AxesToOperand(NodeWriter& node) {
  if (node.in(1) == kNoValue) AttrToOperand(node, "axes", 1);
  return node.EmitSelf();
}

Values Slice(NodeWriter& node) {
  if (node.opset < 10) {
    AttrToOperand(node, "starts", 1);
    AttrToOperand(node, "ends", 2);
    AttrToOperand(node, "axes", 3);
  }
  return node.EmitSelf();
}

Values Split(NodeWriter& node) {
  if (node.in(1) == kNoValue) AttrToOperand(node, "split", 1);
  if (node.in(1) == kNoValue && !node.attrs.Has("num_outputs")) {
    node.attrs.Set("num_outputs", static_cast<int64_t>(node.wanted.size()));
  }
  return node.EmitSelf();
}

// PyTorch's older exporter counts some from the end, which ONNX does not know.
Values Transpose(NodeWriter& node) {
  std::vector<int64_t> perm = node.attrs.Ints("perm");
  const auto rank = static_cast<int64_t>(perm.size());
  for (int64_t& axis : perm) axis += axis < 0 && axis >= -rank ? rank : 0;
  if (node.attrs.Has("perm")) node.attrs.Set("perm", std::move(perm));
  return node.EmitSelf();
}

Values Clip(NodeWriter& node) {
  if (node.opset < 11) {
    const std::pair<const char*, size_t> bounds[] = {{"min", 1}, {"max", 2}};
    for (const auto& [attr, i] : bounds) {
      if (!node.attrs.Has(attr)) continue;
      node.SetInput(
          i, node.FloatLike(static_cast<float>(node.attrs.Float(attr, 0)),
                            node.in(0)));
      node.attrs.Erase(attr);
    }
  }
  return node.EmitSelf();
}

Values Pad(NodeWriter& node) {
  if (node.opset < 11) {
    AttrToOperand(node, node.attrs.Has("paddings") ? "paddings" : "pads", 1);
    if (const double value = node.attrs.Float("value", 0); value != 0) {
      node.SetInput(2, node.FloatLike(static_cast<float>(value), node.in(0)));
    }
    node.attrs.Erase("value");
  }
  return node.EmitSelf();
}

Values TopK(NodeWriter& node) {
  if (node.opset < 10) {
    node.SetInput(1, node.Ints({node.attrs.Int("k", 0)}));
    node.attrs.Erase("k");
  }
  return node.EmitSelf();
}

Values Reshape(NodeWriter& node) {
  if (node.opset < 5) AttrToOperand(node, "shape", 1);
  return node.EmitSelf();
}

// In the graph that is served nothing is dropped.
Values Dropout(NodeWriter& node) {
  if (node.opset >= 12 && node.in(2) != kNoValue) {
    const Tensor* training = node.ConstantOf(node.in(2));
    if (training == nullptr || training->dtype() != DType::kBool ||
        training->num_elements() != 1 || *training->data<bool>()) {
      return Unimplemented("it may be in training mode");
    }
  }
  std::vector<ValueId> outputs = {node.in(0)};
  if (node.Wants(1)) {
    Tensor yes = Tensor::Make(DType::kBool, {});
    *yes.data<bool>() = true;
    outputs.push_back(node.Emit("Expand", {node.Constant(std::move(yes)),
                                           node.Emit("Shape", {node.in(0)})}));
  }
  outputs.resize(node.wanted.size(), kNoValue);
  return outputs;
}

Values Identity(NodeWriter& node) { return std::vector<ValueId>{node.in(0)}; }

// Before 13 the operand was seen as a matrix, cut before `axis`.
Values FlattenedSoftmax(NodeWriter& node) {
  const int64_t axis = node.attrs.Int("axis", 1);
  const int rank = node.rank_of(node.in(0));
  if (node.opset >= 13 || axis == -1 || (rank > 0 && axis == rank - 1)) {
    if (node.opset < 13) node.attrs.Set("axis", axis);
    return node.EmitSelf();
  }
  const ValueId shape = node.Emit("Shape", {node.in(0)});
  const ValueId matrix =
      node.Emit("Flatten", {node.in(0)}, {{"axis", AttrValue(axis)}});
  const ValueId rows =
      node.Emit(node.op, {matrix}, {{"axis", AttrValue(int64_t{-1})}});
  return std::vector<ValueId>{node.Emit("Reshape", {rows, shape})};
}

Values BatchNormalization(NodeWriter& node) {
  if (node.attrs.Int("training_mode", 0) != 0) return node.EmitSelf();
  if (node.attrs.Int("spatial", 1) == 0) {
    return Unimplemented("its statistics are not per channel");
  }
  // Up to 8 the further outputs were filled in training alone.
  node.wanted.resize(1, true);
  for (const char* attr : {"spatial", "is_test", "consumed_inputs"}) {
    node.attrs.Erase(attr);
  }
  return node.EmitSelf();
}

Values Resize(NodeWriter& node) {
  if (node.op == "Upsample" || node.opset < 11) {
    ValueId scales = node.in(1);
    if (scales == kNoValue) {
      std::vector<float> factors;
      for (const double factor : node.attrs.Floats("scales")) {
        factors.push_back(static_cast<float>(factor));
      }
      const Shape shape = {static_cast<int64_t>(factors.size())};
      scales = node.Constant(
          Tensor::From<float>(DType::kF32, shape, std::span(factors)));
      node.attrs.Erase("scales");
    }
    node.op = "Resize";
    node.inputs = {node.in(0), kNoValue, scales};
    if (!node.attrs.Has("mode")) node.attrs.Set("mode", "nearest");
    node.attrs.Set("coordinate_transformation_mode", std::string("asymmetric"));
    node.attrs.Set("nearest_mode", std::string("floor"));
  }
  return node.EmitSelf();
}

// Before 21 scale and bias were given for each group.
Values GroupNormalization(NodeWriter& node) {
  if (node.opset >= 21) return node.EmitSelf();
  const int64_t groups = node.attrs.Int("num_groups", 1);
  const ValueId channels =
      node.Emit("Gather", {node.Emit("Shape", {node.in(0)}), node.Ints({1})});
  const ValueId each = node.Emit("Div", {channels, node.Ints({groups})});
  const ValueId grid = node.Emit("Concat", {node.Ints({groups}), each},
                                 {{"axis", AttrValue(int64_t{0})}});
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const ValueId column = node.Emit("Unsqueeze", {node.in(i), node.Ints({1})});
    const ValueId wide = node.Emit("Expand", {column, grid});
    node.SetInput(i, node.Emit("Reshape", {wide, node.Ints({-1})}));
  }
  return node.EmitSelf();
}

// Before 20 the axis was an attribute.
Values Dft(NodeWriter& node) {
  if (node.opset < 20) {
    node.SetInput(2, node.Ints({node.attrs.Int("axis", 1)}));
    node.attrs.Erase("axis");
  }
  return node.EmitSelf();
}

// Before 16 regions were not shifted by half a pixel.
Values RoiAlign(NodeWriter& node) {
  if (node.opset < 16) {
    node.attrs.Set("coordinate_transformation_mode",
                   std::string("output_half_pixel"));
  }
  return node.EmitSelf();
}

Values Scatter(NodeWriter& node) {
  node.op = "ScatterElements";
  return node.EmitSelf();
}

// Before 7 the second operand stood below the first at `axis`.
Values OldBroadcast(NodeWriter& node) {
  if (node.opset >= 7) return node.EmitSelf();
  const bool has_axis = node.attrs.Has("axis");
  const int64_t axis = node.attrs.Int("axis", 0);
  for (const char* attr : {"axis", "broadcast", "consumed_inputs"}) {
    node.attrs.Erase(attr);
  }
  if (has_axis) {
    const int a = node.rank_of(node.in(0));
    const int b = node.rank_of(node.in(1));
    if (a < 0 || b < 0) return Unimplemented("'axis' on unknown ranks");
    const int64_t first = axis < 0 ? axis + a : axis;
    std::vector<int64_t> axes;
    for (int64_t i = b; i < a - first; ++i) axes.push_back(i);
    if (!axes.empty()) {
      node.SetInput(1, node.Emit("Unsqueeze", {node.in(1), node.Ints(axes)}));
    }
  }
  return node.EmitSelf();
}

// Before 7 a list of slopes belonged to the channels.
Values PRelu(NodeWriter& node) {
  const int rank = node.rank_of(node.in(0));
  if (node.opset < 7 && node.rank_of(node.in(1)) == 1 && rank > 2) {
    std::vector<int64_t> axes;
    for (int64_t i = 1; i < rank - 1; ++i) axes.push_back(i);
    node.SetInput(1, node.Emit("Unsqueeze", {node.in(1), node.Ints(axes)}));
  }
  return node.EmitSelf();
}

constexpr RewriteRow kRows[] = {
    {"Add", OldBroadcast},
    {"And", OldBroadcast},
    {"BatchNormalization", BatchNormalization},
    {"Clip", Clip},
    {"DFT", Dft},
    {"Div", OldBroadcast},
    {"Dropout", Dropout},
    {"Equal", OldBroadcast},
    {"Greater", OldBroadcast},
    {"GroupNormalization", GroupNormalization},
    {"Hardmax", FlattenedSoftmax},
    {"Identity", Identity},
    {"Less", OldBroadcast},
    {"LogSoftmax", FlattenedSoftmax},
    {"Mul", OldBroadcast},
    {"Or", OldBroadcast},
    {"PRelu", PRelu},
    {"Pad", Pad},
    {"Pow", OldBroadcast},
    {"ReduceL1", AxesToOperand},
    {"ReduceL2", AxesToOperand},
    {"ReduceLogSum", AxesToOperand},
    {"ReduceLogSumExp", AxesToOperand},
    {"ReduceMax", AxesToOperand},
    {"ReduceMean", AxesToOperand},
    {"ReduceMin", AxesToOperand},
    {"ReduceProd", AxesToOperand},
    {"ReduceSum", AxesToOperand},
    {"ReduceSumSquare", AxesToOperand},
    {"Reshape", Reshape},
    {"Resize", Resize},
    {"RoiAlign", RoiAlign},
    {"Scatter", Scatter},
    {"Slice", Slice},
    {"Softmax", FlattenedSoftmax},
    {"Split", Split},
    {"Squeeze", AxesToOperand},
    {"Sub", OldBroadcast},
    {"TopK", TopK},
    {"Transpose", Transpose},
    {"Unsqueeze", AxesToOperand},
    {"Upsample", Resize},
    {"Xor", OldBroadcast},
};

}  // namespace

Rewrite FindUpgrade(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
