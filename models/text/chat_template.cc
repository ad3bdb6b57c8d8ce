// Converts a request's messages to values of the template language and marks
// their text as the user's, so that it cannot become special tokens.
#include "models/text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/utf8.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/parser.h"
#include "models/text/jinja/runtime.h"

namespace millrace::models {
namespace {

using jinja::Runtime;
using jinja::Text;
using jinja::Value;
using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 100;

StatusOr<Value> FromJson(Runtime& runtime, const Json& json, int depth) {
  if (depth > kMaxJsonDepth) {
    return InvalidArgument("the request's values are nested more than " +
                           std::to_string(kMaxJsonDepth) + " deep");
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>()).FromUser();
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>()).FromUser();
    case Json::value_t::number_unsigned:
      return Value::Int(json.get<uint64_t>()).FromUser();
    case Json::value_t::number_float:
      return Value::Float(json.get<double>()).FromUser();
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      ASSIGN_OR_RETURN(
          Value out,
          runtime.MakeString(
              IsValidUtf8(text) ? text : ReplaceInvalidUtf8(text), true));
      return std::move(out).FromUser();
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        ASSIGN_OR_RETURN(Value value, FromJson(runtime, item, depth + 1));
        items.push_back(std::move(value));
      }
      ASSIGN_OR_RETURN(Value out,
                       runtime.MakeItems(Value::Kind::kList, std::move(items)));
      return std::move(out).FromUser();
    }
    case Json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, item] : json.items()) {
        ASSIGN_OR_RETURN(Value value, FromJson(runtime, item, depth + 1));
        dict.Set(Value::String(IsValidUtf8(key) ? key : ReplaceInvalidUtf8(key),
                               true)
                     .FromUser(),
                 std::move(value));
      }
      ASSIGN_OR_RETURN(Value out, runtime.MakeDict(std::move(dict)));
      return std::move(out).FromUser();
    }
    default:
      return Value::None().FromUser();
  }
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  Limits limits;
  jinja::Body body;

  StatusOr<Text> Render(const ChatInput& input) const;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(
    std::string_view source, const Limits& limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_source_bytes) {
    return InvalidArgument(
        "the chat template has " + std::to_string(source.size()) +
        " bytes; the limit is " + std::to_string(limits.max_source_bytes));
  }
  if (!IsValidUtf8(source)) {
    return InvalidArgument("the chat template is not valid UTF-8 at byte " +
                           std::to_string(ValidUtf8Prefix(source)));
  }
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  impl->limits = limits;
  ASSIGN_OR_RETURN(impl->body, jinja::Parse(source, limits.max_depth));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

StatusOr<Text> ChatTemplate::Impl::Render(const ChatInput& input) const {
  Runtime runtime(limits, input.now == 0 ? std::time(nullptr) : input.now);
  // Later names win nothing: the first of a name is found.
  std::vector<std::pair<std::string, Value>> globals;
  const auto add = [&](const char* name, const Json* json) -> Status {
    Value value = Value::None();
    if (json != nullptr) {
      ASSIGN_OR_RETURN(value, FromJson(runtime, *json, 0));
    }
    globals.emplace_back(name, std::move(value));
    return OkStatus();
  };
  RETURN_IF_ERROR(add("messages", input.messages));
  RETURN_IF_ERROR(add("tools", input.tools));
  globals.emplace_back("add_generation_prompt",
                       Value::Bool(input.add_generation_prompt));
  if (input.extra != nullptr && input.extra->is_object()) {
    for (const auto& [name, json] : input.extra->items()) {
      RETURN_IF_ERROR(add(name.c_str(), &json));
    }
  }
  RETURN_IF_ERROR(add("documents", nullptr));
  globals.emplace_back("bos_token",
                       Value::String(ReplaceInvalidUtf8(input.bos_token)));
  globals.emplace_back("eos_token",
                       Value::String(ReplaceInvalidUtf8(input.eos_token)));
  return jinja::Interpreter(runtime, std::move(globals)).Run(body);
}

StatusOr<std::vector<PromptPart>> ChatTemplate::Render(
    const ChatInput& input) const {
  ASSIGN_OR_RETURN(const Text text, impl_->Render(input));
  std::vector<PromptPart> out;
  text.ForEachRun([&](std::string_view run, bool from_user) {
    out.push_back({std::string(run), from_user});
  });
  return out;
}

StatusOr<std::string> ChatTemplate::RenderText(const ChatInput& input) const {
  ASSIGN_OR_RETURN(const Text text, impl_->Render(input));
  return text.bytes();
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace millrace::models
