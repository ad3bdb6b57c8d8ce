// Any bytes as a body of llama.cpp's /completion, of embeddings, of rerank and
// scores, or of a task (the first byte says which): refused with a sentence
// that names a field, or turned into as many prompts, texts or parts as the
// body may have.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/base/json.h"
#include "handlers/handler.h"
#include "handlers/texts/text_task.h"
#include "server/http/llama_prompts.h"
#include "server/http/pool_work.h"
#include "server/http/task_request.h"
#include "server/http/text_work.h"
#include "tests/fuzz/refusal.h"
#include "tests/support/byte_handler.h"

namespace {

using Json = nlohmann::ordered_json;
using millrace::CheckRefusal;
using millrace::Require;
using millrace::Status;
using millrace::StatusOr;
namespace handlers = millrace::handlers;
namespace http = millrace::server::http;

void CheckPrompts(const Json& body) {
  const auto prompts = http::ReadLlamaPrompts(millrace::ByteHandler(), body);
  if (!prompts.ok()) return CheckRefusal(prompts.status());
  Require(!prompts->empty() && prompts->size() <= http::kMaxPrompts,
          "as many prompts as are allowed");
  for (const http::LlamaPrompt& prompt : *prompts) {
    Require(prompt.shown != nullptr, "what the answer shows");
    if (const auto* ids = std::get_if<handlers::TokenPrompt>(&prompt.prompt)) {
      for (const int32_t id : ids->ids) Require(id >= 0, "an id of a token");
    }
    if (const auto* text = std::get_if<handlers::TextPrompt>(&prompt.prompt)) {
      for (const handlers::ChatImage& image : text->images) {
        Require(image.status.ok() == (image.bytes != nullptr), "bytes or why");
        if (!image.status.ok()) CheckRefusal(image.status);
      }
    }
  }
}

void CheckInputs(const Json& body) {
  handlers::TextRequest request;
  if (const Status cut = http::ReadTruncation(body, request); !cut.ok()) {
    CheckRefusal(cut);
  }
  Require(request.max_tokens.value_or(1) > 0, "a limit of tokens");
  const auto items = http::ReadInputs(body, "input");
  if (!items.ok()) return CheckRefusal(items.status());
  Require(!items->empty() && items->size() <= handlers::TextRequest::kMaxItems,
          "as many texts as are allowed");
  for (const handlers::TextItem& item : *items) {
    for (const int32_t id : item.ids.value_or(std::vector<int32_t>())) {
      Require(id >= 0, "an id of a token");
    }
    Require(item.text.empty() || !item.ids.has_value(), "text or ids");
  }
}

void CheckTexts(const Json& body) {
  for (const char* field : {"query", "documents", "texts", "text_1"}) {
    const auto texts = http::ReadTexts(body, field);
    if (!texts.ok()) {
      CheckRefusal(texts.status());
      continue;
    }
    Require(
        !texts->empty() && texts->size() <= handlers::TextRequest::kMaxItems,
        "as many texts as are allowed");
  }
}

void CheckTask(std::string_view bytes) {
  for (const char* type : {"application/json", "image/png", ""}) {
    http::HttpRequest head;
    head.method = "POST";
    head.query = "top_k=3&x";
    head.headers = {{"content-type", type}};
    const auto task = http::ReadTaskBody(head, std::string(bytes));
    if (!task.ok()) CheckRefusal(task.status());
  }
  for (const size_t json_bytes : {bytes.size(), bytes.size() / 2}) {
    const auto infer = http::ReadTaskInfer(bytes, json_bytes);
    if (!infer.ok()) CheckRefusal(infer.status());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  if (data[0] % 4 == 3) {
    CheckTask(text);
    return 0;
  }
  const auto body = millrace::ParseJson(text);
  // Routes refuse what is no object before they look at it.
  if (!body.ok() || !body->is_object()) return 0;
  if (data[0] % 4 == 0) CheckPrompts(*body);
  if (data[0] % 4 == 1) CheckInputs(*body);
  if (data[0] % 4 == 2) CheckTexts(*body);
  return 0;
}
