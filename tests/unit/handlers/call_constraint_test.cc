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

TEST(CallConstraint, SeveralToolsAreBranchesBehindTheirNames) {
  for (const char* parser : {"hermes", "llama3_json", "mistral", "granite",
                             "deepseek_v3", "deepseek_v31", "harmony"}) {
    const OutputFormats formats = Format(parser);
    const OutputConstraint call = CallConstraint(formats, ChatWith(kTwoTools));
    EXPECT_EQ(call.kind, ConstraintKind::kStructuralTag) << parser;
    EXPECT_EQ(call.field, "tools");
    const Json any = Json::parse(call.text)["format"];
    EXPECT_EQ(any["type"], "or");
    ASSERT_EQ(any["elements"].size(), 2u);
    const Json& g = any["elements"][1];
    EXPECT_EQ(g["type"], "sequence");
    EXPECT_EQ(g["elements"][0]["value"],
              "g" + std::string(formats.tools->behind_name));
    EXPECT_EQ(g["elements"][1]["type"], "json_schema");
    EXPECT_EQ(g["elements"][1]["json_schema"]["additionalProperties"], false);
  }
}

TEST(CallConstraint, NoneWhereNoCallMustComeOrItsArgumentsAreNotJson) {
  ChatPrompt chat = ChatWith(kTwoTools, "f");
  EXPECT_FALSE(CallConstraint(Format("pythonic"), chat));
  EXPECT_FALSE(CallConstraint(Format("gemma"), chat));
  EXPECT_FALSE(CallConstraint(Format("none"), chat));
  chat.tool_choice.mode = ToolChoice::Mode::kAuto;
  EXPECT_FALSE(CallConstraint(Format("hermes"), chat));
}

TEST(CallConstraint, ARefusalNamesTheToolAndTheKeyword) {
  constexpr char kBad[] = R"([
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g", "parameters": {
      "type": "object", "not": {}}}}])";
  const Status refusal = InvalidArgument("no").At("tools");
  for (const char* name : {"", "g"}) {
    const Status status = AtTool(ChatWith(kBad, name), refusal);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "tools[1].function.parameters");
    EXPECT_THAT(std::string(status.message()), HasSubstr("keyword 'not'"));
  }
  // The fault is elsewhere.
  EXPECT_EQ(AtTool(ChatWith(kBad, "f"), refusal).field(), "tools");
  const Status busy = ResourceExhausted("busy");
  EXPECT_EQ(AtTool(ChatWith(kBad), busy).code(), busy.code());
}

}  // namespace
}  // namespace millrace::handlers
