#include "models/llm/lora_config.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/llm/hf_json.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = 1 << 20;

Status Refused(const char* key, const Json& value, const char* instead) {
  return Unimplemented(std::string(key) + " is " +
                       Shortened(DumpJson(value), 80) +
                       " in adapter_config.json; " + instead);
}

// Null, false, and empty lists and objects ask for nothing.
bool Asks(const Json* value) {
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  return !value->is_structured() || !value->empty();
}

bool IsF32(double x) {
  return std::abs(x) <= double{std::numeric_limits<float>::max()};
}

// What changes the meaning of the tensors.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"use_dora", "DoRA is not served; merge the adapter into the model"},
    {"lora_bias", "adapters without biases are served; merge the adapter"},
    {"rank_pattern", "one rank for all matrices is served"},
    {"alpha_pattern", "one alpha for all matrices is served"},
    {"modules_to_save",
     "matrices that are replaced as a whole are not served; merge the adapter"},
    {"trainable_token_indices",
     "tokens that are replaced are not served; merge the adapter"},
    {"layer_replication", "layers as the base model has them are served"},
    {"use_qalora", "QALoRA is not served; merge the adapter into the model"},
    {"target_parameters",
     "adapters of single parameters are not served; merge the adapter"},
    {"alora_invocation_tokens", "activated LoRA is not served"},
    {"megatron_config", "adapters for plain transformers are served"},
};

}  // namespace

StatusOr<LoraScale> ParsePeftConfig(std::string_view text) {
  const StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok() || !parsed->is_object()) {
    return InvalidArgument("adapter_config.json is no JSON object");
  }
  const Json& config = *parsed;
  if (TextOf(config, "peft_type") != "LORA") {
    const Json* type = Find(config, "peft_type");
    return Unimplemented("peft_type is " +
                         (type == nullptr ? std::string("absent")
                                          : Shortened(DumpJson(*type), 80)) +
                         " in adapter_config.json; \"LORA\" is served");
  }
  for (const auto& [key, instead] : kRefused) {
    const Json* value = Find(config, key);
    if (Asks(value)) return Refused(key, *value, instead);
  }
  const Json* bias = Find(config, "bias");
  if (bias != nullptr && *bias != "none") {
    return Refused("bias", *bias, "adapters without biases are served");
  }
  if (const Json* start = Find(config, "init_lora_weights");
      start != nullptr && start->is_string()) {
    // PEFT takes the adapter's first state off the base's weights for these.
    const std::string name = start->get<std::string>();
    for (const char* changes : {"pissa", "olora", "corda", "loftq"}) {
      if (!name.starts_with(changes)) continue;
      return Refused("init_lora_weights", *start,
                     "it changes the base's weights; save the adapter as plain "
                     "LoRA (path_initial_model_for_weight_conversion)");
    }
  }
  LoraScale scale;
  const Json* rank = Find(config, "r");
  if (rank == nullptr || !rank->is_number_integer() || *rank < 1 ||
      *rank > kMaxLoraRank) {
    return InvalidArgument("r is " +
                           (rank == nullptr ? std::string("absent")
                                            : Shortened(DumpJson(*rank), 80)) +
                           " in adapter_config.json; a rank from 1 to " +
                           std::to_string(kMaxLoraRank) + " is served");
  }
  scale.rank = rank->get<int64_t>();
  const std::optional<double> alpha = NumberOf(config, "lora_alpha");
  if (!alpha || !IsF32(*alpha) || *alpha == 0) {
    return InvalidArgument(
        "adapter_config.json has no lora_alpha other than 0 that is an f32; it "
        "scales the adapter");
  }
  scale.alpha = *alpha;
  const Json* root = Find(config, "use_rslora");
  scale.root = root != nullptr && *root == true;
  return scale;
}

StatusOr<LoraScale> ReadPeftConfig(const std::string& folder) {
  const auto path = std::filesystem::path(folder) / "adapter_config.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return NotFound(
        "the folder has no adapter_config.json, which PEFT writes "
        "beside adapter_model.safetensors");
  }
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return InvalidArgument("adapter_config.json has more than " +
                           std::to_string(kMaxConfigBytes) + " bytes");
  }
  return ParsePeftConfig(text);
}

StatusOr<LoraScale> ReadGgufScale(const GgufFile& file, const LoraBase& base) {
  ASSIGN_OR_RETURN(const std::string_view type,
                   file.String("general.type", "model"));
  if (type != "adapter") {
    return InvalidArgument("the file is a '" + std::string(type) +
                           "', not an adapter (general.type)");
  }
  ASSIGN_OR_RETURN(const std::string_view kind,
                   file.String("adapter.type", "lora"));
  if (kind != "lora") {
    return Unimplemented("the adapter is of type '" + std::string(kind) +
                         "' (adapter.type); 'lora' is served");
  }
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture"));
  if (architecture != base.config.architecture) {
    return InvalidArgument(
        "the adapter is for the family '" + std::string(architecture) +
        "' but the base model is of '" + base.config.architecture + "'");
  }
  if (base.as_trained) {
    return Unimplemented(
        "adapters in GGUF are made for base models in GGUF; for a base model "
        "in a folder give the adapter's own folder "
        "(adapter_model.safetensors)");
  }
  LoraScale scale;
  ASSIGN_OR_RETURN(scale.alpha, file.Float("adapter.lora.alpha", 0));
  if (!IsF32(scale.alpha)) {
    return InvalidArgument("adapter.lora.alpha is no f32 number");
  }
  return scale;
}

}  // namespace millrace::models
