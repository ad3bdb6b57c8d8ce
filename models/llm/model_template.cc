#include "models/llm/model_template.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "config/base/log.h"

namespace millrace::models {
namespace {

// A model without chats is still a model.
std::shared_ptr<const ChatTemplate> NoTemplate(const Status& why) {
  LogWarning(
      "the model's chat template cannot be used, chat is off",
      {{"why", why.message()}, {"remedy", "give one with chat_template"}});
  return nullptr;
}

}  // namespace

StatusOr<std::shared_ptr<const ChatTemplate>> LoadModelTemplate(
    const ModelSource& source, const std::string& override_path) {
  std::string text;
  const bool overridden = !override_path.empty();
  if (overridden) {
    std::ifstream in(override_path, std::ios::binary);
    if (!in) {
      return NotFound("the chat template '" + override_path +
                      "' cannot be read")
          .At("chat_template");
    }
    text.assign(std::istreambuf_iterator<char>(in), {});
  } else {
    StatusOr<std::string> own = source.ChatTemplateText();
    if (!own.ok()) return NoTemplate(own.status());
    text = *std::move(own);
  }
  if (text.empty()) return std::shared_ptr<const ChatTemplate>();
  StatusOr<std::unique_ptr<ChatTemplate>> made = ChatTemplate::Create(text);
  if (made.ok()) {
    return std::shared_ptr<const ChatTemplate>(std::move(made).value());
  }
  if (overridden) {
    return made.status()
        .Prefixed("'" + override_path + "'")
        .At("chat_template");
  }
  return NoTemplate(made.status());
}

}  // namespace millrace::models
