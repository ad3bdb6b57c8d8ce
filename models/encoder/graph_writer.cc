#include "models/encoder/graph_writer.h"

#include <utility>

#include "models/graph/onnx_dtype.h"

namespace millrace::models::encoder {

using graph::Attrs;
using graph::ValueId;

GraphWriter::Inputs GraphWriter::AddInputs(int64_t max_tokens, int64_t types) {
  Inputs out;
  out.batch = {.symbol = graph_.AddSymbol("batch_size")};
  const int32_t tokens = graph_.AddSymbol("sequence_length");
  graph_.symbols[static_cast<size_t>(tokens)].max = max_tokens;
  out.tokens = {.symbol = tokens};
  out.ids = graph_.AddInput("input_ids", DType::kI64, {out.batch, out.tokens});
  const ValueId mask =
      graph_.AddInput("attention_mask", DType::kI64, {out.batch, out.tokens});
  if (types > 1) {
    out.types =
        graph_.AddInput("token_type_ids", DType::kI64, {out.batch, out.tokens});
  }
  const ValueId seen =
      Op("Cast", {mask}, {{"to", int64_t{graph::OnnxNumber(DType::kBool)}}});
  out.mask = Op("Unsqueeze", {seen, Ints({1, 2})});
  return out;
}

void GraphWriter::AddHidden(const Inputs& inputs, ValueId x, int64_t hidden) {
  graph_.AddOutput("last_hidden_state", x);
  graph_.outputs.back().dims = {inputs.batch, inputs.tokens, {.size = hidden}};
  graph_.outputs.back().rank_known = true;
}

void GraphWriter::AddLogits(const Inputs& inputs, ValueId x, int64_t classes) {
  graph_.AddOutput("logits", x);
  graph_.outputs.back().dims = {inputs.batch, {.size = classes}};
  graph_.outputs.back().rank_known = true;
}

StatusOr<ValueId> GraphWriter::Weight(const std::string& name,
                                      const std::vector<int64_t>& dims) {
  return Part(name, 0, dims[0], dims);
}

StatusOr<ValueId> GraphWriter::WeightRows(const std::string& name,
                                          int64_t first, int64_t count,
                                          int64_t all, int64_t columns) {
  std::vector<int64_t> dims = {all};
  if (columns > 0) dims.push_back(columns);
  return Part(name, first, count, std::move(dims));
}

StatusOr<ValueId> GraphWriter::Part(const std::string& name, int64_t first,
                                    int64_t count, std::vector<int64_t> dims) {
  ASSIGN_OR_RETURN(const EncoderTensor tensor, tensors_.Read(name));
  if (tensor.shape != dims) {
    ASSIGN_OR_RETURN(const Shape wanted, Shape::Checked(dims));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(tensor.shape));
    return InvalidArgument("the tensor '" + tensors_.Spelt(name) +
                           "' has the shape " + shape.ToString() +
                           "; the configuration says " + wanted.ToString());
  }
  dims[0] = 1;
  ASSIGN_OR_RETURN(const Shape one, Shape::Checked(dims));
  dims[0] = count;
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(dims));
  const auto size = static_cast<size_t>(DTypeBytes(tensor.dtype));
  const std::byte* bytes =
      tensor.bytes.data() +
      static_cast<size_t>(first * one.num_elements()) * size;
  const bool aligned = reinterpret_cast<uintptr_t>(bytes) % size == 0;
  return graph_.AddConstant(
      name, aligned ? Tensor::Borrow(tensor.dtype, shape, bytes, tensor.keep)
                    : Tensor::Late(tensor.dtype, shape, bytes, tensor.keep));
}

StatusOr<ValueId> GraphWriter::Dense(const std::string& name, ValueId x,
                                     int64_t outputs, int64_t inputs,
                                     bool bias) {
  ASSIGN_OR_RETURN(const ValueId weight,
                   Weight(name + ".weight", {outputs, inputs}));
  if (!bias && !tensors_.Has(name + ".bias")) return Op("Linear", {x, weight});
  ASSIGN_OR_RETURN(const ValueId added, Weight(name + ".bias", {outputs}));
  return Op("Linear", {x, weight, added});
}

StatusOr<ValueId> GraphWriter::Norm(const std::string& name, ValueId x,
                                    int64_t hidden, double epsilon, bool bias) {
  const bool old = tensors_.Has(name + ".gamma");
  ASSIGN_OR_RETURN(const ValueId scale,
                   Weight(name + (old ? ".gamma" : ".weight"), {hidden}));
  std::vector<ValueId> inputs = {x, scale};
  if (bias || tensors_.Has(name + ".bias")) {
    ASSIGN_OR_RETURN(const ValueId shift,
                     Weight(name + (old ? ".beta" : ".bias"), {hidden}));
    inputs.push_back(shift);
  }
  return Op("LayerNormalization", std::move(inputs),
            {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
}

ValueId GraphWriter::Activation(const std::string& name, ValueId x) {
  if (name == "relu") return Op("Relu", {x});
  if (name == "silu") return Op("Mul", {x, Op("Sigmoid", {x})});
  return Op(
      "Gelu", {x},
      {{"approximate", std::string(name == "gelu_tanh" ? "tanh" : "none")}});
}

ValueId GraphWriter::SplitHeads(ValueId x, int64_t heads, int64_t size) {
  return Op("Transpose", {Op("Reshape", {x, Ints({0, 0, heads, size})})},
            {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

ValueId GraphWriter::JoinHeads(ValueId x, int64_t hidden) {
  const ValueId rows =
      Op("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return Op("Reshape", {rows, Ints({0, 0, hidden})});
}

ValueId GraphWriter::Ints(const std::vector<int64_t>& values) {
  return graph_.AddConstant("shape", Tensor::Int64s(values));
}

ValueId GraphWriter::Scalar(int64_t value) {
  return graph_.AddConstant("index", Tensor::Scalar(value));
}

ValueId GraphWriter::Floats(const std::vector<int64_t>& dims,
                            const std::vector<float>& values) {
  return graph_.AddConstant(
      "table", Tensor::From<float>(DType::kF32, Shape(dims), values));
}

ValueId GraphWriter::Op(const char* name, std::vector<ValueId> inputs,
                        Attrs attrs) {
  const graph::OpDef* op = graph::FindOp(name);
  CHECK(op != nullptr, "encoders are made of known operators");
  return graph_.AddNode(
      std::string(name) + "_" + std::to_string(graph_.nodes.size()), *op,
      std::move(inputs), std::move(attrs));
}

}  // namespace millrace::models::encoder
