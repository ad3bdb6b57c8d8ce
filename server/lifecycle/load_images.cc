#include "server/lifecycle/load_images.h"

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/utf8.h"

namespace millrace::server {
namespace {

using models::vision::ImageEncoder;

constexpr int64_t kMostImages = 1024;

Status WrongLimit(const std::string& text) {
  return InvalidArgument("limit_mm_per_prompt is '" + Shortened(text, 100) +
                         "' but must be image=N or {\"image\": N}, N from 0 "
                         "to " +
                         std::to_string(kMostImages))
      .At("limit_mm_per_prompt");
}

// Of the word that stands for an image's rows in prompts.
StatusOr<int32_t> FindImageToken(const models::Tokenizer& tokenizer) {
  constexpr std::string_view kWord = "<image>";
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.Piece(id, /*with_special=*/true) == kWord) return id;
  }
  return InvalidArgument(
      "mmproj is set, but the tokenizer of the language model has no token "
      "<image> for images to stand in place of");
}

StatusOr<std::unique_ptr<ImageEncoder>> LoadEncoder(
    const config::ModelSettings& settings, const config::CpuSet& team,
    const models::Tokenizer& tokenizer, int32_t hidden) {
  const models::vision::ImageEncoderOptions options = {
      .cpus = team, .max_pixels = settings.llm.max_image_pixels};
  const std::string& mmproj = settings.llm.mmproj;
  if (mmproj.empty()) return ImageEncoder::Load(settings.path, options);
  ASSIGN_OR_RETURN(const int32_t token, FindImageToken(tokenizer));
  ASSIGN_OR_RETURN(auto encoder,
                   ImageEncoder::LoadMmproj(mmproj, token, options));
  const int64_t rows = encoder->config().text_hidden;
  if (rows == hidden) return encoder;
  return InvalidArgument("mmproj is '" + mmproj + "', whose rows have " +
                         std::to_string(rows) + " numbers, but those of '" +
                         settings.path + "' have " + std::to_string(hidden) +
                         "; name the file that was made for this model")
      .At("mmproj");
}

}  // namespace

StatusOr<int64_t> ReadImageLimit(const std::string& text) {
  constexpr std::string_view kKey = "image=";
  int64_t number = -1;
  if (text.starts_with(kKey)) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + kKey.size(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) number = -1;
  } else if (const auto json = ParseJson(text);
             json.ok() && json->is_object() && json->size() == 1) {
    const auto given = json->find("image");
    if (given != json->end() && given->is_number_unsigned()) {
      number = given->get<int64_t>();
    }
  }
  if (number < 0 || number > kMostImages) return WrongLimit(text);
  return number;
}

StatusOr<ChatImages> LoadImages(const std::string& id,
                                const config::ModelSettings& settings,
                                const config::CpuSet& team,
                                const models::Tokenizer& tokenizer,
                                int32_t hidden) {
  ChatImages out;
  ASSIGN_OR_RETURN(out.most, ReadImageLimit(settings.llm.limit_mm_per_prompt));
  const bool is_in = ImageEncoder::IsIn(settings.path);
  if (is_in && !settings.llm.mmproj.empty()) {
    return InvalidArgument("mmproj is '" + settings.llm.mmproj +
                           "', but the folder of the model has an encoder of "
                           "images; leave mmproj out")
        .At("mmproj");
  }
  if (!is_in && settings.llm.mmproj.empty()) return out;
  if (settings.common.device != "cpu" ||
      settings.llm.tensor_parallel_size > 1) {
    LogWarning("images are not taken",
               {{"model", id},
                {"device", settings.common.device},
                {"tensor_parallel_size", settings.llm.tensor_parallel_size}});
    return out;
  }
  ASSIGN_OR_RETURN(auto encoder,
                   LoadEncoder(settings, team, tokenizer, hidden));
  const models::vision::VisionConfig& config = encoder->config();
  if (config.image_token >= tokenizer.size() ||
      tokenizer.Piece(config.image_token, /*with_special=*/true).empty()) {
    return InvalidArgument("image_token_id is " +
                           std::to_string(config.image_token) +
                           ", which is no token of the tokenizer");
  }
  LogInfo("image encoder loaded", {{"model", id},
                                   {"layers", config.layers},
                                   {"tile_pixels", config.tile},
                                   {"tokens_per_tile", config.rows_per_tile()},
                                   {"splits", config.splits},
                                   {"most_images", out.most}});
  out.encoder = std::move(encoder);
  return out;
}

}  // namespace millrace::server
