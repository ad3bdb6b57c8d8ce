#include "models/encoder/encoder_config.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/utf8.h"

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
    {"NomicBertModel", Family::kNomic, Head::kNone},
    {"ModernBertModel", Family::kModernBert, Head::kNone},
    {"ModernBertForMaskedLM", Family::kModernBert, Head::kNone},
    {"ModernBertForSequenceClassification", Family::kModernBert,
     Head::kClassify},
};

// How transformers' names of other encoders begin, and of those above with
// other heads.
constexpr std::string_view kFamilies[] = {
    "Albert",     "Bert",        "BigBird",    "Camembert",  "Deberta",
    "DistilBert", "Electra",     "ErnieFor",   "ErnieModel", "EuroBert",
    "Flaubert",   "Funnel",      "JinaBert",   "LayoutLM",   "Longformer",
    "MPNet",      "MobileBert",  "ModernBert", "NomicBert",  "RoFormer",
    "Roberta",    "SqueezeBert", "XLMRoberta",
};

// As transformers names them, and what they are here.
constexpr std::pair<std::string_view, std::string_view> kActivations[] = {
    {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"relu", "relu"},
    {"silu", "silu"},
};

std::string KnownNames() {
  std::string names;
  for (const Known& known : kKnown) {
    names += (names.empty() ? "" : ", ") + std::string(known.architecture);
  }
  return names;
}

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
        (it == config.end() ? "missing" : Shortened(DumpJson(*it), 40)) +
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

bool IsEncoderArchitecture(std::string_view architecture) {
  // Decoders of these families.
  for (const std::string_view end :
       {"ForCausalLM", "LMHeadModel", "GenerationDecoder"}) {
    if (architecture.ends_with(end)) return false;
  }
  return architecture.ends_with("EncoderModel") ||
         architecture.ends_with("ForMaskedLM") ||
         std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [&](std::string_view family) {
                       return architecture.starts_with(family);
                     });
}

namespace {

// The first of some keys that is there.
const char* FirstOf(const Json& config,
                    std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.contains(key) && !config[key].is_null()) return key;
  }
  return *keys.begin();
}

double RealOr(const Json& object, const char* key, double otherwise) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

Status IsFalse(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.value(key, Json()) == true) {
      return Unimplemented(std::string(key) +
                           " is true, which is not "
                           "supported");
    }
  }
  return OkStatus();
}

// Nomic's own keys, or those of transformers.
Status ReadNomic(const Json& config, EncoderConfig& out) {
  RETURN_IF_ERROR(IsFalse(config, {"prenorm", "use_rms_norm", "parallel_block",
                                   "rotary_emb_interleaved"}));
  const double fraction = RealOr(config, "rotary_emb_fraction", 1);
  if (fraction != 1) {
    return Unimplemented("rotary_emb_fraction is " + std::to_string(fraction) +
                         "; 1 is supported");
  }
  if (RealOr(config, "rotary_scaling_factor", 1) != 1) {
    return Unimplemented(
        "rotary_scaling_factor is set, which is not "
        "supported; texts up to max_trained_positions need "
        "none");
  }
  const Json rope = config.value("rope_parameters", Json());
  out.rope_base =
      RealOr(config, "rotary_emb_base",
             RealOr(config, "rope_theta", RealOr(rope, "rope_theta", 10000)));
  out.epsilon = RealOr(config, "layer_norm_epsilon", out.epsilon);
  const std::string activation = TextOf(
      config, FirstOf(config, {"activation_function", "hidden_act"}), "swiglu");
  if (activation != "swiglu" && activation != "silu") {
    return Unimplemented("activation_function is '" +
                         Shortened(activation, 60) + "'; swiglu is supported");
  }
  out.activation = "silu";
  return OkStatus();
}

