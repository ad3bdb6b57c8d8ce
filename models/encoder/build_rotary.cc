// Encoders whose positions are rotations (Su et al. 2021) and whose
// feed-forwards have a gate. Nomic (Nussbaum et al. 2024): post-norm layers,
// SwiGLU. ModernBERT (Warner et al. 2024): pre-norm layers without biases,
// GeGLU, and two of three layers see a window on both sides of a token.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/encoder/build.h"
#include "models/encoder/graph_writer.h"

namespace millrace::models::encoder {
namespace {

using graph::Graph;
using graph::ValueId;

struct Rotation {
  ValueId cos = graph::kNoValue;
  ValueId sin = graph::kNoValue;
};

class RotaryBuilder {
 public:
  RotaryBuilder(const EncoderConfig& config, const EncoderTensors& tensors)
      : config_(config),
        size_(config.hidden / config.heads),
        modern_(config.family == Family::kModernBert),
        w_(tensors) {
    if (modern_ && tensors.Has("model.embeddings.tok_embeddings.weight")) {
      prefix_ = "model.";
    }
  }

  StatusOr<Graph> Build() {
    RETURN_IF_ERROR(CheckRotation());
    inputs_ = w_.AddInputs(config_.max_tokens(), config_.types);
    AddPositions();
    whole_ = MakeRotation(config_.rope_base);
    local_ =
        config_.window > 0 ? MakeRotation(config_.local_rope_base) : whole_;
    ASSIGN_OR_RETURN(ValueId x, Embeddings());
    for (int64_t i = 0; i < config_.layers; ++i) {
      ASSIGN_OR_RETURN(x, modern_ ? ModernLayer(i, x) : NomicLayer(i, x));
    }
    if (modern_) {
      ASSIGN_OR_RETURN(x, Norm(prefix_ + "final_norm", x));
    }
    if (config_.head == Head::kNone) {
      w_.AddHidden(inputs_, x, config_.hidden);
    } else {
      ASSIGN_OR_RETURN(const ValueId logits, Scores(x));
      w_.AddLogits(inputs_, logits, config_.classes);
    }
    RETURN_IF_ERROR(w_.graph().Validate());
    return std::move(w_.graph());
  }

 private:
  StatusOr<ValueId> Norm(const std::string& name, ValueId x) {
    return w_.Norm(name, x, config_.hidden, config_.epsilon, !modern_);
  }

  // Positions of each text, and what a token of a windowed layer sees.
  void AddPositions() {
    std::vector<int64_t> all(static_cast<size_t>(config_.max_tokens()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    const ValueId shape = w_.Op("Shape", {inputs_.ids});
    const ValueId count =
        w_.Op("Slice", {shape, w_.Ints({1}), w_.Ints({2}), w_.Ints({0})});
    const ValueId row =
        w_.Op("Slice", {w_.Ints(all), w_.Ints({0}), count, w_.Ints({0})});
    positions_ =
        w_.Op("Expand", {w_.Op("Unsqueeze", {row, w_.Ints({0})}), shape});
    if (config_.window == 0) return;
    const ValueId from = w_.Op("Unsqueeze", {row, w_.Ints({1})});
    const ValueId distance = w_.Op("Abs", {w_.Op("Sub", {from, row})});
    const ValueId near =
        w_.Op("LessOrEqual", {distance, w_.Scalar(config_.window / 2)});
    near_ = w_.Op("And",
                  {w_.Op("Unsqueeze", {near, w_.Ints({0, 1})}), inputs_.mask});
  }

  // Before memory is taken for sizes that a file claims.
  Status CheckRotation() const {
    constexpr int64_t kMostAngles = int64_t{1} << 26;  // 256 MiB a table
    if (size_ > 0 && size_ % 2 == 0 &&
        config_.max_tokens() <= kMostAngles / (size_ / 2)) {
      return OkStatus();
    }
    return InvalidArgument(
        "heads of " + std::to_string(size_) + " values and " +
        std::to_string(config_.max_tokens()) +
        " positions cannot be rotated: the values must be even, and half of "
        "them times the positions at most " +
        std::to_string(kMostAngles));
  }

  Rotation MakeRotation(double base) {
    const int64_t half = size_ / 2;
    const int64_t length = config_.max_tokens();
    std::vector<float> cos, sin;
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        // In f32, step by step as the models' training code does.
        const float exponent =
            static_cast<float>(2 * i) / static_cast<float>(size_);
        const float frequency =
            1.0f / std::pow(static_cast<float>(base), exponent);
        const float angle = static_cast<float>(position) * frequency;
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
      }
    }
    return {w_.Floats({length, half}, cos), w_.Floats({length, half}, sin)};
  }

  StatusOr<ValueId> Embeddings() {
    const int64_t hidden = config_.hidden;
    const std::string table =
        prefix_ + (modern_ ? "embeddings.tok_embeddings.weight"
                           : "embeddings.word_embeddings.weight");
    ASSIGN_OR_RETURN(const ValueId words,
                     w_.Weight(table, {config_.vocabulary, hidden}));
    ValueId x = w_.Op("Gather", {words, inputs_.ids}, {{"axis", int64_t{0}}});
    if (!modern_) {
      ASSIGN_OR_RETURN(const ValueId types,
                       w_.Weight("embeddings.token_type_embeddings.weight",
                                 {config_.types, hidden}));
      const ValueId type = w_.Op(
          "Gather", {types, config_.types > 1 ? inputs_.types : w_.Ints({0})},
          {{"axis", int64_t{0}}});
      x = w_.Op("Add", {x, type});
    }
    return Norm(modern_ ? prefix_ + "embeddings.norm" : "emb_ln", x);
  }

