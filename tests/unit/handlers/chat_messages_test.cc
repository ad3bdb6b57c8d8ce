#include "handlers/chat_messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"

namespace millrace::handlers {
namespace {

StatusOr<ChatPrompt> Read(const std::string& text) {
  auto body = ParseJson(text);
  EXPECT_TRUE(body.ok()) << text;
  return ReadChatPrompt(*body);
}

TEST(ChatMessages, PlainMessagesPassAsTheyAreWithUnknownKeys) {
  const auto chat = Read(
      R"({"messages": [{"role": "user", "content": "Hi", "name": "Ann"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ(DumpJson(*chat->messages),
            R"([{"role":"user","content":"Hi","name":"Ann"}])");
  EXPECT_TRUE(chat->add_generation_prompt);
  EXPECT_EQ(chat->tools, nullptr);
  EXPECT_EQ(chat->template_kwargs, nullptr);
}

TEST(ChatMessages, TextPartsBecomeOneString) {
  const auto chat = Read(
      R"({"messages": [{"role": "user", "content": [
          {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ((*chat->messages)[0]["content"], "a\nb");
}

TEST(ChatMessages, NullContentAndAssistantWithoutContentAreAccepted) {
  const auto chat = Read(
      R"({"messages": [{"role": "assistant", "content": null},
                       {"role": "assistant", "tool_calls": []}],
          "add_generation_prompt": false,
          "chat_template_kwargs": {"enable_thinking": false},
          "tools": [{"type": "function", "function": {"name": "f"}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_FALSE(chat->add_generation_prompt);
  EXPECT_EQ(DumpJson(*chat->template_kwargs), R"({"enable_thinking":false})");
  EXPECT_EQ(chat->tools->size(), 1u);
}

TEST(ChatMessages, ArgumentsOfCallsBecomeObjects) {
  const auto chat = Read(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [
          {"id": "1", "type": "function", "function":
            {"name": "f", "arguments": "{\"a\": 1}"}},
          {"id": "2", "type": "function", "function": {"name": "g"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "x"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  const auto& calls = (*chat->messages)[0]["tool_calls"];
  EXPECT_EQ(DumpJson(calls[0]["function"]["arguments"]), R"({"a":1})");
  EXPECT_EQ(DumpJson(calls[1]["function"]["arguments"]), "{}");
  EXPECT_EQ(calls[0]["id"], "1");
}

TEST(ChatMessages, ArgumentsThatAreNoObjectAreRefused) {
  for (const char* arguments : {R"("5")", R"("[1]")", R"("{")", "5", "[1]"}) {
    const auto chat = Read(
        R"({"messages": [{"role": "assistant", "tool_calls": [
            {"function": {"name": "f", "arguments": )" +
        std::string(arguments) + "}}]}]}");
    EXPECT_EQ(chat.status().field(),
              "messages[0].tool_calls[0].function.arguments")
        << arguments;
  }
}

TEST(ChatMessages, ToolChoiceSaysWhatMayBeCalled) {
  const auto read = [](const std::string& fields) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}], "tools":
                   [{"type": "function", "function": {"name": "f"}}], )" +
                fields + "}");
  };
  EXPECT_EQ(read(R"("tool_choice": "none")")->tools, nullptr);
  EXPECT_EQ(read(R"("tool_choice": "required")")->tool_choice.mode,
            ToolChoice::Mode::kRequired);
  const auto named = read(
      R"("tool_choice": {"type": "function", "function": {"name": "f"}},
         "parallel_tool_calls": false)");
  EXPECT_EQ(named->tool_choice.name, "f");
  EXPECT_FALSE(named->tool_choice.parallel);
  EXPECT_EQ(read(R"("tool_choice": {"type": "function", "function":
                     {"name": "g"}})")
                .status()
                .field(),
            "tool_choice");
  EXPECT_EQ(read(R"("tool_choice": "any")").status().field(), "tool_choice");
}

TEST(ChatMessages, AllowedToolsAreTheOnlyOnes) {
  const auto read = [](const std::string& allowed) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}], "tools":
                   [{"type": "function", "function": {"name": "f"}},
                    {"type": "function", "function": {"name": "g"}},
                    {"type": "function", "function": {"name": "h"}}],
                    "tool_choice": {"type": "allowed_tools", )" +
                allowed + "}}");
  };
  const auto two = read(
      R"("allowed_tools": {"mode": "auto", "tools": [
           {"type": "function", "function": {"name": "h"}},
           {"type": "function", "function": {"name": "f"}}]})");
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ(two->tool_choice.mode, ToolChoice::Mode::kAuto);
  EXPECT_EQ(two->tool_choice.names, (std::vector<std::string>{"f", "h"}));
  ASSERT_EQ(two->tools->size(), 2u);
  EXPECT_EQ((*two->tools)[1]["function"]["name"], "h");
  // As Responses have it.
  const auto one = read(
      R"("mode": "required", "tools": [{"type": "function", "name": "g"}])");
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  EXPECT_EQ(one->tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_EQ(one->tool_choice.names, std::vector<std::string>{"g"});
  for (const char* bad :
       {R"("mode": "none", "tools": [{"name": "g"}])", R"("mode": "auto")",
        R"("mode": "auto", "tools": [])", R"("mode": "auto", "tools": [7])",
        R"("mode": "auto", "tools": [{"name": "i"}])",
        R"("allowed_tools": {"tools": [{"name": "g"}]})"}) {
    EXPECT_TRUE(
        read(bad).status().field().starts_with("tool_choice.allowed_tools."))
        << bad;
  }
  std::string many = R"({"name": "g"})";
  for (int i = 0; i < 1024; ++i) many += R"(, {"name": "g"})";
  EXPECT_EQ(read(R"("mode": "auto", "tools": [)" + many + "]").status().field(),
            "tool_choice.allowed_tools.tools");
}

TEST(ChatMessages, TheLastMessageMayGoOn) {
  const auto read = [](const std::string& more) {
    return Read(R"({"messages": [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"}], )" +
                more + "}");
  };
  for (const char* field :
       {R"("continue_final_message": true)",
        R"("continue_final_message": true, "add_generation_prompt": false)",
        R"("chat_template_kwargs": {"continue_final_message": true})"}) {
    const auto chat = read(field);
    ASSERT_TRUE(chat.ok()) << chat.status().ToString();
    EXPECT_EQ((*chat->template_kwargs)["continue_final_message"], true);
  }
  EXPECT_TRUE(read(R"("continue_final_message": false)").ok());
  const auto null =
      read(R"("chat_template_kwargs": {"continue_final_message": null})");
  ASSERT_TRUE(null.ok()) << null.status().ToString();
  EXPECT_EQ(null->template_kwargs, nullptr);
  for (const char* field :
       {R"("continue_final_message": 1)",
        R"("continue_final_message": true, "add_generation_prompt": true)",
        R"("chat_template_kwargs": {"continue_final_message": "yes"})",
        R"("continue_final_message": true, "tool_choice": "required", "tools":
           [{"type": "function", "function": {"name": "f"}}])"}) {
    EXPECT_EQ(read(field).status().field(), "continue_final_message") << field;
  }
  EXPECT_EQ(Read(R"({"continue_final_message": true, "messages": [
                     {"role": "assistant", "content": "a", "tool_calls": [
                       {"function": {"name": "f", "arguments": "{}"}}]}]})")
                .status()
                .field(),
            "continue_final_message");
}