Status ReadModern(const Json& config, EncoderConfig& out) {
  RETURN_IF_ERROR(IsFalse(config, {"norm_bias"}));
  out.epsilon = RealOr(config, "norm_eps", 1e-5);
  Json ropes = config.value("rope_parameters", Json::object());
  if (!ropes.is_object()) ropes = Json::object();
  const Json whole = ropes.value("full_attention", Json());
  const Json local = ropes.value("sliding_attention", Json());
  for (const Json& rope : {whole, local}) {
    const Json type =
        rope.is_object() ? rope.value("rope_type", Json()) : Json();
    if (type.is_null() || type == "default") continue;
    return Unimplemented("rope_parameters are of type " +
                         Shortened(DumpJson(type), 60) +
                         "; default is supported");
  }
  out.rope_base =
      RealOr(config, "global_rope_theta", RealOr(whole, "rope_theta", 160000));
  out.local_rope_base =
      RealOr(config, "local_rope_theta", RealOr(local, "rope_theta", 10000));
  ASSIGN_OR_RETURN(out.window, Number(config, "local_attention", 1 << 20, 128));
  ASSIGN_OR_RETURN(const int64_t every,
                   Number(config, "global_attn_every_n_layers", 1024, 3));
  const Json types = config.value("layer_types", Json());
  if (types.is_array() && static_cast<int64_t>(types.size()) != out.layers) {
    return InvalidArgument("layer_types names " + std::to_string(types.size()) +
                           " layers of " + std::to_string(out.layers));
  }
  for (int64_t i = 0; i < out.layers; ++i) {
    out.windowed.push_back(types.is_array() ? types[static_cast<size_t>(i)] ==
                                                  "sliding_attention"
                                            : i % every != 0);
  }
  const std::string pooling = TextOf(config, "classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean") {
    return Unimplemented("classifier_pooling is '" + Shortened(pooling, 60) +
                         "'; cls and mean are supported");
  }
  out.pools_mean = pooling == "mean";
  return OkStatus();
}

Status CheckSizes(const EncoderConfig& config) {
  const int64_t size = config.hidden / config.heads;
  const bool rotates =
      config.family == Family::kNomic || config.family == Family::kModernBert;
  if (config.hidden % config.heads != 0 || (rotates && size % 2 != 0)) {
    return InvalidArgument("hidden_size is " + std::to_string(config.hidden) +
                           ", which num_attention_heads, " +
                           std::to_string(config.heads) + ", does not divide" +
                           (rotates ? " into even heads" : ""));
  }
  if (rotates && (!(config.rope_base > 1) || !(config.local_rope_base > 1))) {
    return InvalidArgument("the base of rotations must be above 1");
  }
  return OkStatus();
}

}  // namespace

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
    return Unimplemented("the encoder '" + Shortened(out.architecture, 60) +
                         "' is not served; these are: " + KnownNames() +
                         "; others as an export to ONNX or .pt2");
  }
  out.family = known->family;
  out.head = known->head;
  ASSIGN_OR_RETURN(
      out.hidden,
      Number(config, FirstOf(config, {"hidden_size", "n_embd"}), 1 << 16));
  ASSIGN_OR_RETURN(
      out.layers,
      Number(config, FirstOf(config, {"num_hidden_layers", "n_layer"}), 1024));
  ASSIGN_OR_RETURN(
      out.heads,
      Number(config, FirstOf(config, {"num_attention_heads", "n_head"}),
             1 << 12));
  ASSIGN_OR_RETURN(out.vocabulary, Number(config, "vocab_size", 1 << 22));
  ASSIGN_OR_RETURN(
      out.positions,
      Number(config,
             FirstOf(config, {"max_trained_positions",
                              "max_position_embeddings", "n_positions"}),
             1 << 20));
  ASSIGN_OR_RETURN(out.types, Number(config, "type_vocab_size", 1 << 10, 1));
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
  if (out.family == Family::kNomic) {
    RETURN_IF_ERROR(ReadNomic(config, out));
    RETURN_IF_ERROR(CheckSizes(out));
    return out;
  }
  if (out.family == Family::kModernBert)
    RETURN_IF_ERROR(ReadModern(config, out));
  RETURN_IF_ERROR(CheckSizes(out));
  const std::string activation = TextOf(
      config, FirstOf(config, {"hidden_act", "hidden_activation"}), "gelu");
  out.activation.clear();
  for (const auto& [theirs, ours] : kActivations) {
    if (theirs == activation) out.activation = ours;
  }
  if (out.activation.empty()) {
    return Unimplemented("hidden_act is '" + Shortened(activation, 60) +
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
