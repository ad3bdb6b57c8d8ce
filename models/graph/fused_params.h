// The parameters of fused operators, one struct for each (passes/fused.h lists
// the operators). Plain data: a graph copies and compares them.
//
// A node holds them in its attributes:
//
//   Attrs attrs = FusedAttrs(ConvParams{.window = window, .groups = 2});
//   EditParams<ConvParams>(attrs).epilogue.activation = {Unary::kRelu};
//   const auto& conv = ParamsOf<ConvParams>(node.attrs);
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/graph_kernels.h"
#include "models/graph/attrs.h"

namespace millrace::models::graph {

// ---- parts that several have in common ----
// Sizes of a sliding window, one for each spatial axis; pads: all begins, then
// all ends.
struct NodeWindow {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads;
  bool operator==(const NodeWindow&) const = default;
};

// A function of one value that the dense kernels know, with its parameters.
struct Activation {
  Unary f = Unary::kNone;
  float a = 0;
  float b = 0;
  bool operator==(const Activation&) const = default;
};

// What becomes of the sums of a layer, in the order of cpu/graph_kernels.h's
// Epilogue: bias, residual if it is first, activation, gate, residual.
struct FusedEpilogue {
  Activation activation;
  bool residual_first = false;
  bool operator==(const FusedEpilogue&) const = default;
};

// UINT8 that stand for (q - zero) * scale. A scale of 0: FP32 instead.
struct ByteScale {
  float scale = 0;
  int32_t zero = 0;
  bool given() const { return scale != 0; }
  bool operator==(const ByteScale&) const = default;
};

// What the UINT8 operands and results of a layer stand for.
struct Quantization {
  ByteScale x;
  ByteScale y;
  ByteScale residual;
  // The sum with its bias is rounded to these before anything else happens;
  // then it is multiplied by the factor and the middle bias is added.
  ByteScale middle;
  double middle_factor = 1;
  bool operator==(const Quantization&) const = default;
};

// A layer with weights, or a product of two values.
struct LayerParams {
  FusedEpilogue epilogue;
  Quantization quantization;  // of layers on UINT8
  bool operator==(const LayerParams&) const = default;
};

// ---- one for each kind of operator ----
struct ConvParams : LayerParams {  // also transposed, of volumes, on UINT8
  NodeWindow window;
  int64_t groups = 1;
  bool operator==(const ConvParams&) const = default;
};

struct LinearParams : LayerParams {
  bool weight_kn = false;  // the weight is [k, n], not [n, k]
  bool operator==(const LinearParams&) const = default;
};

// Axis i of what is multiplied is axis a_perm[i], b_perm[i] of the operands,
// and y_perm[i] of the result.
struct MatMulParams : LayerParams {
  std::vector<int64_t> a_perm;
  std::vector<int64_t> b_perm;
  std::vector<int64_t> y_perm;
  bool operator==(const MatMulParams&) const = default;
};

struct PoolParams {
  bool is_max = false;  // else the mean
  bool count_include_pad = false;
  NodeWindow window;
  ByteScale x;  // of a mean of UINT8
  ByteScale y;
  bool operator==(const PoolParams&) const = default;
};

struct GroupNormParams {
  int64_t num_groups = 1;
  double epsilon = 1e-5;
  bool operator==(const GroupNormParams&) const = default;
};

// Beside the attributes of ONNX's Resize, which the node keeps.
struct ResizeParams {
  ByteScale x;  // of weighted sums of UINT8
  ByteScale y;
  bool operator==(const ResizeParams&) const = default;
};

// Where q, k or v lies in something wider, in values.
struct AttentionOperand {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t size = 0;
  int64_t offset = 0;
  int64_t stride = 0;        // from token to token
  int64_t batch_stride = 0;  // from one of the batch to the next
  bool operator==(const AttentionOperand&) const = default;
};

struct AttentionParams {
  std::optional<double> scale;  // else 1 / sqrt(size of q)
  bool is_causal = false;
  bool zero_masked = true;  // a row that sees nothing gives zeros
  // Of q, k, v; none: they are dense and of their own.
  std::optional<std::array<AttentionOperand, 3>> views;
  bool swapped = false;      // in one of them, tokens stand before the batch
  bool swapped_out = false;  // so they do in the result, [t, b, h, e]
  bool operator==(const AttentionParams&) const = default;
};

// What a fused elementwise node computes: a list of instructions over
// registers. The first registers are the operands, each instruction writes the
// next one, and the last is the result.
//
//   x * sigmoid(x):   operands x;  r1 = sigmoid(r0);  r2 = mul(r0, r1)
enum class Pointwise : int32_t { kUnary, kAdd, kSub, kMul, kDiv, kMin, kMax };

struct Instruction {
  Pointwise kind = Pointwise::kUnary;
  Unary f = Unary::kNone;  // of kUnary, with its parameters
  int32_t x = 0;           // registers
  int32_t y = 0;
  float a = 0;
  float b = 0;
  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

struct PointwiseParams {
  Program program;
  // Of each operand, then of the result; empty: all are FP32.
  std::vector<ByteScale> scales;
  bool operator==(const PointwiseParams&) const = default;
};

struct FusedParams {
  std::variant<ConvParams, LinearParams, MatMulParams, PoolParams,
               GroupNormParams, ResizeParams, AttentionParams, PointwiseParams>
      of;
  bool operator==(const FusedParams&) const = default;
};

// ---- in the attributes of a node ----
template <typename T>
Attrs FusedAttrs(T params) {
  Attrs attrs;
  attrs.SetFused(std::make_shared<const FusedParams>(
      FusedParams{.of = std::move(params)}));
  return attrs;
}

// The node is of an operator that has a T.
template <typename T>
const T& ParamsOf(const Attrs& attrs) {
  const FusedParams* params = attrs.fused();
  CHECK(params != nullptr && std::holds_alternative<T>(params->of),
        "a fused node has the parameters of its operator");
  return std::get<T>(params->of);
}

// A copy of the parameters that belongs to `attrs` alone, to be changed before
// `attrs` is copied.
template <typename T>
T& EditParams(Attrs& attrs) {
  auto params = std::make_shared<FusedParams>(FusedParams{ParamsOf<T>(attrs)});
  T& edited = std::get<T>(params->of);
  attrs.SetFused(std::move(params));
  return edited;
}

// Those of any layer; null for other nodes.
const LayerParams* FindLayerParams(const Attrs& attrs);
const LayerParams& LayerParamsOf(const Attrs& attrs);
LayerParams& EditLayerParams(Attrs& attrs);
// Of a convolution; 1 for other layers.
int64_t GroupsOf(const Attrs& attrs);

}  // namespace millrace::models::graph
