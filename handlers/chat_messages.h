// The conversation part of a chat request, checked: `messages`, and beside it
// `tools` and `tool_choice` (tool_prompt.h), `add_generation_prompt`,
// `continue_final_message`, `chat_template_kwargs`, `reasoning_effort` and
// llama.cpp's `reasoning_format`.
//
//   ASSIGN_OR_RETURN(ChatPrompt chat, ReadChatPrompt(body));
//
// Errors name the path: "messages[2].content[0].type is "image_url" but ...".
// Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "config/base/status.h"
#include "handlers/messages.h"

namespace millrace::handlers {

// An image in the words of another API, for messages.
struct ImagePlace {
  std::string part;   // "input[0].content[1]"
  std::string field;  // "input[0].content[1].image_url"
  bool bare = false;  // it holds base64; else a data URL
};

// The file of an image that a request holds in base64, or as a data URL. Errors
// name the field.
StatusOr<std::string> ReadImageFile(const std::string& text,
                                    const std::string& field);

// Messages are copied out of the body. Content given as text parts becomes one
// string, the parts joined by a line break as vLLM does: few templates know
// parts. Content with images stays a list of parts, as templates of models that
// take images want it; the images, data URLs in base64, are taken out. Other
// keys of a message stay as they are.
//
// `images`: where each image of the messages stands in the request, if that is
// another API's whose body became this one.
StatusOr<ChatPrompt> ReadChatPrompt(const nlohmann::ordered_json& body,
                                    std::span<const ImagePlace> images = {});

}  // namespace millrace::handlers