TEST(ChatMessages, ParametersOfAToolAreAnObject) {
  const auto read = [](const std::string& parameters) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}], "tools":
                   [{"type": "function", "function": {"name": "f",
                     "parameters": )" +
                parameters + "}}]}")
        .status();
  };
  for (const char* good :
       {"null", "{}", R"({"type": "object"})", R"({"type": null})",
        R"({"type": ["object", "null"]})"}) {
    EXPECT_TRUE(read(good).ok()) << good << read(good).ToString();
  }
  for (const char* bad :
       {R"({"type": "string"})", R"({"type": ["null"]})", R"({"type": 1})"}) {
    EXPECT_EQ(read(bad).field(), "tools[0].function.parameters.type") << bad;
  }
  EXPECT_EQ(read(R"({"type": "string"})").message(),
            "tools[0].function.parameters.type is \"string\" but must be "
            "\"object\": arguments are an object");
}

TEST(ChatMessages, StrictOfAToolIsABoolean) {
  const auto read = [](const std::string& strict) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}], "tools":
                   [{"type": "function", "function": {"name": "f",
                     "strict": )" +
                strict + "}}]}")
        .status();
  };
  for (const char* good : {"null", "true", "false"}) {
    EXPECT_TRUE(read(good).ok()) << good << read(good).ToString();
  }
  EXPECT_EQ(read("1").field(), "tools[0].function.strict");
  EXPECT_EQ(read("1").message(),
            "tools[0].function.strict must be true or false, not an integer "
            "(1)");
}

