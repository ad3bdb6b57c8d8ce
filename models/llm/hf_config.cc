// A sliding window that is given is not always in use.
#include "models/llm/hf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/llm/families.h"
#include "models/llm/hf_experts.h"
#include "models/llm/hf_json.h"
#include "models/llm/hf_names.h"
#include "models/llm/hf_rope.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSliding = "sliding_attention";
constexpr double kMostLayers = 1024;

Status RefuseWhatIsNotServed(const Json& config,
                             std::string_view architecture) {
  const std::string wanted(HfActivationOf(architecture));
  const Json* quantized = Find(config, "quantization_config");
  const std::string method =
      quantized == nullptr ? "" : TextOf(*quantized, "quant_method");
  if (quantized != nullptr &&
      !(method == "mxfp4" && architecture == "gpt-oss")) {
    return Unimplemented("quantization_config: weights quantised by '" +
                         (method.empty() ? "?" : method) +
                         "' are not supported; take the folder in F32, F16 or "
                         "BF16, or a GGUF");
  }
  for (const auto& [key, value] :
       {std::pair("use_bidirectional_attention", true),
        std::pair("is_causal", false)}) {
    const Json* given = Find(config, key);
    if (given == nullptr || *given != value) continue;
    return Unimplemented(std::string(key) + " is " +
                         (value ? "true" : "false") +
                         ": attention to later tokens is not supported in "
                         "decoders");
  }
  for (const char* key :
       {"hidden_act", "hidden_activation", "activation_function"}) {
    const std::string act = TextOf(config, key);
    // Two names of the same function each.
    const bool same = (act == "swish" && wanted == "silu") ||
                      (act == "gelu_new" && wanted == "gelu_pytorch_tanh");
    // The recipe tells GELU from its tanh form.
    const bool gelus =
        wanted == "gelu" &&
        (act == "gelu_pytorch_tanh" || act == "gelu_new" || act == "gelu_fast");
    if (!act.empty() && act != wanted && !same && !gelus) {
      return Unimplemented(std::string(key) + " is '" + act + "'; " + wanted +
                           " is supported");
    }
  }
  return OkStatus();
}

// Fills in the window that is in use, and which layers slide where some do not;
// layers that the file does not name are as the family has them.
void ReadSlidingLayers(const Json& config, HfConfig& out) {
  const std::optional<double> window = NumberOf(config, "sliding_window");
  const std::string type = TextOf(config, "model_type");
  if (!window || type == "llama") return;
  const Json* use = Find(config, "use_sliding_window");
  const bool needs_use = type.starts_with("qwen");
  if (use != nullptr ? *use == false : needs_use) return;
  // Layers from the first windowed one on, or a list of them all.
  const auto layers = NumberOf(config, "num_hidden_layers");
  const auto first = NumberOf(config, "max_window_layers");
  std::vector<int64_t> slides;
  if (const Json* types = Find(config, "layer_types");
      types != nullptr && types->is_array()) {
    for (const Json& kind : *types) slides.push_back(kind == kSliding ? 1 : 0);
  } else if (first && layers && *layers >= 1 && *layers <= kMostLayers) {
    for (int64_t i = 0; i < static_cast<int64_t>(*layers); ++i) {
      slides.push_back(static_cast<double>(i) >= *first ? 1 : 0);
    }
  }
  const auto sliding = std::count(slides.begin(), slides.end(), 1);
  if (!slides.empty() && sliding == 0) return;
  out.values["attention.sliding_window"] =
      HfValueOf(*Find(config, "sliding_window"));
  if (slides.empty()) return;
  SourceValue flags;
  flags.type = "array of boolean";
  flags.is_array = true;
  flags.value = std::move(slides);
  out.values["attention.sliding_window_pattern"] = std::move(flags);
}

// Layers whose q and k are rotated, of a family where some are not.
void ReadRotatedLayers(const Json& config, HfConfig& out) {
  const Json* list = Find(config, "no_rope_layers");  // 1: rotated
  if (list == nullptr || !list->is_array()) return;
  SourceValue flags;
  flags.type = "array of integer";
  flags.is_array = true;
  std::vector<int64_t> values;
  for (const Json& item : *list) {
    values.push_back(item.is_number_integer() && item.get<int64_t>() == 0 ? 0
                                                                          : 1);
  }
  flags.value = std::move(values);
  out.values["rope.layers"] = std::move(flags);
}