  // q, k and v are the thirds of one matrix.
  StatusOr<ValueId> Attention(const std::string& fused, const std::string& out,
                              ValueId x, const Rotation& rotation,
                              ValueId mask) {
    const int64_t hidden = config_.hidden;
    ValueId parts[3];
    for (int64_t i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const ValueId weight,
                       w_.WeightRows(fused + ".weight", i * hidden, hidden,
                                     3 * hidden, hidden));
      std::vector<ValueId> operands = {x, weight};
      if (w_.tensors().Has(fused + ".bias")) {
        ASSIGN_OR_RETURN(
            const ValueId bias,
            w_.WeightRows(fused + ".bias", i * hidden, hidden, 3 * hidden, 0));
        operands.push_back(bias);
      }
      parts[i] = w_.SplitHeads(w_.Op("Linear", std::move(operands)),
                               config_.heads, size_);
      if (i == 2) continue;
      parts[i] = w_.Op("RotaryEmbedding",
                       {parts[i], rotation.cos, rotation.sin, positions_});
    }
    const ValueId mixed =
        w_.Op("Attention", {parts[0], parts[1], parts[2], mask});
    return w_.Dense(out, w_.JoinHeads(mixed, hidden), hidden, hidden, false);
  }

  StatusOr<ValueId> NomicLayer(int64_t i, ValueId x) {
    const std::string at = "encoder.layers." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(const ValueId added,
                     Attention(at + "attn.Wqkv", at + "attn.out_proj", x,
                               whole_, inputs_.mask));
    ASSIGN_OR_RETURN(const ValueId attended,
                     Norm(at + "norm1", w_.Op("Add", {added, x})));
    const int64_t inner = w_.tensors().Rows(at + "mlp.fc11.weight");
    ASSIGN_OR_RETURN(const ValueId up,
                     w_.Dense(at + "mlp.fc11", attended, inner, hidden, false));
    ASSIGN_OR_RETURN(const ValueId gate,
                     w_.Dense(at + "mlp.fc12", attended, inner, hidden, false));
    const ValueId wide =
        w_.Op("Mul", {up, w_.Activation(config_.activation, gate)});
    ASSIGN_OR_RETURN(const ValueId narrow,
                     w_.Dense(at + "mlp.fc2", wide, hidden, inner, false));
    return Norm(at + "norm2", w_.Op("Add", {narrow, attended}));
  }

  StatusOr<ValueId> ModernLayer(int64_t i, ValueId x) {
    const std::string at = prefix_ + "layers." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    const bool windowed = config_.windowed[static_cast<size_t>(i)];
    ValueId normed = x;  // the first layer's input has been normalised
    if (i > 0) {
      ASSIGN_OR_RETURN(normed, Norm(at + "attn_norm", x));
    }
    ASSIGN_OR_RETURN(
        const ValueId added,
        Attention(at + "attn.Wqkv", at + "attn.Wo", normed,
                  windowed ? local_ : whole_, windowed ? near_ : inputs_.mask));
    const ValueId attended = w_.Op("Add", {x, added});
    ASSIGN_OR_RETURN(const ValueId second, Norm(at + "mlp_norm", attended));
    const std::string wi = at + "mlp.Wi.weight";
    const int64_t both = w_.tensors().Rows(wi);
    const int64_t inner = both / 2;
    ValueId halves[2];
    for (int64_t part = 0; part < 2; ++part) {
      ASSIGN_OR_RETURN(const ValueId weight,
                       w_.WeightRows(wi, part * inner, inner, both, hidden));
      halves[part] = w_.Op("Linear", {second, weight});
    }
    const ValueId wide =
        w_.Op("Mul", {w_.Activation(config_.activation, halves[0]), halves[1]});
    ASSIGN_OR_RETURN(const ValueId narrow,
                     w_.Dense(at + "mlp.Wo", wide, hidden, inner, false));
    return w_.Op("Add", {attended, narrow});
  }

  // From the first token or the mean of all: dense, activation, norm, dense.
  StatusOr<ValueId> Scores(ValueId x) {
    const int64_t hidden = config_.hidden;
    ValueId pooled = graph::kNoValue;
    if (config_.pools_mean) {
      const ValueId mask =
          w_.Op("Cast", {w_.Op("Squeeze", {inputs_.mask, w_.Ints({1})})},
                {{"to", int64_t{1}}});  // FP32 [batch, 1, tokens]
      const ValueId sum =
          w_.Op("Squeeze", {w_.Op("MatMul", {mask, x}), w_.Ints({1})});
      const ValueId count =
          w_.Op("ReduceSum", {mask, w_.Ints({2})}, {{"keepdims", int64_t{0}}});
      pooled = w_.Op("Div", {sum, count});
    } else {
      pooled = w_.Op("Gather", {x, w_.Scalar(0)}, {{"axis", int64_t{1}}});
    }
    ASSIGN_OR_RETURN(const ValueId dense,
                     w_.Dense("head.dense", pooled, hidden, hidden, false));
    ASSIGN_OR_RETURN(
        const ValueId normed,
        Norm("head.norm", w_.Activation(config_.activation, dense)));
    return w_.Dense("classifier", normed, config_.classes, hidden);
  }

  const EncoderConfig& config_;
  const int64_t size_;  // of a head
  const bool modern_;
  GraphWriter w_;
  GraphWriter::Inputs inputs_;
  std::string prefix_;
  ValueId positions_ = graph::kNoValue;
  ValueId near_ = graph::kNoValue;
  Rotation whole_, local_;
};

}  // namespace

StatusOr<Graph> BuildRotary(const EncoderConfig& config,
                            const EncoderTensors& tensors) {
  return RotaryBuilder(config, tensors).Build();
}

}  // namespace millrace::models::encoder
