// Post-norm layers, as in Devlin et al. 2018 and Liu et al. 2019 (RoBERTa). A
// tensor may have its family's prefix ("bert.") or none, and LayerNorm's
// parameters may have their old names (gamma, beta).
#include "models/encoder/build.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"

namespace millrace::models::encoder {
namespace {

using graph::Attrs;
using graph::Graph;
using graph::ValueId;

StatusOr<DType> DTypeOf(const SafetensorsTensor& tensor) {
  if (tensor.dtype == "F32") return DType::kF32;
  if (tensor.dtype == "F16") return DType::kF16;
  if (tensor.dtype == "BF16") return DType::kBF16;
  return Unimplemented("tensor '" + tensor.name + "' has the type " +
                       std::string(tensor.dtype) +
                       "; F32, F16 and BF16 are supported");
}

class Builder {
 public:
  Builder(const EncoderConfig& config,
          std::shared_ptr<const SafetensorsFile> file)
      : config_(config), file_(std::move(file)) {
    const std::string prefix =
        config.family == Family::kBert ? "bert." : "roberta.";
    if (file_->FindTensor(prefix + "embeddings.word_embeddings.weight")) {
      prefix_ = prefix;
    }
  }

  StatusOr<Graph> Build() {
    const graph::PortDim batch = {.symbol = graph_.AddSymbol("batch_size")};
    const int32_t tokens = graph_.AddSymbol("sequence_length");
    graph_.symbols[static_cast<size_t>(tokens)].max = config_.max_tokens();
    const graph::PortDim length = {.symbol = tokens};
    ids_ = graph_.AddInput("input_ids", DType::kI64, {batch, length});
    const ValueId mask =
        graph_.AddInput("attention_mask", DType::kI64, {batch, length});
    if (config_.types > 1) {
      types_ = graph_.AddInput("token_type_ids", DType::kI64, {batch, length});
    }
    const ValueId seen =
        Op("Cast", {mask}, {{"to", int64_t{graph::OnnxNumber(DType::kBool)}}});
    mask_ = Op("Unsqueeze", {seen, Ints({1, 2})});
    ASSIGN_OR_RETURN(ValueId x, Embeddings());
    for (int64_t i = 0; i < config_.layers; ++i) {
      ASSIGN_OR_RETURN(x, Layer(i, x));
    }
    if (config_.head == Head::kNone) {
      graph_.AddOutput("last_hidden_state", x);
      graph_.outputs.back().dims = {batch, length, {.size = config_.hidden}};
    } else {
      ASSIGN_OR_RETURN(const ValueId logits, Scores(x));
      graph_.AddOutput("logits", logits);
      const ValueId bias = graph_.nodes.back().inputs.back();
      graph_.outputs.back().dims = {
          batch, {.size = graph_.value(bias).constant->num_elements()}};
    }
    RETURN_IF_ERROR(graph_.Validate());
    return std::move(graph_);
  }

 private:
  StatusOr<ValueId> Embeddings() {
    const std::string at = prefix_ + "embeddings.";
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(const ValueId words, Weight(at + "word_embeddings.weight",
                                                 {config_.vocabulary, hidden}));
    ASSIGN_OR_RETURN(
        const ValueId positions,
        Weight(at + "position_embeddings.weight", {config_.positions, hidden}));
    ASSIGN_OR_RETURN(
        const ValueId types,
        Weight(at + "token_type_embeddings.weight", {config_.types, hidden}));
    const ValueId word = Op("Gather", {words, ids_}, {{"axis", int64_t{0}}});
    // Rows of the positions that the text has.
    const ValueId first = Ints({config_.first_position});
    const ValueId count =
        Op("Slice", {Op("Shape", {ids_}), Ints({1}), Ints({2}), Ints({0})});
    const ValueId position =
        Op("Slice", {positions, first, Op("Add", {count, first}), Ints({0})});
    const ValueId type =
        Op("Gather", {types, config_.types > 1 ? types_ : Ints({0})},
           {{"axis", int64_t{0}}});
    const ValueId sum = Op("Add", {Op("Add", {word, type}), position});
    return Norm(at + "LayerNorm", sum);
  }

  StatusOr<ValueId> Layer(int64_t i, ValueId x) {
    const std::string at = prefix_ + "encoder.layer." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(const ValueId q, Heads(at + "attention.self.query", x));
    ASSIGN_OR_RETURN(const ValueId k, Heads(at + "attention.self.key", x));
    ASSIGN_OR_RETURN(const ValueId v, Heads(at + "attention.self.value", x));
    const ValueId mixed = Op("Attention", {q, k, v, mask_});
    const ValueId joined =
        Op("Reshape", {Swapped(mixed), Ints({0, 0, hidden})});
    ASSIGN_OR_RETURN(
        const ValueId projected,
        Dense(at + "attention.output.dense", joined, hidden, hidden));
    ASSIGN_OR_RETURN(
        const ValueId attended,
        Norm(at + "attention.output.LayerNorm", Op("Add", {projected, x})));
    const std::string up = at + "intermediate.dense";
    const int64_t inner = OutputsOf(up + ".weight");
    ASSIGN_OR_RETURN(const ValueId wide, Dense(up, attended, inner, hidden));
    ASSIGN_OR_RETURN(
        const ValueId narrow,
        Dense(at + "output.dense", Activation(wide), hidden, inner));
    return Norm(at + "output.LayerNorm", Op("Add", {narrow, attended}));
  }