TEST(ChatMessages, ReasoningEffortReachesTheTemplate) {
  const auto read = [](const std::string& effort) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}],
                    "reasoning_effort": ")" +
                effort + "\"}");
  };
  EXPECT_EQ(DumpJson(*read("low")->template_kwargs),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(DumpJson(*read("none")->template_kwargs),
            R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(read("lots").status().field(), "reasoning_effort");
}

TEST(ChatMessages, ABudgetOfReasoningHasFourNames) {
  const auto read = [](const std::string& field) {
    return Read(R"({"messages": [{"role": "user", "content": "a"}], )" + field +
                "}");
  };
  for (const char* name : {"thinking_token_budget", "thinking_budget_tokens",
                           "reasoning_budget_tokens"}) {
    const std::string field = "\"" + std::string(name) + "\": ";
    EXPECT_EQ(DumpJson(*read(field + "7")->template_kwargs),
              R"({"thinking_budget":7})");
    EXPECT_EQ(read(field + "-2").status().field(), name);
    EXPECT_EQ(read(field + "\"7\"").status().field(), name);
  }
  // What the client tells the template itself stands.
  EXPECT_EQ(DumpJson(*read(R"("chat_template_kwargs": {"thinking_budget": 3},
                              "thinking_token_budget": 7)")
                          ->template_kwargs),
            R"({"thinking_budget":3})");
  EXPECT_FALSE(
      read(R"("chat_template_kwargs": {"thinking_budget": "much"})").ok());
}

TEST(ChatMessages, ErrorsNameThePath) {
  const struct {
    const char* body;
    const char* field;
    const char* message;
  } kCases[] = {
      {"[]", "", "the request must be a JSON object"},
      {"{}", "messages",
       "messages is missing; it is an array such as [{\"role\": \"user\", "
       "\"content\": \"Hello\"}]"},
      {R"({"messages": "Hi"})", "messages",
       "messages must be an array, not a string (\"Hi\")"},
      {R"({"messages": []})", "messages",
       "messages is an empty array but must hold at least one message"},
      {R"({"messages": ["Hi"]})", "messages[0]",
       "messages[0] must be an object, not a string (\"Hi\")"},
      {R"({"messages": [{"content": "Hi"}]})", "messages[0].role",
       "messages[0].role is missing; it is \"system\", \"user\" or "
       "\"assistant\" for most models"},
      {R"({"messages": [{"role": 1, "content": "Hi"}]})", "messages[0].role",
       "messages[0].role must be a string, not an integer (1)"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content",
       "messages[0].content is missing"},
      {R"({"messages": [{"role": "user", "content": "a"},
                        {"role": "user", "content": 5}]})",
       "messages[1].content",
       "messages[1].content must be a string or an array of text parts, not "
       "an integer (5)"},
      {R"({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "input_audio", "input_audio": {}}]}]})",
       "messages[0].content[1].type",
       "messages[0].content[1].type is \"input_audio\" but only \"text\" and "
       "\"image_url\" parts are taken"},
      {R"({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {}}]}]})",
       "messages[0].content[0].image_url.url",
       "messages[0].content[0].image_url.url is missing"},
      {R"({"messages": [{"role": "user", "content": [
            {"type": "image_url"}]}]})",
       "messages[0].content[0].image_url",
       "messages[0].content[0].image_url is missing"},
      {R"({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": 5}]}]})",
       "messages[0].content[0].image_url",
       "messages[0].content[0].image_url must be a string, not an integer "
       "(5)"},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})",
       "messages[0].content[0]",
       "messages[0].content[0] must be an object, not a string (\"a\")"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text", "messages[0].content[0].text is missing"},
      {R"({"messages": [{"role": "user", "content": ""}],
           "add_generation_prompt": "no"})",
       "add_generation_prompt",
       "add_generation_prompt must be true or false, not a string (\"no\")"},
      {R"({"messages": [{"role": "user", "content": ""}],
           "chat_template_kwargs": []})",
       "chat_template_kwargs",
       "chat_template_kwargs must be an object, not an array ([])"},
  };
  for (const auto& c : kCases) {
    const auto chat = Read(c.body);
    ASSERT_FALSE(chat.ok()) << c.body;
    EXPECT_EQ(chat.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(chat.status().message(), c.message);
    EXPECT_EQ(chat.status().field(), c.field);
  }
}

