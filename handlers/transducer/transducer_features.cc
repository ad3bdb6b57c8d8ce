#include "handlers/transducer/transducer_features.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/read_file.h"
#include "config/task_settings.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/audio_input.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxStatsBytes = 1 << 20;

Status Wrong(const std::string& path, const std::string& why) {
  return InvalidArgument("feature_stats: " + path + " " + why).At("transducer");
}

StatusOr<std::vector<float>> ReadBands(const Json& json, const char* name,
                                       const std::string& path,
                                       int64_t num_mels) {
  const Json* list = FindField(json, name);
  if (list == nullptr || !list->is_array() ||
      list->size() != static_cast<size_t>(num_mels)) {
    return Wrong(path, std::string("needs a list '") + name + "' of " +
                           std::to_string(num_mels) +
                           " numbers, one for each band");
  }
  std::vector<float> values;
  for (const Json& each : *list) {
    const double value = each.is_number() ? each.get<double>() : NAN;
    if (!std::isfinite(value)) {
      return Wrong(path, std::string("has something in '") + name +
                             "' that is no number");
    }
    values.push_back(static_cast<float>(value));
  }
  return values;
}

}  // namespace

StatusOr<TransducerFeatures> TransducerFeatures::Create(
    const TaskParts& parts, const config::TransducerSettings& settings,
    int64_t num_mels) {
  const config::AudioTaskSettings& audio = parts.settings->audio;
  if (audio.n_mels > 0 && audio.n_mels != num_mels) {
    return InvalidArgument("n_mels is " + std::to_string(audio.n_mels) +
                           " but the encoder takes " +
                           std::to_string(num_mels) + " bands")
        .At("task_options.n_mels");
  }
  ASSIGN_OR_RETURN(const models::MelOptions options,
                   MelOptionsOf(audio, num_mels));
  ASSIGN_OR_RETURN(models::MelSpectrogram mel,
                   models::MelSpectrogram::Create(options));
  TransducerFeatures features(std::move(mel));
  features.frames_ = settings.segment_length + settings.right_context_length;
  features.step_ =
      static_cast<size_t>(settings.segment_length * options.hop_length);
  features.context_ =
      static_cast<size_t>(settings.right_context_length * options.hop_length);
  if (settings.feature_stats.empty()) return features;
  ASSIGN_OR_RETURN(
      const std::string path,
      FindTaskFile(parts, "feature_stats", settings.feature_stats));
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFileOf("feature_stats", path, kMaxStatsBytes));
  const StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Wrong(path, std::string(json.status().message()));
  if (!json->is_object()) return Wrong(path, "holds no object");
  ASSIGN_OR_RETURN(features.mean_, ReadBands(*json, "mean", path, num_mels));
  ASSIGN_OR_RETURN(features.inverse_stddev_,
                   ReadBands(*json, "invstddev", path, num_mels));
  return features;
}

models::Tensor TransducerFeatures::Compute(
    std::span<const float> samples) const {
  const int64_t num_mels = mel_.options().num_mels;
  // Where frames are centred there is one more; it is not used.
  const int64_t computed = mel_.NumFrames(samples.size());
  std::vector<float> values(static_cast<size_t>(num_mels * computed));
  mel_.Compute(samples, values.data());
  models::Tensor tensor =
      models::Tensor::Make(models::DType::kF32, {1, frames_, num_mels});
  float* out = tensor.data<float>();
  for (int64_t t = 0; t < frames_; ++t) {
    for (int64_t m = 0; m < num_mels; ++m) {
      const auto band = static_cast<size_t>(m);
      float value = values[static_cast<size_t>(m * computed + t)];
      if (!mean_.empty()) {
        value = (value - mean_[band]) * inverse_stddev_[band];
      }
      *out++ = value;
    }
  }
  return tensor;
}

}  // namespace millrace::handlers
