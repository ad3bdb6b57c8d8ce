// The file does not say how an image is resized: by Lanczos, as the folders of
// this class say.
#include "models/vision/mmproj.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/utf8.h"

namespace millrace::models::vision {
namespace {

constexpr std::string_view kProjector = "idefics3";
// As in a folder, see vision_config.cc.
constexpr int64_t kMostEdge = 4096;
constexpr int64_t kMostTilesASide = 16;

// An integer in a range.
StatusOr<int64_t> Int(const GgufFile& file, std::string_view key, int64_t least,
                      int64_t most) {
  ASSIGN_OR_RETURN(const int64_t value, file.Int(key));
  if (value >= least && value <= most) return value;
  return InvalidArgument(std::string(key) + " is " + std::to_string(value) +
                         " but must be a number from " + std::to_string(least) +
                         " to " + std::to_string(most));
}

StatusOr<std::array<double, 3>> Channels(const GgufFile& file,
                                         std::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<float> given, file.Floats(key));
  std::array<double, 3> out;
  const bool fits =
      given.size() == out.size() &&
      std::ranges::all_of(given, [](float x) { return std::isfinite(x); });
  if (!fits) {
    return InvalidArgument(std::string(key) + " has " +
                           std::to_string(given.size()) +
                           " values but must have three finite numbers");
  }
  // As they were written: 0.5 or 0.48145466 stand for decimal numbers.
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::round(static_cast<double>(given[i]) * 1e8) / 1e8;
  }
  return out;
}

StatusOr<std::string> ReadActivation(const GgufFile& file) {
  ASSIGN_OR_RETURN(const bool gelu, file.Bool("clip.use_gelu", false));
  ASSIGN_OR_RETURN(const bool silu, file.Bool("clip.use_silu", false));
  if (gelu) return std::string("gelu_tanh");
  if (silu) return std::string("silu");
  return Unimplemented(
      "neither clip.use_gelu nor clip.use_silu is true; the quick GELU that "
      "this stands for is not supported");
}

Status CheckProjector(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view shared,
                   file.String("clip.projector_type", ""));
  ASSIGN_OR_RETURN(const std::string_view projector,
                   file.String("clip.vision.projector_type", shared));
  if (projector == kProjector) return OkStatus();
  return Unimplemented("its projector is '" + Shortened(projector, 60) +
                       "' (clip.projector_type); '" + std::string(kProjector) +
                       "' is served (SmolVLM and Idefics3)");
}

Status CheckDivisions(const VisionConfig& config) {
  if (config.hidden % config.heads != 0) {
    return InvalidArgument("clip.vision.embedding_length is " +
                           std::to_string(config.hidden) +
                           ", which is no multiple of "
                           "clip.vision.attention.head_count (" +
                           std::to_string(config.heads) + ")");
  }
  if (config.patches_per_side() % config.scale != 0) {
    return InvalidArgument(
        "clip.vision.projector.scale_factor is " +
        std::to_string(config.scale) + ", which does not divide the " +
        std::to_string(config.patches_per_side()) +
        " patches of a side (clip.vision.image_size, patch_size)");
  }
  if (config.longest_edge > kMostTilesASide * config.tile) {
    return Unimplemented("clip.vision.preproc_image_size is " +
                         std::to_string(config.longest_edge) + ", more than " +
                         std::to_string(kMostTilesASide) + " tiles of " +
                         std::to_string(config.tile));
  }
  for (const double value : config.std) {
    if (value > 0) continue;
    return InvalidArgument(
        "clip.vision.image_std has a value that is not "
        "above 0");
  }
  return OkStatus();
}

}  // namespace

bool IsMmproj(const GgufFile& file) {
  const auto architecture = file.String("general.architecture", "");
  return architecture.ok() && *architecture == "clip";
}

StatusOr<VisionConfig> ReadMmproj(const GgufFile& file) {
  if (!IsMmproj(file)) {
    return InvalidArgument(
        "it holds no encoder of images: general.architecture is not 'clip'");
  }
  RETURN_IF_ERROR(CheckProjector(file));
  const std::string at = "clip.vision.";
  VisionConfig out;
  ASSIGN_OR_RETURN(out.hidden, Int(file, at + "embedding_length", 1, 1 << 16));
  ASSIGN_OR_RETURN(out.intermediate,
                   Int(file, at + "feed_forward_length", 1, 1 << 20));
  ASSIGN_OR_RETURN(out.layers, Int(file, at + "block_count", 1, 1024));
  ASSIGN_OR_RETURN(out.heads, Int(file, at + "attention.head_count", 1, 1024));
  ASSIGN_OR_RETURN(out.tile, Int(file, at + "image_size", 1, 2048));
  ASSIGN_OR_RETURN(out.patch, Int(file, at + "patch_size", 1, out.tile));
  ASSIGN_OR_RETURN(out.epsilon,
                   file.Float(at + "attention.layer_norm_epsilon"));
  if (!std::isfinite(out.epsilon)) {
    return InvalidArgument(at + "attention.layer_norm_epsilon is no number");
  }
  ASSIGN_OR_RETURN(out.activation, ReadActivation(file));
  ASSIGN_OR_RETURN(out.scale, Int(file, at + "projector.scale_factor", 1, 64));
  ASSIGN_OR_RETURN(out.text_hidden,
                   Int(file, at + "projection_dim", 1, 1 << 20));
  ASSIGN_OR_RETURN(
      out.longest_edge,
      file.Int(at + "preproc_image_size", std::min(4 * out.tile, kMostEdge)));
  if (out.longest_edge < 1 || out.longest_edge > kMostEdge) {
    return InvalidArgument(
        at + "preproc_image_size is " + std::to_string(out.longest_edge) +
        " but must be a number from 1 to " + std::to_string(kMostEdge));
  }
  ASSIGN_OR_RETURN(out.mean, Channels(file, at + "image_mean"));
  ASSIGN_OR_RETURN(out.std, Channels(file, at + "image_std"));
  RETURN_IF_ERROR(CheckDivisions(out));
  return out;
}

}  // namespace millrace::models::vision
