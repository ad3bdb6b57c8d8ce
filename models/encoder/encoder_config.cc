#include "models/encoder/encoder_config.h"

#include <nlohmann/json.hpp>

#include "config/base/json.h"

namespace millrace::models::encoder {
namespace {

using Json = nlohmann::ordered_json;

struct Known {
  std::string_view architecture;
  Family family;
  Head head;
};
constexpr Known kKnown[] = {
    {"BertModel", Family::kBert, Head::kNone},
    {"BertForMaskedLM", Family::kBert, Head::kNone},
    {"BertForSequenceClassification", Family::kBert, Head::kClassify},
    {"RobertaModel", Family::kRoberta, Head::kNone},
    {"RobertaForMaskedLM", Family::kRoberta, Head::kNone},
    {"RobertaForSequenceClassification", Family::kRoberta, Head::kClassify},
    {"XLMRobertaModel", Family::kRoberta, Head::kNone},
    {"XLMRobertaForMaskedLM", Family::kRoberta, Head::kNone},
    {"XLMRobertaForSequenceClassification", Family::kRoberta, Head::kClassify},
    {"CamembertModel", Family::kRoberta, Head::kNone},
};

// As transformers names them, and what they are here.
constexpr std::pair<std::string_view, std::string_view> kActivations[] = {
    {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"relu", "relu"},
    {"silu", "silu"},
};

const Known* Find(std::string_view architecture) {
  for (const Known& known : kKnown) {
    if (known.architecture == architecture) return &known;
  }
  return nullptr;
}

StatusOr<int64_t> Number(const Json& config, const char* key, int64_t most,
                         int64_t otherwise = -1) {
  const auto it = config.find(key);
  if ((it == config.end() || it->is_null()) && otherwise >= 0) {
    return otherwise;
  }
  if (it == config.end() || !it->is_number_integer() ||
      it->get<int64_t>() < 1 || it->get<int64_t>() > most) {
    return InvalidArgument(
        std::string(key) + " is " +
        (it == config.end() ? "missing" : DumpJson(*it).substr(0, 40)) +
        " but must be a whole number between 1 and " + std::to_string(most));
  }
  return it->get<int64_t>();
}

std::string TextOf(const Json& config, const char* key, const char* otherwise) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>()
                                               : otherwise;
}

}  // namespace

bool IsKnownArchitecture(std::string_view architecture) {
  return Find(architecture) != nullptr;
}

StatusOr<EncoderConfig> ReadEncoderConfig(std::string_view config_json) {
  ASSIGN_OR_RETURN(const Json config, ParseJson(config_json));
  EncoderConfig out;
  const auto names =
      config.is_object() ? config.find("architectures") : config.end();
  if (!config.is_object() || names == config.end() || !names->is_array() ||
      names->empty() || !names->front().is_string()) {
    return InvalidArgument("config.json names no architecture");
  }
  out.architecture = names->front().get<std::string>();
  const Known* known = Find(out.architecture);
  if (known == nullptr) {
    return Unimplemented("the architecture '" + out.architecture.substr(0, 60) +
                         "' is no encoder that is known; BertModel, "
                         "RobertaModel and their ForSequenceClassification "
                         "are");
  }
  out.family = known->family;
  out.head = known->head;
  ASSIGN_OR_RETURN(out.hidden, Number(config, "hidden_size", 1 << 16));
  ASSIGN_OR_RETURN(out.layers, Number(config, "num_hidden_layers", 1024));
  ASSIGN_OR_RETURN(out.heads, Number(config, "num_attention_heads", 1 << 12));
  ASSIGN_OR_RETURN(out.vocabulary, Number(config, "vocab_size", 1 << 22));
  ASSIGN_OR_RETURN(out.positions,
                   Number(config, "max_position_embeddings", 1 << 20));
  ASSIGN_OR_RETURN(out.types, Number(config, "type_vocab_size", 1 << 10, 1));
  if (out.hidden % out.heads != 0) {
    return InvalidArgument("hidden_size is " + std::to_string(out.hidden) +
                           ", which num_attention_heads, " +
                           std::to_string(out.heads) + ", does not divide");
  }
  if (out.family == Family::kRoberta) {
    const auto pad = config.find("pad_token_id");
    const int64_t id = pad != config.end() && pad->is_number_integer()
                           ? pad->get<int64_t>()
                           : 1;
    if (id < 0 || id + 1 >= out.positions) {
      return InvalidArgument("pad_token_id is " + std::to_string(id) +
                             " but positions, which begin behind it, end at " +
                             std::to_string(out.positions));
    }
    out.first_position = id + 1;
  }
  const auto epsilon = config.find("layer_norm_eps");
  if (epsilon != config.end() && epsilon->is_number()) {
    out.epsilon = epsilon->get<double>();
  }
  const std::string activation = TextOf(config, "hidden_act", "gelu");
  out.activation.clear();
  for (const auto& [theirs, ours] : kActivations) {
    if (theirs == activation) out.activation = ours;
  }
  if (out.activation.empty()) {
    return Unimplemented("hidden_act is '" + activation.substr(0, 60) +
                         "'; gelu, gelu_new, relu and silu are supported");
  }
  if (TextOf(config, "position_embedding_type", "absolute") != "absolute") {
    return Unimplemented(
        "position_embedding_type is not 'absolute', which is supported");
  }
  if (config.value("is_decoder", Json()) == true) {
    return Unimplemented("is_decoder is true: this is no encoder");
  }
  return out;
}

}  // namespace millrace::models::encoder