// A model that takes no images says that first.
TEST(ChatMessages, WhatIsNoDataUrlIsRefusedLater) {
  struct Case {
    const char* url;
    const char* message;  // behind the field
  };
  const Case cases[] = {
      {"http://a/b.png",
       " is no data URL, and this server fetches nothing; send the image "
       "itself as data:image/png;base64,... (or jpeg, webp)"},
      {"data:,x",
       " has no ';base64,': the data URL of an image is "
       "data:image/png;base64,..."},
      {"data:;base64,", " has no base64 behind its comma"},
      {"data:;base64,@@@@", " has no base64 behind its comma"},
  };
  for (const Case& each : cases) {
    const auto chat = Read(
        R"({"messages": [{"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": ")" +
        std::string(each.url) + R"("}}]}]})");
    ASSERT_TRUE(chat.ok()) << chat.status().ToString();
    ASSERT_EQ(chat->images.size(), 1u);
    const std::string field = "messages[0].content[0].image_url.url";
    EXPECT_EQ(chat->images[0].status.message(), field + each.message);
    EXPECT_EQ(chat->images[0].status.field(), field);
  }
}

TEST(ChatMessages, ImagesAreTakenOutAndTheirPartsStay) {
  const auto chat = Read(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]},
      {"role": "user", "content": [
          {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA==",
                                              "detail": "low"}},
          {"type": "text", "text": "c"},
          {"type": "image_url", "image_url": "data:;base64,eXo="}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ((*chat->messages)[0]["content"], "a\nb");
  EXPECT_EQ((*chat->messages)[1]["content"],
            nlohmann::ordered_json::parse(R"([{"type": "image"},
                {"type": "text", "text": "c"}, {"type": "image"}])"));
  ASSERT_EQ(chat->images.size(), 2u);
  EXPECT_EQ(*chat->images[0].bytes, "x");
  EXPECT_EQ(chat->images[0].path, "messages[1].content[0]");
  EXPECT_EQ(*chat->images[1].bytes, "yz");
  EXPECT_EQ(chat->images[1].path, "messages[1].content[2]");
}

}  // namespace
}  // namespace millrace::handlers
