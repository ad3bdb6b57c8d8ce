// The template language case by case against Jinja itself
// (tests/golden/text/jinja_cases.json and the script beside it).
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/chat_template.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

TEST(JinjaGolden, EveryCaseIsWhatJinjaMakesOfIt) {
  std::ifstream file("tests/golden/text/jinja_cases.json");
  const Json golden = Json::parse(file);
  const Json& context = golden.at("context");
  Json extra = context;
  extra.erase("messages");
  extra.erase("tools");
  std::tm now{};
  ASSERT_NE(strptime(golden.at("meta").at("now").get<std::string>().c_str(),
                     "%Y-%m-%dT%H:%M:%S", &now),
            nullptr);
  now.tm_isdst = -1;
  ChatInput input;
  input.messages = &context.at("messages");
  input.tools = &context.at("tools");
  input.extra = &extra;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = std::mktime(&now);

  int rendered = 0, failed = 0;
  for (const Json& row : golden.at("cases")) {
    const std::string source = row.at("template");
    const auto made = ChatTemplate::Create(source);
    const auto text = made.ok() ? (*made)->RenderText(input)
                                : StatusOr<std::string>(made.status());
    if (row.contains("rendered")) {
      ++rendered;
      EXPECT_TRUE(text.ok()) << source << "\n" << text.status().ToString();
      EXPECT_EQ(text.ok() ? *text : "", row.at("rendered").get<std::string>())
          << source;
      continue;
    }
    ++failed;
    const std::string error = row.at("error");
    EXPECT_FALSE(text.ok()) << source << "\nshould be: " << error;
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
    if (error.starts_with("TemplateError: ")) {
      EXPECT_EQ("TemplateError: " + std::string(text.status().message()),
                error);
    }
  }
  EXPECT_GE(rendered, 200);
  EXPECT_GE(failed, 50);
}

}  // namespace
}  // namespace millrace::models
