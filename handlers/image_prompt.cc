// The words around an image's rows are those of Idefics3 and SmolVLM:
//
//   <fake_token_around_image><row_1_col_1><image>…<fake_token_around_image>
//   <row_1_col_2><image>…
//   …
//   <fake_token_around_image><global-img><image>…<fake_token_around_image>
//
// with a line's end behind each row of tiles and before the whole image.
#include "handlers/image_prompt.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace millrace::handlers {
namespace {

using models::PromptEmbeddings;
using models::vision::EncodedImage;
using models::vision::EncodedImages;
using models::vision::VisionConfig;

constexpr std::string_view kAround = "<fake_token_around_image>";
constexpr std::string_view kWhole = "<global-img>";

// "<image>": a row's place.
std::string ImageToken(const GenerateParts& parts) {
  return std::string(parts.tokenizer->Piece(parts.images->config().image_token,
                                            /*with_special=*/true));
}

std::string Spelt(const EncodedImage& image, const VisionConfig& config,
                  std::string_view token) {
  std::string rows;
  for (int64_t i = 0; i < config.rows_per_tile(); ++i) rows += token;
  std::string out;
  for (int32_t y = 1; y <= image.grid.rows; ++y) {
    for (int32_t x = 1; x <= image.grid.columns; ++x) {
      const std::string place =
          "<row_" + std::to_string(y) + "_col_" + std::to_string(x) + ">";
      out.append(kAround).append(place).append(rows);
    }
    out += '\n';
  }
  if (image.grid.rows > 0) out += '\n';
  return out.append(kAround).append(kWhole).append(rows).append(kAround);
}

}  // namespace

std::span<const ChatImage> ImagesOf(const Prompt& prompt) {
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) return chat->images;
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) return text->images;
  return {};
}

Status CheckImages(const GenerateParts& parts,
                   std::span<const ChatImage> images) {
  if (images.empty()) return OkStatus();
  if (parts.images == nullptr) {
    const std::string& path = images.front().path;
    return InvalidArgument(path + " is an image but model '" + parts.model +
                           "' takes only text")
        .At(path);
  }
  const auto most = static_cast<size_t>(parts.max_images);
  if (images.size() <= most) {
    for (const ChatImage& image : images) RETURN_IF_ERROR(image.status);
    return OkStatus();
  }
  const std::string& path = images[most].path;
  return InvalidArgument("the request has " + std::to_string(images.size()) +
                         " images but model '" + parts.model + "' takes " +
                         std::to_string(most) +
                         "; send fewer or raise limit_mm_per_prompt")
      .At(path);
}

StatusOr<EncodedImages> MeasureImages(const GenerateParts& parts,
                                      std::span<const ChatImage> images) {
  RETURN_IF_ERROR(CheckImages(parts, images));
  EncodedImages out;
  for (const ChatImage& image : images) {
    auto measured = std::make_shared<EncodedImage>();
    ASSIGN_OR_RETURN(measured->grid,
                     parts.images->GridOfFile({image.bytes, image.field}));
    out.push_back(std::move(measured));
  }
  return out;
}

StatusOr<models::PromptPart> RenderText(const GenerateParts& parts,
                                        const TextPrompt& prompt) {
  models::PromptPart out = {prompt.text, false};
  if (prompt.images.empty()) return out;
  const std::string token = ImageToken(parts);
  if (prompt.text.find(token) != std::string::npos) {
    return InvalidArgument("the prompt holds '" + token +
                           "', which stands for an image; write " +
                           std::string(kMediaMarker) + " where each image is")
        .At("prompt");
  }
  out.text.clear();
  size_t placed = 0;
  size_t at = 0;
  for (size_t found = prompt.text.find(kMediaMarker);
       found != std::string::npos; found = prompt.text.find(kMediaMarker, at)) {
    out.text.append(prompt.text, at, found - at).append(token);
    ++placed;
    at = found + kMediaMarker.size();
  }
  out.text.append(prompt.text, at);
  if (placed == prompt.images.size()) return out;
  return InvalidArgument("the prompt has " + std::to_string(placed) +
                         " times " + std::string(kMediaMarker) + " but " +
                         std::to_string(prompt.images.size()) +
                         " images; write it once where each image is")
      .At("prompt");
}

nlohmann::ordered_json WithContentParts(
    const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json out = messages;
  for (auto& message : out) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    nlohmann::ordered_json part = {{"type", "text"}, {"text", *content}};
    *content = nlohmann::ordered_json::array({std::move(part)});
  }
  return out;
}

Status SpellImages(const GenerateParts& parts, const EncodedImages& images,
                   std::vector<models::PromptPart>& rendered) {
  if (images.empty()) return OkStatus();
  const VisionConfig& config = parts.images->config();
  const std::string token = ImageToken(parts);
  size_t placed = 0;
  for (models::PromptPart& part : rendered) {
    if (part.from_user) continue;
    std::string text;
    size_t at = 0;
    for (size_t found = part.text.find(token); found != std::string::npos;
         found = part.text.find(token, at)) {
      text.append(part.text, at, found - at);
      if (placed < images.size()) text += Spelt(*images[placed], config, token);
      ++placed;
      at = found + token.size();
    }
    text.append(part.text, at);
    part.text = std::move(text);
  }
  if (placed == images.size()) return OkStatus();
  return InvalidArgument("the chat template of model '" + parts.model +
                         "' places " + std::to_string(placed) + " of the " +
                         std::to_string(images.size()) +
                         " images of the request; send images in messages of "
                         "the user")
      .At("messages");
}

StatusOr<std::shared_ptr<const PromptEmbeddings>> PlaceImages(
    const GenerateParts& parts, const EncodedImages& images,
    std::span<const int32_t> ids) {
  if (images.empty()) return std::shared_ptr<const PromptEmbeddings>();
  const VisionConfig& config = parts.images->config();
  auto out = std::make_shared<PromptEmbeddings>();
  out->width = config.text_hidden;
  const auto per_tile = static_cast<int32_t>(config.rows_per_tile());
  size_t at = 0;
  for (const auto& image : images) {
    for (int64_t tile = 0; tile < image->grid.count(); ++tile) {
      while (at < ids.size() && ids[at] != config.image_token) ++at;
      size_t end = at;
      while (end < ids.size() && ids[end] == config.image_token) ++end;
      if (end - at != static_cast<size_t>(per_tile)) {
        return Internal("a tile of an image has " + std::to_string(end - at) +
                        " tokens instead of " + std::to_string(per_tile));
      }
      out->spans.push_back(
          {.first = static_cast<int32_t>(at),
           .count = per_tile,
           .image = image->number,
           .values = image->rows,
           .begin = static_cast<size_t>(tile * per_tile * out->width)});
      at = end;
    }
  }
  return std::shared_ptr<const PromptEmbeddings>(std::move(out));
}

}  // namespace millrace::handlers
