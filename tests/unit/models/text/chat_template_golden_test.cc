// Ten templates over sixteen conversations against what transformers rendered
// (tests/golden/text/chat_templates.json).
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/chat_template.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

const Json* Find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// "2026-03-09T14:05:07" as local time.
std::time_t LocalTime(const std::string& text) {
  std::tm parts{};
  EXPECT_NE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts), nullptr);
  parts.tm_isdst = -1;
  return std::mktime(&parts);
}

TEST(ChatTemplateGolden, RendersAsTransformersDoes) {
  std::ifstream file("tests/golden/text/chat_templates.json");
  const Json golden = Json::parse(file);
  const Json& cases = golden.at("cases");
  ASSERT_EQ(cases.size(), 320u);
  int failures = 0;
  for (const Json& row : cases) {
    const std::string name = row.at("template");
    const std::string label =
        name + " / " + row.at("conversation").get<std::string>();
    const auto made = ChatTemplate::Create(
        golden.at("templates").at(name).get<std::string>());
    ASSERT_TRUE(made.ok()) << label << ": " << made.status().ToString();
    const Json& talk = golden.at("conversations")
                           .at(row.at("conversation").get<std::string>());
    ChatInput input;
    input.messages = &talk.at("messages");
    input.tools = Find(talk, "tools");
    input.extra = Find(talk, "kwargs");
    input.add_generation_prompt = row.at("add_generation_prompt");
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.now = LocalTime(golden.at("meta").at("now"));

    const auto rendered = (*made)->RenderText(input);
    if (const Json* expected = Find(row, "rendered")) {
      ASSERT_TRUE(rendered.ok()) << label << rendered.status().ToString();
      EXPECT_EQ(*rendered, expected->get<std::string>()) << label;
      continue;
    }
    ++failures;
    const std::string error = row.at("error");
    ASSERT_FALSE(rendered.ok()) << label << ", which should be: " << error;
    EXPECT_EQ(rendered.status().code(), StatusCode::kInvalidArgument);
    if (error.starts_with("TemplateError: ")) {  // raise_exception's own words
      EXPECT_EQ("TemplateError: " + std::string(rendered.status().message()),
                error);
    }
  }
  EXPECT_EQ(failures, 26);
}

}  // namespace
}  // namespace millrace::models
