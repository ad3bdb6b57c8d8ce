// The `prompt` of llama.cpp's /completion, which is one prompt or several:
//
//   "text"                          one
//   [1, 2, 3]                       one of token ids
//   [1, "text", 2]                  one, where ids and strings are mixed
//   {"prompt_string": "What is on <__media__>?",
//    "multimodal_data": ["base64"]} one with images
//   [...]                           any other list: several, each one of these
//
// Source: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "config/base/status.h"
#include "handlers/handler.h"

namespace millrace::server::http {

struct LlamaPrompt {
  decltype(handlers::GenerateRequest::prompt) prompt;
  // In the answer: as the client wrote it, without images.
  std::shared_ptr<const nlohmann::ordered_json> shown;
};

// At least one, kMaxPrompts at most. Text becomes tokens here: run it on the
// handler pool.
StatusOr<std::vector<LlamaPrompt>> ReadLlamaPrompts(
    const handlers::GenerateHandler& handler,
    const nlohmann::ordered_json& body);

}  // namespace millrace::server::http
