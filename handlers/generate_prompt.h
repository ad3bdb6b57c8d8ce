// From a request's prompt to token ids: render, encode, check.
//
// User text never makes special tokens in a chat; a raw completion prompt is
// the client's own and may hold them. Pure but for the wall clock that a
// template may ask for; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "config/base/status.h"
#include "handlers/generate.h"
#include "handlers/image_prompt.h"
#include "handlers/messages.h"
#include "models/llm/prompt_embeddings.h"
#include "models/text/chat_template.h"
#include "models/vision/image_encoder.h"

namespace millrace::handlers {

// The request field the prompt came in: "messages" or "prompt".
const char* PromptField(const Prompt& prompt);

// The argument of a chat template, true: the prompt ends with the content of
// the last message, which the completion goes on, as if the model had written
// it. Source: apply_chat_template of transformers.
inline constexpr const char* kContinueFinalMessage = "continue_final_message";

// FAILED_PRECONDITION without a chat template; INVALID_ARGUMENT with the
// template's own text when it raises, or when the template leaves out a message
// because it does not know its role.
StatusOr<std::vector<models::PromptPart>> RenderChat(const GenerateParts& parts,
                                                     const ChatPrompt& chat);

// The prompt ends with the tag that begins reasoning.
bool EndsInReasoning(const models::Tokenizer& tokenizer,
                     const ReasoningFormat& format,
                     std::span<const int32_t> prompt);

// How the completion of that chat is read; `prompt` is what it was encoded to.
ParserSpec ParserSpecOf(const GenerateParts& parts, const ChatPrompt& chat,
                        std::span<const int32_t> prompt);

struct EncodedPrompt {
  std::vector<int32_t> ids;  // at least one
  // Of the prompt's images; null: it has none.
  std::shared_ptr<const models::PromptEmbeddings> embeddings = {};
};

// `images` are those of the prompt. INVALID_ARGUMENT for ids out of range, an
// empty prompt, or text so long that it cannot fit `max_context` tokens however
// it is encoded (found before encoding it).
StatusOr<EncodedPrompt> EncodePrompt(
    const GenerateParts& parts, const Prompt& prompt, int64_t max_context,
    const models::vision::EncodedImages& images = {});

// What the client predicts, as the model would write it: draft tokens.
// INVALID_ARGUMENT when it has more than `max_context`.
StatusOr<std::vector<int32_t>> EncodePrediction(const GenerateParts& parts,
                                                const std::string& text,
                                                int64_t max_context);

// With the tokens of its images, which are decoded but not computed.
StatusOr<std::vector<int32_t>> EncodeChat(const GenerateParts& parts,
                                          const ChatPrompt& chat);

}  // namespace millrace::handlers