  // From the first token: dense, tanh, dense.
  StatusOr<ValueId> Scores(ValueId x) {
    const int64_t hidden = config_.hidden;
    const ValueId first = Op("Gather", {x, Scalar(0)}, {{"axis", int64_t{1}}});
    const bool bert = config_.family == Family::kBert;
    ASSIGN_OR_RETURN(const ValueId pooled,
                     Dense(bert ? prefix_ + "pooler.dense" : "classifier.dense",
                           first, hidden, hidden));
    const std::string last = bert ? "classifier" : "classifier.out_proj";
    return Dense(last, Op("Tanh", {pooled}), OutputsOf(last + ".weight"),
                 hidden);
  }

  ValueId Activation(ValueId x) {
    if (config_.activation == "relu") return Op("Relu", {x});
    if (config_.activation == "silu") {
      return Op("Mul", {x, Op("Sigmoid", {x})});
    }
    const bool tanh = config_.activation == "gelu_tanh";
    return Op("Gelu", {x},
              {{"approximate", std::string(tanh ? "tanh" : "none")}});
  }

  // [batch, tokens, heads * size] → [batch, heads, tokens, size]
  StatusOr<ValueId> Heads(const std::string& name, ValueId x) {
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(const ValueId y, Dense(name, x, hidden, hidden));
    return Swapped(Op(
        "Reshape", {y, Ints({0, 0, config_.heads, hidden / config_.heads})}));
  }
  ValueId Swapped(ValueId x) {
    return Op("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }

  StatusOr<ValueId> Dense(const std::string& name, ValueId x, int64_t outputs,
                          int64_t inputs) {
    ASSIGN_OR_RETURN(const ValueId weight,
                     Weight(name + ".weight", {outputs, inputs}));
    ASSIGN_OR_RETURN(const ValueId bias, Weight(name + ".bias", {outputs}));
    return Op("Linear", {x, weight, bias});
  }

  StatusOr<ValueId> Norm(const std::string& name, ValueId x) {
    const bool old = file_->FindTensor(name + ".gamma") != nullptr;
    ASSIGN_OR_RETURN(
        const ValueId scale,
        Weight(name + (old ? ".gamma" : ".weight"), {config_.hidden}));
    ASSIGN_OR_RETURN(
        const ValueId bias,
        Weight(name + (old ? ".beta" : ".bias"), {config_.hidden}));
    return Op("LayerNormalization", {x, scale, bias},
              {{"axis", int64_t{-1}}, {"epsilon", config_.epsilon}});
  }

  // Rows of a matrix; 0 where it is missing, which Weight then tells.
  int64_t OutputsOf(const std::string& name) const {
    const SafetensorsTensor* tensor = file_->FindTensor(name);
    return tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape[0];
  }

  StatusOr<ValueId> Weight(const std::string& name,
                           const std::vector<int64_t>& dims) {
    const SafetensorsTensor* tensor = file_->FindTensor(name);
    if (tensor == nullptr) {
      return InvalidArgument("the tensor '" + name + "' is missing");
    }
    ASSIGN_OR_RETURN(const DType dtype, DTypeOf(*tensor));
    ASSIGN_OR_RETURN(const Shape wanted, Shape::Checked(dims));
    if (tensor->shape != dims) {
      ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(tensor->shape));
      return InvalidArgument("the tensor '" + name + "' has the shape " +
                             shape.ToString() + "; config.json says " +
                             wanted.ToString());
    }
    const bool aligned = reinterpret_cast<uintptr_t>(tensor->data.data()) %
                             static_cast<uintptr_t>(DTypeBytes(dtype)) ==
                         0;
    return graph_.AddConstant(
        name, aligned
                  ? Tensor::Borrow(dtype, wanted, tensor->data.data(), file_)
                  : Tensor::Late(dtype, wanted, tensor->data.data(), file_));
  }

  ValueId Ints(const std::vector<int64_t>& values) {
    return graph_.AddConstant("shape", Tensor::Int64s(values));
  }
  ValueId Scalar(int64_t value) {
    return graph_.AddConstant("index", Tensor::Scalar(value));
  }
  ValueId Op(const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    const graph::OpDef* op = graph::FindOp(name);
    CHECK(op != nullptr, "encoders are made of known operators");
    return graph_.AddNode(
        std::string(name) + "_" + std::to_string(graph_.nodes.size()), *op,
        std::move(inputs), std::move(attrs));
  }

  const EncoderConfig& config_;
  const std::shared_ptr<const SafetensorsFile> file_;
  std::string prefix_;
  Graph graph_;
  ValueId ids_ = graph::kNoValue;
  ValueId types_ = graph::kNoValue;
  ValueId mask_ = graph::kNoValue;
};

}  // namespace

StatusOr<Graph> BuildEncoder(
    const EncoderConfig& config,
    const std::shared_ptr<const SafetensorsFile>& file) {
  return Builder(config, file).Build();
}

}  // namespace millrace::models::encoder
