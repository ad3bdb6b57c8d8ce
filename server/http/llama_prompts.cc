#include "server/http/llama_prompts.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "server/http/pool_work.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kKinds[] =
    "a string, a list of token ids and strings, or an object with "
    "prompt_string and multimodal_data";

std::string ItemPath(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

// {"prompt_string": "What is on <__media__>?", "multimodal_data": ["base64"]}
StatusOr<handlers::TextPrompt> ReadMediaPrompt(const Json& prompt,
                                               const std::string& path) {
  handlers::TextPrompt out;
  const Json* text = handlers::FindField(prompt, "prompt_string");
  const std::string text_path = path + ".prompt_string";
  if (text == nullptr) {
    return InvalidArgument(text_path + " is missing; it is the prompt's text")
        .At(text_path);
  }
  if (!text->is_string()) {
    return handlers::WrongType(text_path, "a string", *text);
  }
  out.text = text->get<std::string>();
  const Json* files = handlers::FindField(prompt, "multimodal_data");
  if (files == nullptr) return out;
  const std::string files_path = path + ".multimodal_data";
  if (!files->is_array()) {
    return handlers::WrongType(files_path, "an array of base64 strings",
                               *files);
  }
  for (size_t i = 0; i < files->size(); ++i) {
    const std::string field = ItemPath(files_path, i);
    if (!(*files)[i].is_string()) {
      return handlers::WrongType(field, "a string in base64", (*files)[i]);
    }
    handlers::ChatImage image = {nullptr, field, field};
    auto bytes = handlers::ReadImageFile(
        (*files)[i].get_ref<const std::string&>(), field);
    if (bytes.ok()) {
      image.bytes = std::make_shared<const std::string>(*std::move(bytes));
    } else {
      image.status = bytes.status();
    }
    out.images.push_back(std::move(image));
  }
  return out;
}

// A string or an id. Special tokens of the model stand before the prompt's
// first string only, and not behind an id.
Status AppendTokens(const handlers::GenerateHandler& handler, const Json& value,
                    const std::string& path, bool first,
                    std::vector<int32_t>& ids) {
  if (value.is_string()) {
    ASSIGN_OR_RETURN(const handlers::TokenizedText text,
                     handler.Tokenize(value.get<std::string>(), first, true));
    ids.insert(ids.end(), text.ids.begin(), text.ids.end());
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t id,
                   handlers::AsInt(value, path, {.min = 0, .max = INT32_MAX}));
  ids.push_back(static_cast<int32_t>(id));
  return OkStatus();
}

StatusOr<LlamaPrompt> ReadOne(const handlers::GenerateHandler& handler,
                              const Json& prompt, const std::string& path) {
  if (prompt.is_object()) {
    ASSIGN_OR_RETURN(handlers::TextPrompt text, ReadMediaPrompt(prompt, path));
    auto shown = std::make_shared<const Json>(text.text);
    return LlamaPrompt{std::move(text), std::move(shown)};
  }
  if (!prompt.is_string() && !prompt.is_array()) {
    return handlers::WrongType(path, kKinds, prompt);
  }
  std::vector<int32_t> ids;
  if (prompt.is_string()) {
    RETURN_IF_ERROR(AppendTokens(handler, prompt, path, true, ids));
  } else if (prompt.empty()) {
    return InvalidArgument(path + " is an empty list; send " + kKinds).At(path);
  }
  for (size_t i = 0; prompt.is_array() && i < prompt.size(); ++i) {
    RETURN_IF_ERROR(
        AppendTokens(handler, prompt[i], ItemPath(path, i), i == 0, ids));
  }
  return LlamaPrompt{handlers::TokenPrompt{std::move(ids)},
                     std::make_shared<const Json>(prompt)};
}

// Whether it is no list of prompts: ids, or ids and strings.
bool IsOnePrompt(const Json& prompt) {
  if (!prompt.is_array() || prompt.empty()) return true;
  const auto is_number = [](const Json& item) { return item.is_number(); };
  const auto is_token = [](const Json& item) {
    return item.is_number() || item.is_string();
  };
  return std::any_of(prompt.begin(), prompt.end(), is_number) &&
         std::all_of(prompt.begin(), prompt.end(), is_token);
}

}  // namespace

StatusOr<std::vector<LlamaPrompt>> ReadLlamaPrompts(
    const handlers::GenerateHandler& handler, const Json& body) {
  const Json* prompt = handlers::FindField(body, "prompt");
  if (prompt == nullptr) {
    return InvalidArgument(std::string("prompt is missing; send ") + kKinds +
                           ", or a list of these")
        .At("prompt");
  }
  std::vector<LlamaPrompt> prompts;
  if (IsOnePrompt(*prompt)) {
    ASSIGN_OR_RETURN(LlamaPrompt one, ReadOne(handler, *prompt, "prompt"));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (prompt->size() > kMaxPrompts) return TooManyPrompts(prompt->size());
  for (size_t i = 0; i < prompt->size(); ++i) {
    ASSIGN_OR_RETURN(LlamaPrompt one,
                     ReadOne(handler, (*prompt)[i], ItemPath("prompt", i)));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

}  // namespace millrace::server::http
