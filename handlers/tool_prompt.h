// What the tools of a request do to its prompt. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/parsers/formats.h"

namespace millrace::handlers {

// `tools`, `tool_choice` and `parallel_tool_calls` of a body, checked, into the
// chat. With tool_choice "none" the prompt names no tools.
Status ReadTools(const nlohmann::ordered_json& body, ChatPrompt& chat);

// A message as templates expect it: the arguments of its tool calls are
// objects, while OpenAI's clients send them as text.
Status ReadToolCalls(const std::string& path, nlohmann::ordered_json& message);

// For a template that knows no tools: a conversation that holds them, their
// calls and results as text, in the words of the hermes format. `tools` may be
// null.
nlohmann::ordered_json WithToolsAsText(const nlohmann::ordered_json& messages,
                                       const nlohmann::ordered_json* tools);

// The one function that may be called where a call must come; empty: any of
// several. As long as `choice` lives.
const std::string& OnlyName(const ToolChoice& choice);

// How a completion begins that must be a call; empty where it need not.
// INVALID_ARGUMENT when calls of the model are not read.
StatusOr<std::string> ForcedCall(const OutputFormats& formats,
                                 const ChatPrompt& chat);

}  // namespace millrace::handlers
