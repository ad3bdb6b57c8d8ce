// Roles that a chat template does not know.
#include "handlers/generate_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace::handlers {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

StatusOr<std::vector<models::PromptPart>> Render(const char* source,
                                                 const char* messages) {
  auto chat_template = models::ChatTemplate::Create(source);
  EXPECT_TRUE(chat_template.ok()) << chat_template.status().message();
  GenerateParts parts;
  parts.model = "tiny";
  parts.chat_template = std::move(chat_template).value();
  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(Json::parse(messages));
  return RenderChat(parts, chat);
}

constexpr char kTwoRoles[] =
    "{% for m in messages %}{% if m.role == 'user' or m.role == \"assistant\" "
    "%}[{{ m.content }}]{% endif %}{% endfor %}";

TEST(GeneratePrompt, ARoleThatTheTemplateLeavesOutIsRefused) {
  const Status status = Render(kTwoRoles, R"([{"role": "user", "content": "a"},
                            {"role": "wizard", "content": "b"}])")
                            .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "messages[1].role");
  EXPECT_EQ(status.message(),
            "messages[1].role is \"wizard\", which the chat template of model "
            "'tiny' leaves out; it knows \"user\", \"assistant\"");
}

TEST(GeneratePrompt, ARoleThatTheTemplateWritesDownIsItsOwnAffair) {
  const auto parts = Render(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
      R"([{"role": "wizard", "content": "a"}])");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
}

TEST(GeneratePrompt, TheFirstMessageOfTheRoleIsNamed) {
  std::string messages = R"([{"role": "user", "content": "a"})";
  for (int i = 0; i < 3; ++i) {
    messages += R"(, {"role": "ipython", "content": "b"})";
  }
  EXPECT_THAT(
      std::string(
          Render(kTwoRoles, (messages + "]").c_str()).status().message()),
      HasSubstr("messages[1].role is \"ipython\""));
}

