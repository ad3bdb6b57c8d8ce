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
    messages += R"(, {"role": "tool", "content": "b"})";
  }
  EXPECT_THAT(
      std::string(
          Render(kTwoRoles, (messages + "]").c_str()).status().message()),
      HasSubstr("messages[1].role is \"tool\""));
}

}  // namespace
}  // namespace millrace::handlers
