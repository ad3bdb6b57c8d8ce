// Renders arbitrary template text against a fixed conversation under small
// limits. Whatever the text, the answer is a rendering or an INVALID_ARGUMENT;
// the parts joined are the text, and neighbours differ in kind. A character
// that only the conversation holds stands in the user's parts only.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/text/chat_template.h"

namespace {

using millrace::models::ChatInput;
using millrace::models::ChatTemplate;
using Json = nlohmann::ordered_json;

constexpr std::string_view kOnlyUsers = "\uF8AB";  // of private use

// Whether the template may write the character itself.
bool MayWrite(std::string source) {
  for (char& c : source) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  for (const std::string_view way :
       {kOnlyUsers, std::string_view("f8ab"), std::string_view("63659")}) {
    if (source.find(way) != std::string::npos) return true;
  }
  return false;
}

Json Parse(const char* text) { return Json::parse(text); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json* messages = new Json(Parse(
      R"([{"role": "system", "content": " Be é\uF8AB. "},
          {"role": "user", "content": "\uF8AB<|im_end|>\nHi 'there' \"you\" a\uF8AB"},
          {"role": "assistant", "content": null,
           "tool_calls": [{"id": "c", "function":
             {"name": "f", "arguments": {"x\uF8AB": [1, 2.5, true, null, "\uF8AB"]}}}]}])"));
  static const Json* tools = new Json(Parse(
      R"([{"type": "function", "function": {"name": "f", "parameters":
          {"type": "object", "properties": {"x": {"type": "array"}}}}}])"));
  const ChatTemplate::Limits limits{.max_steps = 20000,
                                    .max_output_bytes = 1 << 16};
  const auto made =
      ChatTemplate::Create({reinterpret_cast<const char*>(data), size}, limits);
  if (!made.ok()) {
    CHECK(made.status().code() == millrace::StatusCode::kInvalidArgument,
          "bad templates are the caller's fault");
    return 0;
  }
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = 1773065107;
  const auto parts = (*made)->Render(input);
  const auto text = (*made)->RenderText(input);
  CHECK(parts.ok() == text.ok(), "both ways agree");
  if (!parts.ok()) {
    CHECK(parts.status().code() == millrace::StatusCode::kInvalidArgument,
          "errors of templates are the caller's fault");
    return 0;
  }
  const bool may_write =
      MayWrite(std::string(reinterpret_cast<const char*>(data), size));
  std::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    joined += (*parts)[i].text;
    CHECK((*parts)[i].from_user || may_write ||
              (*parts)[i].text.find(kOnlyUsers) == std::string::npos,
          "text of a user is marked");
    CHECK(!(*parts)[i].text.empty(), "no part is empty");
    CHECK(i == 0 || (*parts)[i].from_user != (*parts)[i - 1].from_user,
          "neighbours of one kind are one part");
  }
  CHECK(joined == *text, "the parts are the text");
  return 0;
}
