// What a reader would guess wrong: a chat prompt gets no BOS from the
// tokenizer, for templates write their own; a raw prompt does.
#include "handlers/generate_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace millrace::handlers {
namespace {

// Texts of fewer bytes for each token of the context are simply encoded.
constexpr int64_t kPlausibleTokenBytes = 16;

int64_t TextBytes(const std::vector<models::PromptPart>& parts) {
  int64_t bytes = 0;
  for (const auto& part : parts) {
    bytes += static_cast<int64_t>(part.text.size());
  }
  return bytes;
}

// How many tokens text of so many bytes has at least, when that is already too
// many: no token spells more than the longest one. Else 0.
int64_t SurelyTooMany(const models::Tokenizer& tokenizer, int64_t bytes,
                      int64_t max_context) {
  if (bytes <= max_context * kPlausibleTokenBytes) return 0;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    longest = std::max(longest, tokenizer.Piece(id, true).size());
  }
  const int64_t least = bytes / static_cast<int64_t>(longest);
  return least > max_context ? least : 0;
}

std::vector<int32_t> EncodeRendered(
    const GenerateParts& parts,
    const std::vector<models::PromptPart>& rendered) {
  std::vector<models::Tokenizer::Part> pieces;
  pieces.reserve(rendered.size());
  for (const models::PromptPart& part : rendered) {
    pieces.push_back({part.text, !part.from_user});
  }
  return parts.tokenizer->EncodeParts(pieces, /*add_special=*/false);
}

StatusOr<std::vector<int32_t>> CheckIds(const GenerateParts& parts,
                                        const TokenPrompt& prompt) {
  const int32_t size = parts.tokenizer->size();
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    const int32_t id = prompt.ids[i];
    if (id >= 0 && id < size) continue;
    return InvalidArgument("prompt[" + std::to_string(i) + "] is token " +
                           std::to_string(id) + " but model '" + parts.model +
                           "' has tokens 0 to " + std::to_string(size - 1))
        .At("prompt");
  }
  return prompt.ids;
}

}  // namespace

const char* PromptField(const Prompt& prompt) {
  return std::holds_alternative<ChatPrompt>(prompt) ? "messages" : "prompt";
}

StatusOr<std::vector<models::PromptPart>> RenderChat(const GenerateParts& parts,
                                                     const ChatPrompt& chat) {
  if (parts.chat_template == nullptr) {
    return FailedPrecondition(
               "model '" + parts.model +
               "' has no chat template; send a plain prompt to "
               "/v1/completions, or start the server with --chat-template FILE")
        .At("messages")
        .Because("no_chat_template");
  }
  models::ChatInput input;
  input.messages = chat.messages.get();
  input.tools = chat.tools.get();
  input.extra = chat.template_kwargs.get();
  input.add_generation_prompt = chat.add_generation_prompt;
  input.bos_token = parts.bos_text;
  input.eos_token = parts.eos_text;
  auto rendered = parts.chat_template->Render(input);
  if (!rendered.ok() && rendered.status().field().empty()) {
    return rendered.status().At("messages");
  }
  return rendered;
}

StatusOr<std::vector<int32_t>> EncodeChat(const GenerateParts& parts,
                                          const ChatPrompt& chat) {
  ASSIGN_OR_RETURN(const auto rendered, RenderChat(parts, chat));
  return EncodeRendered(parts, rendered);
}

Status PromptTooLong(const GenerateParts& parts, const Prompt& prompt,
                     int64_t num_tokens, int64_t max_context, bool at_least) {
  const char* field = PromptField(prompt);
  return InvalidArgument(
             std::string(field) + " has " + (at_least ? "at least " : "") +
             std::to_string(num_tokens) + " tokens but model '" + parts.model +
             "' takes at most " + std::to_string(max_context) +
             " tokens, prompt and answer together; shorten it")
      .At(field)
      .Because("context_length_exceeded");
}

StatusOr<std::vector<int32_t>> EncodePrompt(const GenerateParts& parts,
                                            const Prompt& prompt,
                                            int64_t max_context) {
  std::vector<int32_t> ids;
  const auto too_many = [&](int64_t bytes) {
    return SurelyTooMany(*parts.tokenizer, bytes, max_context);
  };
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    ASSIGN_OR_RETURN(const auto rendered, RenderChat(parts, *chat));
    if (const int64_t least = too_many(TextBytes(rendered))) {
      return PromptTooLong(parts, prompt, least, max_context,
                           /*at_least=*/true);
    }
    ids = EncodeRendered(parts, rendered);
  } else if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
    const auto bytes = static_cast<int64_t>(text->text.size());
    if (const int64_t least = too_many(bytes)) {
      return PromptTooLong(parts, prompt, least, max_context,
                           /*at_least=*/true);
    }
    ids = parts.tokenizer->Encode(text->text,
                                  {.add_special = true, .parse_special = true});
  } else {
    ASSIGN_OR_RETURN(ids, CheckIds(parts, std::get<TokenPrompt>(prompt)));
  }
  if (ids.empty()) {
    const char* field = PromptField(prompt);
    return InvalidArgument(std::string(field) +
                           " has no tokens but must have at least one; send "
                           "some text")
        .At(field);
  }
  return ids;
}

}  // namespace millrace::handlers
