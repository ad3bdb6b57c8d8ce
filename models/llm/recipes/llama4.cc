// The text of Llama 4 (Meta 2025): three of four layers are rotated and attend
// in chunks, with unweighted norms over each head of q and k; the fourth has no
// positions, sees all and tempers q. Mixtures of experts whose router scales
// what an expert reads, beside one that every token uses; between them there
// may be dense layers.
#include "models/llm/families.h"

namespace millrace::models {
namespace {

// What llama.cpp knows without a key; its files name none.
constexpr int64_t kChunk = 8192;
// Models of so many experts are trained without norms of q and k.
constexpr int32_t kExpertsWithoutNorms = 128;

Status SetChunks(const ModelSource& source, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t chunk,
                   source.Int("attention.chunk_size", kChunk));
  if (chunk < 1) {
    return InvalidArgument(source.KeyName("attention.chunk_size") + " is " +
                           std::to_string(chunk) +
                           "; expected a number of positions above 0");
  }
  config.sliding_window =
      chunk < config.context ? static_cast<int32_t>(chunk) : 0;
  RETURN_IF_ERROR(
      SetWindows(
          source, [](int32_t layer) { return layer % 4 != 3; }, config)
          .status());
  for (LayerSpec& layer : config.specs) layer.chunked = layer.window > 0;
  return OkStatus();
}

Status SetTemperature(const ModelSource& source, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.q_temperature.length,
                   AboveZero(source, "attention.temperature_length", kChunk));
  ASSIGN_OR_RETURN(const double scale,
                   source.Float("attention.temperature_scale", 0.1));
  if (!(scale >= 0) || !(scale < 1e6)) {
    return InvalidArgument(source.KeyName("attention.temperature_scale") +
                           " is " + std::to_string(scale) +
                           ", 0 to 1000000 is allowed");
  }
  config.q_temperature.scale = static_cast<float>(scale);
  return OkStatus();
}

}  // namespace

Status DescribeLlama4(const ModelSource& source, ModelConfig& config) {
  // Pairs are neighbours from training on, in folders and GGUF files.
  config.rope_interleaved = true;
  RETURN_IF_ERROR(SetExperts(source, false, config));
  ExpertConfig& experts = config.experts;
  if (experts.shared_ffn == 0) experts.shared_ffn = experts.ffn;
  experts.shared_gate = false;
  experts.sigmoid_inputs = true;

  RETURN_IF_ERROR(SetChunks(source, config));
  RETURN_IF_ERROR(SetTemperature(source, config));
  RETURN_IF_ERROR(SetRotated(source, config));
  ASSIGN_OR_RETURN(
      const bool norms,
      source.Bool("attention.qk_norm", experts.count != kExpertsWithoutNorms));
  for (LayerSpec& layer : config.specs) {
    const bool rotated = layer.rope != kNoRope;
    if (rotated && norms) layer.qk_norm = QkNorm::kHeadsUnweighted;
    layer.q_tempered = !rotated && config.q_temperature.scale > 0;
  }
  return OkStatus();
}

}  // namespace millrace::models
