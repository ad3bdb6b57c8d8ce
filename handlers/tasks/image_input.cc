#include "handlers/tasks/image_input.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/base64.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

using models::ImageSize;
using models::PreprocessOptions;

constexpr int64_t kMaxSide = 16384;
constexpr std::string_view kLetterbox = "letterbox";

Status Wrong(std::string_view option, const std::string& why) {
  return InvalidArgument(std::string(option) + " " + why)
      .At("task_options." + std::string(option));
}

std::optional<double> RealIn(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// "0.0039", "1/255".
StatusOr<double> ReadFactor(const std::string& text) {
  const size_t slash = text.find('/');
  const auto above = RealIn(std::string_view(text).substr(0, slash));
  const auto below = slash == std::string::npos
                         ? std::optional<double>(1.0)
                         : RealIn(std::string_view(text).substr(slash + 1));
  if (!above || !below || *below == 0) {
    return Wrong("rescale_factor", "is '" + Shortened(text, 100) +
                                       "' but must be a number or a fraction "
                                       "such as 1/255");
  }
  return *above / *below;
}

// One number, or one for each channel.
StatusOr<std::array<double, 3>> ReadChannels(
    const char* option, const std::vector<std::string>& texts, int channels,
    double otherwise) {
  std::array<double, 3> values;
  values.fill(otherwise);
  if (texts.empty()) return values;
  if (texts.size() != 1 && texts.size() != static_cast<size_t>(channels)) {
    return Wrong(option, "has " + std::to_string(texts.size()) +
                             " numbers but needs 1 or " +
                             std::to_string(channels));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& text = texts[i < texts.size() ? i : texts.size() - 1];
    const auto value = RealIn(text);
    if (!value || (option == std::string_view("std") && *value == 0)) {
      return Wrong(option, "has '" + Shortened(text, 100) +
                               "' but needs numbers" +
                               (value ? " other than 0" : ""));
    }
    values[i] = *value;
  }
  return values;
}

// None, [side] or [height, width].
StatusOr<std::vector<int64_t>> ReadSides(
    const char* option, const std::vector<std::string>& texts) {
  std::vector<int64_t> sides;
  for (const std::string& text : texts) {
    int64_t side = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), side);
    if (error != std::errc() || end != text.data() + text.size() || side < 1 ||
        side > kMaxSide || texts.size() > 2) {
      return Wrong(option, "has '" + Shortened(text, 100) +
                               "' but needs one or two numbers of pixels, 1 "
                               "to " +
                               std::to_string(kMaxSide));
    }
    sides.push_back(side);
  }
  return sides;
}

struct GraphInput {
  bool channels_last = false;
  int64_t channels = 0;  // -1: varies
  ImageSize size = {};   // -1: varies
};

StatusOr<GraphInput> InputOf(const TaskParts& parts, int channels) {
  const std::string task(config::TaskName(parts.settings->kind));
  const std::vector<models::TensorSpec>& inputs = parts.tensors->inputs();
  const auto unfit = [&](const std::string& why) {
    return InvalidArgument("task '" + task + "' needs " + why +
                           "; leave task out to serve tensors")
        .At("task");
  };
  if (inputs.size() != 1) {
    return unfit("a graph of one input, and this one has " +
                 std::to_string(inputs.size()));
  }
  const models::TensorSpec& spec = inputs.front();
  const bool is_known_type =
      spec.dtype == models::DType::kF32 || spec.dtype == models::DType::kU8;
  if (!is_known_type || spec.dims.size() != 4 || spec.dims[0] > 1) {
    return unfit(
        "an input of pictures, FP32 or UINT8, of four dimensions, the first "
        "of them 1 or varying, and '" +
        spec.name + "' is " + spec.text);
  }
  const std::string& layout = parts.settings->image.layout;
  GraphInput input;
  input.channels_last = layout == "nhwc";
  if (layout == "auto") {
    const auto is_channels = [&](int64_t size) { return size == channels; };
    if (is_channels(spec.dims[1]) == is_channels(spec.dims[3])) {
      return Wrong("layout", "is auto, but the sizes of '" + spec.name + "' (" +
                                 spec.text + ") do not tell where its " +
                                 std::to_string(channels) +
                                 " channels stand; say nchw or nhwc, or "
                                 "another color");
    }
    input.channels_last = is_channels(spec.dims[3]);
  }
  input.channels = spec.dims[input.channels_last ? 3 : 1];
  const size_t first = input.channels_last ? 1 : 2;
  input.size = {spec.dims[first], spec.dims[first + 1]};
  if (input.channels >= 0 && input.channels != channels) {
    return Wrong("color", "gives " + std::to_string(channels) +
                              " channels but '" + spec.name + "' (" +
                              spec.text + ") has " +
                              std::to_string(input.channels));
  }
  return input;
}

// A letterbox has a height and a width: those of resize or of the graph.
Status FitLetterbox(const ImageSize& graph, PreprocessOptions* options) {
  if (options->center_crop.height > 0) {
    return Wrong("center_crop",
                 "cuts off what a letterbox keeps; leave one of them out");
  }
  if (options->resize_shorter > 0) {
    options->resize_to = {options->resize_shorter, options->resize_shorter};
    options->resize_shorter = 0;
  }
  if (options->resize_to.height > 0) return OkStatus();
  if (graph.height < 0 || graph.width < 0) {
    return Wrong("resize",
                 "is letterbox, but the graph takes pictures of any size; say "
                 "resize: [letterbox, height, width]");
  }
  options->resize_to = graph;
  return OkStatus();
}

