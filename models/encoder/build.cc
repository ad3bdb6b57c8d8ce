// Post-norm layers, as in Devlin et al. 2018 and Liu et al. 2019 (RoBERTa). A
// tensor may have its family's prefix ("bert.") or none.
#include "models/encoder/build.h"

#include <cstdint>
#include <string>
#include <utility>

#include "models/encoder/graph_writer.h"

namespace millrace::models::encoder {
namespace {

using graph::Graph;
using graph::ValueId;

class BertBuilder {
 public:
  BertBuilder(const EncoderConfig& config, const EncoderTensors& tensors)
      : config_(config), w_(tensors) {
    const std::string prefix =
        config.family == Family::kBert ? "bert." : "roberta.";
    if (tensors.Has(prefix + "embeddings.word_embeddings.weight")) {
      prefix_ = prefix;
    }
  }

  StatusOr<Graph> Build() {
    inputs_ = w_.AddInputs(config_.max_tokens(), config_.types);
    ASSIGN_OR_RETURN(ValueId x, Embeddings());
    for (int64_t i = 0; i < config_.layers; ++i) {
      ASSIGN_OR_RETURN(x, Layer(i, x));
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
  StatusOr<ValueId> Embeddings() {
    const std::string at = prefix_ + "embeddings.";
    const int64_t hidden = config_.hidden;
    ASSIGN_OR_RETURN(
        const ValueId words,
        w_.Weight(at + "word_embeddings.weight", {config_.vocabulary, hidden}));
    ASSIGN_OR_RETURN(const ValueId positions,
                     w_.Weight(at + "position_embeddings.weight",
                               {config_.positions, hidden}));
    ASSIGN_OR_RETURN(const ValueId types,
                     w_.Weight(at + "token_type_embeddings.weight",
                               {config_.types, hidden}));
    const ValueId word =
        w_.Op("Gather", {words, inputs_.ids}, {{"axis", int64_t{0}}});
    // Rows of the positions that the text has.
    const ValueId first = w_.Ints({config_.first_position});
    const ValueId count =
        w_.Op("Slice", {w_.Op("Shape", {inputs_.ids}), w_.Ints({1}),
                        w_.Ints({2}), w_.Ints({0})});
    const ValueId position =
        w_.Op("Slice",
              {positions, first, w_.Op("Add", {count, first}), w_.Ints({0})});
    const ValueId type = w_.Op(
        "Gather", {types, config_.types > 1 ? inputs_.types : w_.Ints({0})},
        {{"axis", int64_t{0}}});
    const ValueId sum = w_.Op("Add", {w_.Op("Add", {word, type}), position});
    return w_.Norm(at + "LayerNorm", sum, hidden, config_.epsilon);
  }

  StatusOr<ValueId> Layer(int64_t i, ValueId x) {
    const std::string at = prefix_ + "encoder.layer." + std::to_string(i) + ".";
    const int64_t hidden = config_.hidden;
    const auto heads = [&](const std::string& name) -> StatusOr<ValueId> {
      ASSIGN_OR_RETURN(const ValueId y, w_.Dense(name, x, hidden, hidden));
      return w_.SplitHeads(y, config_.heads, hidden / config_.heads);
    };
    ASSIGN_OR_RETURN(const ValueId q, heads(at + "attention.self.query"));
    ASSIGN_OR_RETURN(const ValueId k, heads(at + "attention.self.key"));
    ASSIGN_OR_RETURN(const ValueId v, heads(at + "attention.self.value"));
    const ValueId mixed = w_.Op("Attention", {q, k, v, inputs_.mask});
    ASSIGN_OR_RETURN(const ValueId projected,
                     w_.Dense(at + "attention.output.dense",
                              w_.JoinHeads(mixed, hidden), hidden, hidden));
    ASSIGN_OR_RETURN(
        const ValueId attended,
        w_.Norm(at + "attention.output.LayerNorm", w_.Op("Add", {projected, x}),
                hidden, config_.epsilon));
    const std::string up = at + "intermediate.dense";
    const int64_t inner = w_.tensors().Rows(up + ".weight");
    ASSIGN_OR_RETURN(const ValueId wide, w_.Dense(up, attended, inner, hidden));
    ASSIGN_OR_RETURN(
        const ValueId narrow,
        w_.Dense(at + "output.dense", w_.Activation(config_.activation, wide),
                 hidden, inner));
    return w_.Norm(at + "output.LayerNorm", w_.Op("Add", {narrow, attended}),
                   hidden, config_.epsilon);
  }

  // From the first token: dense, tanh, dense.
  StatusOr<ValueId> Scores(ValueId x) {
    const int64_t hidden = config_.hidden;
    const ValueId first =
        w_.Op("Gather", {x, w_.Scalar(0)}, {{"axis", int64_t{1}}});
    const bool bert = config_.family == Family::kBert;
    ASSIGN_OR_RETURN(
        const ValueId pooled,
        w_.Dense(bert ? prefix_ + "pooler.dense" : "classifier.dense", first,
                 hidden, hidden));
    return w_.Dense(bert ? "classifier" : "classifier.out_proj",
                    w_.Op("Tanh", {pooled}), config_.classes, hidden);
  }

  const EncoderConfig& config_;
  GraphWriter w_;
  GraphWriter::Inputs inputs_;
  std::string prefix_;
};

}  // namespace

StatusOr<Graph> BuildBert(const EncoderConfig& config,
                          const EncoderTensors& tensors) {
  return BertBuilder(config, tensors).Build();
}

StatusOr<Graph> BuildEncoder(const EncoderConfig& config,
                             const EncoderTensors& tensors) {
  const bool rotates =
      config.family == Family::kNomic || config.family == Family::kModernBert;
  return rotates ? BuildRotary(config, tensors) : BuildBert(config, tensors);
}

}  // namespace millrace::models::encoder
