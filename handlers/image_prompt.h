// Images in a prompt: what the chat template writes for each of them becomes
// the tokens that its rows stand in place of, and the rows find their places.
//
//   RETURN_IF_ERROR(CheckImages(parts, ImagesOf(prompt)));
//   RETURN_IF_ERROR(SpellImages(parts, images, rendered));
//   ... the text is encoded ...
//   ASSIGN_OR_RETURN(auto embeddings, PlaceImages(parts, images, ids));
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "config/base/status.h"
#include "handlers/generate.h"
#include "handlers/messages.h"
#include "models/llm/prompt_embeddings.h"
#include "models/text/chat_template.h"
#include "models/vision/image_encoder.h"

namespace millrace::handlers {

using Prompt = std::variant<ChatPrompt, TextPrompt, TokenPrompt>;

// Those of a chat or of a text.
std::span<const ChatImage> ImagesOf(const Prompt& prompt);

// Whether the model takes the images of the prompt, and so many, and each of
// them is there. INVALID_ARGUMENT at the first that is not taken.
Status CheckImages(const GenerateParts& parts,
                   std::span<const ChatImage> images);

// How they are cut into tiles, which tells their tokens; no rows are computed.
// Decodes the files. What CheckImages refuses and what is no image is refused.
StatusOr<models::vision::EncodedImages> MeasureImages(
    const GenerateParts& parts, std::span<const ChatImage> images);

// The text with "<image>" in place of its markers. INVALID_ARGUMENT where their
// number is not that of its images, or where it has an "<image>" of its own.
StatusOr<models::PromptPart> RenderText(const GenerateParts& parts,
                                        const TextPrompt& prompt);

// Messages as the templates of such models want them: content is a list of
// parts, a string is one part.
nlohmann::ordered_json WithContentParts(const nlohmann::ordered_json& messages);

// Replaces each "<image>" that the template wrote. INVALID_ARGUMENT where it
// wrote another number of them.
Status SpellImages(const GenerateParts& parts,
                   const models::vision::EncodedImages& images,
                   std::vector<models::PromptPart>& rendered);

// Null where there are no images.
StatusOr<std::shared_ptr<const models::PromptEmbeddings>> PlaceImages(
    const GenerateParts& parts, const models::vision::EncodedImages& images,
    std::span<const int32_t> ids);

}  // namespace millrace::handlers