// What the options leave open follows from the graph; what they say must fit.
Status FitSizes(const ImageSize& graph, PreprocessOptions* options) {
  if (options->letterbox) {
    RETURN_IF_ERROR(FitLetterbox(graph, options));
  }
  const bool is_fixed = graph.height >= 0 && graph.width >= 0;
  const bool has_crop = options->center_crop.height > 0;
  const bool has_resize =
      options->resize_shorter > 0 || options->resize_to.height > 0;
  if (is_fixed && !has_crop) {
    if (options->resize_shorter > 0) {
      options->center_crop = graph;
    } else if (!has_resize) {
      options->resize_to = graph;
    }
  }
  const ImageSize size = options->center_crop.height > 0 ? options->center_crop
                                                         : options->resize_to;
  const auto fits = [](int64_t wanted, int64_t given) {
    return wanted < 0 || given == 0 || wanted == given;
  };
  if (fits(graph.height, size.height) && fits(graph.width, size.width)) {
    return OkStatus();
  }
  return Wrong(options->center_crop.height > 0 ? "center_crop" : "resize",
               "makes pictures of " + std::to_string(size.height) + " x " +
                   std::to_string(size.width) +
                   " (height x width) but the graph takes " +
                   std::to_string(graph.height) + " x " +
                   std::to_string(graph.width));
}

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The file that base64 stands for, with or without "data:image/png;base64,".
std::optional<std::string> FromBase64(std::string_view text) {
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    text.remove_prefix(comma + 1);
  }
  // Of JPEG, PNG and WebP.
  if (!text.starts_with("/9j/") && !text.starts_with("iVBOR") &&
      !text.starts_with("UklGR")) {
    return std::nullopt;
  }
  return DecodeBase64(text);
}

}  // namespace

StatusOr<ImageInput> ImageInput::Create(const TaskParts& parts) {
  const config::ImageTaskSettings& settings = parts.settings->image;
  ImageInput input;
  PreprocessOptions& options = input.options_;
  if (settings.color == "bgr") options.color = models::ColorOrder::kBgr;
  if (settings.color == "gray") options.color = models::ColorOrder::kGray;
  if (settings.interpolation == "bicubic") {
    options.interpolation = models::Interpolation::kBicubic;
  } else if (settings.interpolation == "nearest") {
    options.interpolation = models::Interpolation::kNearest;
  }
  std::vector<std::string> sides = settings.resize;
  options.letterbox = !sides.empty() && sides.front() == kLetterbox;
  if (options.letterbox) sides.erase(sides.begin());
  ASSIGN_OR_RETURN(const std::vector<int64_t> resize,
                   ReadSides("resize", sides));
  if (resize.size() == 1) options.resize_shorter = resize[0];
  if (resize.size() == 2) options.resize_to = {resize[0], resize[1]};
  ASSIGN_OR_RETURN(const std::vector<int64_t> crop,
                   ReadSides("center_crop", settings.center_crop));
  if (!crop.empty()) options.center_crop = {crop.front(), crop.back()};
  ASSIGN_OR_RETURN(options.rescale_factor, ReadFactor(settings.rescale_factor));
  ASSIGN_OR_RETURN(options.mean, ReadChannels("mean", settings.mean,
                                              options.channels(), 0.0));
  ASSIGN_OR_RETURN(options.std,
                   ReadChannels("std", settings.std, options.channels(), 1.0));
  ASSIGN_OR_RETURN(const GraphInput graph, InputOf(parts, options.channels()));
  RETURN_IF_ERROR(FitSizes(graph.size, &options));
  options.channels_last = graph.channels_last;
  const models::TensorSpec& spec = parts.tensors->inputs().front();
  input.name_ = spec.name;
  input.as_bytes_ = spec.dtype == models::DType::kU8;
  if (input.as_bytes_ && (!settings.mean.empty() || !settings.std.empty())) {
    return Wrong("mean", "and std have no meaning for '" + spec.name +
                             "', which takes whole pixels (" + spec.text +
                             "); leave them out");
  }
  input.decoding_.max_pixels = settings.max_pixels;
  if (settings.scaled_decoding && !resize.empty()) {
    input.decoding_.scale_down_to = 2 * std::max(resize.front(), resize.back());
  }
  return input;
}

StatusOr<ImageRow> ImageInput::Read(const TaskPart& part) const {
  const std::optional<std::string> decoded = FromBase64(part.bytes);
  ASSIGN_OR_RETURN(
      const models::RgbImage image,
      models::DecodeImage(AsBytes(decoded ? *decoded : part.bytes), decoding_));
  ASSIGN_OR_RETURN(const ImageSize size,
                   models::OutputSize(image, options_, decoding_.max_pixels));
  const int64_t channels = options_.channels();
  const models::Shape shape =
      options_.channels_last
          ? models::Shape({1, size.height, size.width, channels})
          : models::Shape({1, channels, size.height, size.width});
  ImageRow row;
  row.placement = models::PlacementOf({image.height, image.width}, options_);
  row.tensor = models::Tensor::Make(
      as_bytes_ ? models::DType::kU8 : models::DType::kF32, shape);
  if (as_bytes_) {
    models::WriteInput(image, options_, row.tensor.data<uint8_t>());
  } else {
    models::WriteInput(image, options_, row.tensor.data<float>());
  }
  return row;
}

}  // namespace millrace::handlers