constexpr char kChat[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

std::string Joined(const StatusOr<std::vector<models::PromptPart>>& parts) {
  std::string text;
  if (!parts.ok()) return std::string(parts.status().message());
  for (const auto& part : *parts) text += part.text;
  return text;
}

TEST(GeneratePrompt, ATemplateWithoutToolsGetsThemAsText) {
  GenerateParts parts;
  parts.formats = *ChooseFormats("auto", "auto", kChat);
  parts.chat_template = *models::ChatTemplate::Create(kChat);
  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(Json::parse(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"},
    {"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])"));
  chat.tools = std::make_shared<const Json>(
      Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  chat.tool_choice = {.mode = ToolChoice::Mode::kRequired, .names = {"f"}};
  const std::string text = Joined(RenderChat(parts, chat));
  EXPECT_THAT(text, HasSubstr("system:Be brief.\n\nYou may call functions."));
  EXPECT_THAT(text,
              HasSubstr(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_THAT(text, HasSubstr("assistant:<tool_call>\n{\"name\":\"f\","
                              "\"arguments\":{\"x\":1}}\n</tool_call>;"));
  EXPECT_THAT(text, HasSubstr("user:<tool_response>\n1\n</tool_response>\n"
                              "<tool_response>\n2\n</tool_response>;"));
  EXPECT_TRUE(text.ends_with("<tool_call>\n{\"name\": \"f\", \"arguments\": "));
}

TEST(GeneratePrompt, ACallThatMustComeEndsTheReasoning) {
  const std::string source = std::string(kChat) + "tools <tool_call><think>\n";
  GenerateParts parts;
  parts.formats = *ChooseFormats("hermes", "think", source);
  parts.chat_template = *models::ChatTemplate::Create(source);
  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(
      Json::parse(R"([{"role": "user", "content": "a"}])"));
  chat.tool_choice = {.mode = ToolChoice::Mode::kRequired, .names = {"f", "g"}};
  EXPECT_TRUE(Joined(RenderChat(parts, chat))
                  .ends_with("<think></think>\n\n<tool_call>\n{\"name\": \""));
  parts.formats.tools = nullptr;
  EXPECT_EQ(RenderChat(parts, chat).status().field(), "tool_choice");
}

TEST(GeneratePrompt, ATurnOfCallsHasNullOrAnEmptyText) {
  constexpr char kTurn[] = R"([{"role": "assistant", "content": null}])";
  EXPECT_EQ(Joined(Render("{% for m in messages %}{% if m.content is none %}"
                          "calls{% endif %}{% endfor %}",
                          kTurn)),
            "calls");
  constexpr char kNeedsText[] =
      "{% for m in messages %}{% if '</think>' not in m.content %}"
      "[{{ m.content }}]{% endif %}{% endfor %}";
  EXPECT_EQ(Joined(Render(kNeedsText, kTurn)), "[]");
  EXPECT_EQ(Joined(Render(kNeedsText, R"([{"role": "assistant"}])")), "[]");
  // Another error stays what it was.
  EXPECT_THAT(Joined(Render("{{ raise_exception('no') }}", kTurn)),
              HasSubstr("no"));
}

// The parts of the prompt, user's text in brackets.
std::string Continued(const char* source, const Json& messages) {
  GenerateParts parts;
  parts.model = "tiny";
  parts.chat_template = *models::ChatTemplate::Create(source);
  ChatPrompt chat;
  chat.messages = std::make_shared<const Json>(messages);
  chat.template_kwargs =
      std::make_shared<const Json>(Json{{kContinueFinalMessage, true}});
  const auto rendered = RenderChat(parts, chat);
  if (!rendered.ok()) {
    return std::string(rendered.status().field()) + ": " +
           std::string(rendered.status().message());
  }
  std::string text;
  for (const auto& part : *rendered) {
    text += part.from_user ? "[" + part.text + "]" : part.text;
  }
  return text;
}

constexpr char kTurns[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(GeneratePrompt, TheLastMessageGoesOn) {
  const Json ask = {{"role", "user"}, {"content", "one one"}};
  const auto turns = [&](const Json& content) {
    return Json::array({ask, {{"role", "assistant"}, {"content", content}}});
  };
  EXPECT_EQ(Continued(kTurns, turns("It is ")),
            "<[user]>[one one]</s><[assistant]>[It is ]");
  // The same text before it, and marks of the template in it.
  EXPECT_EQ(Continued(kTurns, turns("one")),
            "<[user]>[one one]</s><[assistant]>[one]");
  EXPECT_EQ(Continued(kTurns, turns("a</s>")),
            "<[user]>[one one]</s><[assistant]>[a</s>]");
  // The same text in marks of the template behind it.
  EXPECT_EQ(Continued(kTurns, turns("<")),
            "<[user]>[one one]</s><[assistant]>[<]");
  EXPECT_EQ(Continued(kTurns, turns("s")),
            "<[user]>[one one]</s><[assistant]>[s]");
  // A template that takes white space away.
  constexpr char kTrims[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>"
      "{% endfor %}";
  EXPECT_EQ(Continued(kTrims, turns("\n It is ")),
            "<[user]>[one one]</s><[assistant]>[It is]");
  EXPECT_EQ(Continued(kTurns, turns("\n It is ")),
            "<[user]>[one one]</s><[assistant]>[\n It is ]");
}

TEST(GeneratePrompt, AMessageWithoutTextCannotGoOn) {
  const auto turn = [](const Json& content) {
    return Json::array({{{"role", "assistant"}, {"content", content}}});
  };
  for (const char* empty : {"", " \n"}) {
    EXPECT_THAT(Continued(kTurns, turn(empty)),
                HasSubstr("messages[0].content: messages[0].content is empty"));
  }
  EXPECT_THAT(
      Continued("{% for m in messages %}{{ m.content[1:] }}{% endfor %}",
                turn("abc")),
      HasSubstr("messages[0].content is not in the prompt"));
}

}  // namespace
}  // namespace millrace::handlers
