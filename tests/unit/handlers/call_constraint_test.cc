// What a call that must come is held to, by format and choice of tool.
#include "handlers/call_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::handlers {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using models::ConstraintKind;
using models::OutputConstraint;

constexpr char kTwoTools[] = R"([
  {"type": "function", "function": {"name": "f", "parameters": {
    "properties": {"x": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "g"}}])";

ChatPrompt ChatWith(const char* tools, std::string name = "") {
  ChatPrompt chat;
  chat.tools = std::make_shared<const Json>(Json::parse(tools));
  chat.tool_choice = {.mode = ToolChoice::Mode::kRequired,
                      .name = std::move(name)};
  for (const Json& tool : *chat.tools) {
    chat.tool_choice.names.push_back(tool["function"]["name"]);
  }
  return chat;
}

OutputFormats Format(const char* parser) {
  return *ChooseFormats(parser, "none", "");
}

TEST(CallConstraint, OneToolIsHeldToItsSchema) {
  const OutputConstraint call =
      CallConstraint(Format("hermes"), ChatWith(kTwoTools, "f"));
  EXPECT_EQ(call.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(Json::parse(call.text),
            Json::parse(R"({"properties": {"x": {"type": "integer"}},
                            "type": "object"})"));
  EXPECT_EQ(call.field, "tools[0].function.parameters");
}

TEST(CallConstraint, AFunctionWithoutParametersTakesNoArguments) {
  const OutputConstraint call =
      CallConstraint(Format("hermes"), ChatWith(kTwoTools, "g"));
  EXPECT_EQ(Json::parse(call.text),
            Json::parse(R"({"type": "object", "properties": {},
                            "additionalProperties": false})"));
  EXPECT_EQ(call.field, "tools[1].function.parameters");
}

TEST(CallConstraint, SeveralToolsAreTagsBehindTheirNames) {
  for (const char* parser : {"hermes", "llama3_json", "mistral", "granite",
                             "deepseek_v3", "deepseek_v31", "harmony"}) {
    const OutputFormats formats = Format(parser);
    const OutputConstraint call = CallConstraint(formats, ChatWith(kTwoTools));
    EXPECT_EQ(call.kind, ConstraintKind::kStructuralTag) << parser;
    EXPECT_EQ(call.field, "tools");
    Json calls = Json::parse(call.text)["format"];
    if (!formats.tools->behind_calls.empty()) {
      EXPECT_EQ(calls["elements"][1]["value"], formats.tools->behind_calls);
      calls = Json(calls["elements"][0]);
    }
    EXPECT_EQ(calls["type"], "tags_with_separator");
    EXPECT_EQ(calls["separator"], formats.tools->between_calls);
    EXPECT_EQ(calls["at_least_one"], true);
    EXPECT_EQ(calls["stop_after_first"], formats.tools->between_calls.empty());
    ASSERT_EQ(calls["tags"].size(), 2u);
    const Json& g = calls["tags"][1];
    EXPECT_EQ(g["begin"], "g" + std::string(formats.tools->behind_name));
    EXPECT_EQ(g["end"], formats.tools->behind_arguments);
    EXPECT_EQ(g["content"]["type"], "json_schema");
    EXPECT_EQ(g["content"]["json_schema"]["additionalProperties"], false);
  }
}

TEST(CallConstraint, OneCallWhereNotSeveralMayCome) {
  ChatPrompt chat = ChatWith(kTwoTools);
  chat.tool_choice.parallel = false;
  const OutputConstraint call = CallConstraint(Format("hermes"), chat);
  EXPECT_EQ(Json::parse(call.text)["format"]["stop_after_first"], true);
}

// Its name is in the prompt already.
TEST(CallConstraint, TheOnlyToolMayBeCalledSeveralTimes) {
  ChatPrompt chat =
      ChatWith(R"([{"type": "function", "function": {"name": "f"}}])");
  const OutputConstraint calls = CallConstraint(Format("hermes"), chat);
  const Json format = Json::parse(calls.text)["format"];
  ASSERT_EQ(format["elements"].size(), 3u);
  EXPECT_EQ(format["elements"][0]["type"], "json_schema");
  EXPECT_EQ(format["elements"][2]["tags"][0]["begin"],
            "\n<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(format["elements"][2]["at_least_one"], false);
  chat.tool_choice.parallel = false;
  EXPECT_EQ(CallConstraint(Format("hermes"), chat).kind,
            ConstraintKind::kJsonSchema);
}

TEST(CallConstraint, InFreeTextACallIsHeldFromItsBeginningOn) {
  for (const char* parser :
       {"hermes", "llama3_json", "mistral", "granite", "deepseek_v3",
        "deepseek_v31", "harmony", "gemma", "gemma4"}) {
    const OutputFormats formats = Format(parser);
    const ToolFormat& words = *formats.tools;
    ChatPrompt chat = ChatWith(kTwoTools);
    chat.tool_choice.mode = ToolChoice::Mode::kAuto;
    const OutputConstraint text = CallConstraint(formats, chat);
    const Json format = Json::parse(text.text)["format"];
    EXPECT_EQ(format["type"], "triggered_tags") << parser;
    ASSERT_EQ(format["triggers"].size(), 1u);
    const auto trigger = format["triggers"][0].get<std::string>();
    EXPECT_FALSE(trigger.empty());
    EXPECT_TRUE(words.before_name.starts_with(trigger));
    for (const Json& tag : format["tags"]) {
      const auto begin = tag["begin"].get<std::string>();
      EXPECT_TRUE(begin.starts_with(words.before_name)) << begin;
    }
    EXPECT_EQ(format["tags"].size(), words.behind_calls.empty() ? 2u : 1u);
    EXPECT_EQ(format["stop_after_first"], false);
    EXPECT_TRUE(MayRunFreely(chat));
  }
}

TEST(CallConstraint, AStrictToolDoesNotRunFreely) {
  ChatPrompt chat = ChatWith(R"([
    {"type": "function", "function": {"name": "f", "strict": false}},
    {"type": "function", "function": {"name": "g", "strict": true}}])");
  EXPECT_FALSE(MayRunFreely(chat));
  chat.tool_choice.mode = ToolChoice::Mode::kAuto;
  EXPECT_FALSE(MayRunFreely(chat));
}

TEST(CallConstraint, NoneWhereNoCallMayCome) {
  ChatPrompt chat = ChatWith(kTwoTools, "f");
  EXPECT_FALSE(CallConstraint(Format("none"), chat));
  chat.tool_choice.mode = ToolChoice::Mode::kNone;
  EXPECT_FALSE(CallConstraint(Format("hermes"), chat));
  // Any list begins like a call.
  chat.tool_choice.mode = ToolChoice::Mode::kAuto;
  EXPECT_FALSE(CallConstraint(Format("pythonic"), chat));
}

TEST(CallConstraint, ACallThatIsNotJsonIsHeldUpToItsEnd) {
  const OutputConstraint call =
      CallConstraint(Format("pythonic"), ChatWith(kTwoTools, "f"));
  const Json format = Json::parse(call.text)["format"];
  EXPECT_EQ(format["elements"][1]["value"], "]");
  const Json& one = format["elements"][0];
  ASSERT_EQ(one["elements"].size(), 2u) << "a named function is called once";
  EXPECT_EQ(one["elements"][0]["notation"], "pythonic");
  EXPECT_EQ(one["elements"][1]["value"], ")");
}

TEST(CallConstraint, ARefusalNamesTheToolAndTheKeyword) {
  constexpr char kBad[] = R"([
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g", "parameters": {
      "type": "object", "not": {}}}}])";
  const Status refusal = InvalidArgument("no").At("tools");
  for (const char* name : {"", "g"}) {
    const Status status =
        AtTool(Format("hermes"), ChatWith(kBad, name), refusal);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "tools[1].function.parameters");
    EXPECT_THAT(std::string(status.message()), HasSubstr("keyword 'not'"));
  }
  // The fault is elsewhere.
  EXPECT_EQ(AtTool(Format("hermes"), ChatWith(kBad, "f"), refusal).field(),
            "tools");
  const Status busy = ResourceExhausted("busy");
  EXPECT_EQ(AtTool(Format("hermes"), ChatWith(kBad), busy).code(), busy.code());
}

}  // namespace
}  // namespace millrace::handlers