// What a folder with an encoder of pictures says of its language model. The
// class that it names there may be any: the type tells.
Json TextConfigOf(const Json& whole) {
  Json text = whole.at("text_config");
  text.erase("architectures");
  for (const char* key : {"eos_token_id", "quantization_config"}) {
    if (Find(text, key) == nullptr && Find(whole, key) != nullptr) {
      text[key] = whole.at(key);
    }
  }
  // The outer word counts: the head is the outer class's.
  if (const Json* tied = Find(whole, "tie_word_embeddings")) {
    text["tie_word_embeddings"] = *tied;
  }
  return text;
}

// Sizes that other families call otherwise, and which layers attend in chunks.
void ReadLlama4(const Json& config, HfConfig& out) {
  if (const Json* ffn = Find(config, "intermediate_size")) {
    out.values["expert_feed_forward_length"] = HfValueOf(*ffn);
    out.values["expert_shared_feed_forward_length"] = HfValueOf(*ffn);
  }
  const Json* tuned = Find(config, "attn_temperature_tuning");
  if (tuned != nullptr && (*tuned == false || *tuned == 0)) {
    out.values["attention.temperature_scale"] = {"number", false, 0.0};
  }
  const Json* types = Find(config, "layer_types");
  if (types == nullptr || !types->is_array()) return;
  std::vector<int64_t> chunked;
  for (const Json& kind : *types) {
    chunked.push_back(kind == "chunked_attention" ? 1 : 0);
  }
  SourceValue flags;
  flags.type = "array of boolean";
  flags.is_array = true;
  flags.value = std::move(chunked);
  out.values["attention.sliding_window_pattern"] = std::move(flags);
}

}  // namespace

StatusOr<HfConfig> ReadHfConfig(const Json& whole) {
  if (!whole.is_object()) return InvalidArgument("it is no JSON object");
  HfConfig out;
  out.nested = HfNestedOf(whole);
  const Json config = out.nested == nullptr ? whole : TextConfigOf(whole);
  out.architecture = HfArchitectureOf(config);
  if (out.architecture.empty()) {
    return InvalidArgument("it has neither architectures nor model_type");
  }
  for (const HfName& key : HfKeyNames()) {
    const Json* value = Find(config, std::string(key.theirs).c_str());
    if (value != nullptr) {
      out.values[std::string(key.ours)] = HfValueOf(*value);
    }
  }
  // Of a family that is not served, what else it has would mislead.
  if (FindFamily(out.architecture) == nullptr) return out;
  RETURN_IF_ERROR(RefuseWhatIsNotServed(config, out.architecture));
  RETURN_IF_ERROR(ReadHfRope(config, out));
  ReadSlidingLayers(config, out);
  ReadRotatedLayers(config, out);
  if (out.architecture == "llama4") ReadLlama4(config, out);
  out.has_head = !IsBareHfModel(config);
  if (!out.has_head) {
    // Where nobody says otherwise: vectors of the last token.
    out.values["pooling_type"] = {"number", false, int64_t{3}};
  }
  if (const std::string act = TextOf(config, "hidden_act"); !act.empty()) {
    out.values["hidden_activation"] = {"string", false, act};
  }
  if (const Json* tied = Find(config, "tie_word_embeddings");
      tied != nullptr && tied->is_boolean()) {
    out.tied_output = tied->get<bool>();
  }
  ASSIGN_OR_RETURN(out.eos_ids, ReadHfIds(config, "eos_token_id"));
  return out;
}

StatusOr<std::vector<int64_t>> ReadHfIds(const Json& object, const char* key) {
  std::vector<int64_t> out;
  const Json* value = Find(object, key);
  if (value == nullptr) return out;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT32_MAX) {
      return InvalidArgument(std::string(key) + " holds " +
                             Shortened(DumpJson(item), 40) +
                             ", which is no token id");
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

}  // namespace millrace::models
