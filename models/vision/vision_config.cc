#include "models/vision/vision_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::models::vision {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kClasses[] = {"Idefics3ForConditionalGeneration",
                                         "SmolVLMForConditionalGeneration"};
// The reference makes no image larger before it is split.
constexpr int64_t kMostEdge = 4096;
constexpr int64_t kMostTilesASide = 16;

struct Activation {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Activation kActivations[] = {{"gelu_pytorch_tanh", "gelu_tanh"},
                                       {"gelu_new", "gelu_tanh"},
                                       {"gelu", "gelu"},
                                       {"silu", "silu"},
                                       {"relu", "relu"}};

// Null: absent.
const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<int64_t> Int(const Json& object, const std::string& where,
                      const char* key, int64_t least, int64_t most,
                      int64_t otherwise = -1) {
  const Json* value = Find(object, key);
  if (value == nullptr && otherwise >= 0) return otherwise;
  const bool fits = value != nullptr && value->is_number_unsigned() &&
                    value->get<uint64_t>() >= static_cast<uint64_t>(least) &&
                    value->get<uint64_t>() <= static_cast<uint64_t>(most);
  if (!fits) {
    return InvalidArgument(
        where + key + " is " +
        (value == nullptr ? "missing" : Shortened(DumpJson(*value), 40)) +
        " but must be a number from " + std::to_string(least) + " to " +
        std::to_string(most));
  }
  return value->get<int64_t>();
}

StatusOr<double> Real(const Json& object, const std::string& where,
                      const char* key, double otherwise) {
  const Json* value = Find(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return InvalidArgument(where + key + " is " +
                           Shortened(DumpJson(*value), 40) +
                           " but must be a number");
  }
  return value->get<double>();
}

bool IsFalse(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && *value == false;
}

StatusOr<std::array<double, 3>> Channels(const Json& object, const char* key,
                                         double otherwise) {
  std::array<double, 3> out;
  out.fill(otherwise);
  const Json* list = Find(object, key);
  if (list == nullptr) return out;
  const bool fits =
      list->is_array() && list->size() == out.size() &&
      std::ranges::all_of(*list, [](const Json& item) {
        return item.is_number() && std::isfinite(item.get<double>());
      });
  if (!fits) {
    return InvalidArgument(std::string(key) + " is " +
                           Shortened(DumpJson(*list), 40) +
                           " but must be a list of three numbers");
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = (*list)[i].get<double>();
  return out;
}

Status ReadEncoder(const Json& config, VisionConfig& out) {
  const Json* vision = Find(config, "vision_config");
  const Json* text = Find(config, "text_config");
  if (vision == nullptr || text == nullptr) {
    return InvalidArgument("it has no vision_config beside its text_config");
  }
  const Json* type = Find(*text, "model_type");
  if (type == nullptr || *type != "llama") {
    return Unimplemented(
        "text_config.model_type is " +
        (type == nullptr ? "missing" : Shortened(DumpJson(*type), 40)) +
        "; images are served with llama");
  }
  const std::string at = "vision_config.";
  ASSIGN_OR_RETURN(out.hidden, Int(*vision, at, "hidden_size", 1, 1 << 16));
  ASSIGN_OR_RETURN(out.intermediate,
                   Int(*vision, at, "intermediate_size", 1, 1 << 20, 3072));
  ASSIGN_OR_RETURN(out.layers,
                   Int(*vision, at, "num_hidden_layers", 1, 1024, 12));
  ASSIGN_OR_RETURN(out.heads,
                   Int(*vision, at, "num_attention_heads", 1, 1024, 16));
  ASSIGN_OR_RETURN(out.tile, Int(*vision, at, "image_size", 1, 2048));
  ASSIGN_OR_RETURN(out.patch, Int(*vision, at, "patch_size", 1, out.tile));
  ASSIGN_OR_RETURN(const int64_t channels,
                   Int(*vision, at, "num_channels", 3, 3, 3));
  static_cast<void>(channels);
  ASSIGN_OR_RETURN(out.epsilon, Real(*vision, at, "layer_norm_eps", 1e-6));
  ASSIGN_OR_RETURN(out.scale, Int(config, "", "scale_factor", 1, 64, 2));
  ASSIGN_OR_RETURN(out.text_hidden,
                   Int(*text, "text_config.", "hidden_size", 1, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t token,
                   Int(config, "", "image_token_id", 0, (1 << 28) - 1));
  out.image_token = static_cast<int32_t>(token);
  if (out.hidden % out.heads != 0) {
    return InvalidArgument("vision_config.hidden_size is " +
                           std::to_string(out.hidden) +
                           ", which is no multiple of num_attention_heads (" +
                           std::to_string(out.heads) + ")");
  }
  if (out.patches_per_side() % out.scale != 0) {
    return InvalidArgument(
        "scale_factor is " + std::to_string(out.scale) +
        ", which does not divide the " +
        std::to_string(out.patches_per_side()) +
        " patches of a side (vision_config.image_size, patch_size)");
  }
  const Json* act = Find(*vision, "hidden_act");
  const std::string name = act == nullptr     ? "gelu_pytorch_tanh"
                           : act->is_string() ? act->get<std::string>()
                                              : Shortened(DumpJson(*act), 40);
  for (const Activation& known : kActivations) {
    if (known.theirs == name) out.activation = known.ours;
  }
  if (out.activation.empty()) {
    return Unimplemented("vision_config.hidden_act is '" + name +
                         "', which is not supported");
  }
  return OkStatus();
}

// Pillow's numbers.
StatusOr<Interpolation> ReadResample(const Json& given) {
  ASSIGN_OR_RETURN(const int64_t number, Int(given, "", "resample", 0, 5, 1));
  switch (number) {
    case 0:
      return Interpolation::kNearest;
    case 1:
      return Interpolation::kLanczos;
    case 2:
      return Interpolation::kBilinear;
    case 3:
      return Interpolation::kBicubic;
    default:
      return Unimplemented("resample is " + std::to_string(number) +
                           "; 0 (nearest), 1 (Lanczos), 2 (bilinear) and 3 "
                           "(bicubic) are supported");
  }
}

Status ReadPreprocessor(const Json& given, VisionConfig& out) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) {
    if (!IsFalse(given, key)) continue;
    return Unimplemented(std::string(key) +
                         " is false, which is not supported");
  }
  out.splits = !IsFalse(given, "do_image_splitting");
  const Json none = Json::object();
  const Json* tile = Find(given, "max_image_size");
  const Json* size = Find(given, "size");
  ASSIGN_OR_RETURN(const int64_t side,
                   Int(tile == nullptr ? none : *tile, "max_image_size.",
                       "longest_edge", 1, kMostEdge, out.tile));
  if (side != out.tile) {
    return Unimplemented(
        "max_image_size.longest_edge is " + std::to_string(side) +
        " but vision_config.image_size is " + std::to_string(out.tile) +
        "; tiles as large as the encoder's are supported");
  }
  ASSIGN_OR_RETURN(out.longest_edge,
                   Int(size == nullptr ? none : *size, "size.", "longest_edge",
                       1, kMostEdge, std::min(4 * out.tile, kMostEdge)));
  if (out.splits && out.longest_edge > kMostTilesASide * out.tile) {
    return Unimplemented("size.longest_edge is " +
                         std::to_string(out.longest_edge) + ", more than " +
                         std::to_string(kMostTilesASide) + " tiles of " +
                         std::to_string(out.tile));
  }
  ASSIGN_OR_RETURN(out.interpolation, ReadResample(given));
  ASSIGN_OR_RETURN(out.rescale_factor,
                   Real(given, "", "rescale_factor", 1.0 / 255));
  ASSIGN_OR_RETURN(out.mean, Channels(given, "image_mean", 0.5));
  ASSIGN_OR_RETURN(out.std, Channels(given, "image_std", 0.5));
  if (std::ranges::count(out.std, 0.0) > 0) {
    return InvalidArgument("image_std has a 0, by which nothing is divided");
  }
  return OkStatus();
}

}  // namespace

bool HasVision(std::string_view config) {
  const StatusOr<Json> json = ParseJson(config);
  if (!json.ok()) return false;
  const Json* names = Find(*json, "architectures");
  return names != nullptr && names->is_array() && !names->empty() &&
         names->front().is_string() &&
         std::ranges::find(kClasses, names->front().get<std::string>()) !=
             std::end(kClasses);
}

StatusOr<VisionConfig> ReadVisionConfig(std::string_view config,
                                        std::string_view preprocessor) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(config));
  if (!json.is_object()) return InvalidArgument("it is no JSON object");
  VisionConfig out;
  RETURN_IF_ERROR(ReadEncoder(json, out));
  Json given = Json::object();
  if (!preprocessor.empty()) {
    ASSIGN_OR_RETURN(given, ParseJson(preprocessor));
    if (const Json* inner = Find(given, "image_processor");
        inner != nullptr && inner->is_object()) {
      const Json copy = *inner;
      given = copy;
    }
    if (!given.is_object()) {
      return InvalidArgument("the preprocessor's file is no JSON object");
    }
  }
  RETURN_IF_ERROR(ReadPreprocessor(given, out));
  return out;
}

}  // namespace millrace::models::vision
