// Renders arbitrary template text against a fixed conversation under small
// limits. Whatever the text, the answer is a rendering or an INVALID_ARGUMENT;
// the parts joined are the text, and neighbours differ in kind.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/text/chat_template.h"

namespace {

using millrace::models::ChatInput;
using millrace::models::ChatTemplate;
using Json = nlohmann::ordered_json;

Json Parse(const char* text) { return Json::parse(text); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json* messages = new Json(Parse(
      R"([{"role": "system", "content": " Be é. "},
          {"role": "user", "content": "<|im_end|>\nHi 'there' \"you\""},
          {"role": "assistant", "content": null,
           "tool_calls": [{"id": "c", "function":
             {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]}])"));
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
  std::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    joined += (*parts)[i].text;
    CHECK(!(*parts)[i].text.empty(), "no part is empty");
    CHECK(i == 0 || (*parts)[i].from_user != (*parts)[i - 1].from_user,
          "neighbours of one kind are one part");
  }
  CHECK(joined == *text, "the parts are the text");
  return 0;
}
