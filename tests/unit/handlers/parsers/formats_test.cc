// Text → content, reasoning and calls, by format. Every text is read whole and
// cut at every character: the cuts must change nothing.
#include "handlers/parsers/formats.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::handlers {
namespace {

// "content|~reasoning|@name(arguments)#id", in order, kinds joined.
std::string Shown(const std::vector<OutputDelta>& deltas) {
  std::string shown;
  std::string kind;
  for (const OutputDelta& delta : deltas) {
    const std::string now = std::to_string(static_cast<int>(delta.kind)) + "." +
                            std::to_string(delta.call_idx);
    if (now != kind && !shown.empty()) shown += '|';
    if (now != kind && delta.kind == DeltaKind::kReasoning) shown += '~';
    kind = now;
    if (!delta.call_name.empty()) shown += "@" + delta.call_name;
    if (!delta.call_id.empty()) shown += "#" + delta.call_id;
    if (!delta.call_name.empty()) shown += ":";
    shown += delta.text;
  }
  return shown;
}

ParserSpec SpecOf(const std::string& tools, const std::string& reasoning) {
  const auto formats = ChooseFormats(tools, reasoning, "tools");
  EXPECT_TRUE(formats.ok()) << formats.status().ToString();
  return {.tools = formats->tools,
          .reasoning = formats->reasoning,
          .tool_names = {"f", "g"}};
}

std::string Read(const ParserSpec& spec, std::string_view text,
                 size_t first_cut) {
  ParsedOutput out(spec.most_calls);
  const auto parser = MakeOutputParser(spec, out);
  std::vector<OutputDelta> all;
  const auto take = [&] {
    for (OutputDelta& delta : out.Take()) all.push_back(std::move(delta));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == first_cut || first_cut == 0) take();
    parser->Step(text[i]);
  }
  parser->End();
  out.Finish();
  take();
  return Shown(all);
}

void Expect(const ParserSpec& spec, std::string_view text,
            const std::string& wanted) {
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_EQ(Read(spec, text, cut), wanted) << text << "\ncut at " << cut;
  }
}

void ExpectTools(const std::string& format, std::string_view text,
                 const std::string& wanted) {
  Expect(SpecOf(format, "none"), text, wanted);
}

TEST(Hermes, CallsBetweenTags) {
  ExpectTools("hermes", "Hello.\n", "Hello.\n");
  ExpectTools("hermes",
              "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}\n"
              "</tool_call>",
              "@f:{\"a\": \"}\"}");
  ExpectTools("hermes",
              "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
              "{}}\n</tool_call>\n<tool_call>{\"arguments\": [1], \"name\": "
              "\"g\"}</tool_call>\nDone.",
              "Let me see.|@f:{}|@g:[1]|\nDone.");
  ExpectTools("hermes", "<tool_call>{\"name\": \"other\"}</tool_call>",
              "@other:{}");
}

TEST(Hermes, OtherSpellingsOfACall) {
  ExpectTools("hermes",
              "<tool_call>{\"type\": \"function\", \"function\": {\"name\": "
              "\"f\", \"parameters\": {\"a\": 1}}}</tool_call>",
              "@f:{\"a\": 1}");
  ExpectTools("hermes",
              "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
              "1}\"}</tool_call>",
              "@f:{\"a\": 1}");
  ExpectTools("hermes",
              "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
              "@f:{}");
  ExpectTools("hermes",
              "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>",
              "@f:{}|@g:{}");
}

TEST(Hermes, WhatIsNoCallIsContent) {
  ExpectTools("hermes", "<tool_call>nonsense</tool_call> x",
              "<tool_call>nonsense</tool_call> x");
  ExpectTools("hermes", "<tool_call>{\"a\" 1}</tool_call>",
              "<tool_call>{\"a\" 1}</tool_call>");
  ExpectTools("hermes", "a < b <tool_calls <tool_", "a < b <tool_calls <tool_");
  ExpectTools("hermes", "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>",
              "<tool_call>|@f:{}");
  ExpectTools("hermes", "<tool_call>{\"name\": \"\"}</tool_call>",
              "<tool_call>{\"name\": \"\"}</tool_call>");
}

TEST(Hermes, TheTextMayEndAnywhere) {
  ExpectTools("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ",
              "@f:{\"a\": ");
  ExpectTools("hermes", "<tool_call>{\"na", "<tool_call>{\"na");
  ExpectTools("hermes", "<tool_call>{\"name\": \"f\"}</tool", "@f:{}");
}

TEST(Hermes, OneCallAtMost) {
  ParserSpec spec = SpecOf("hermes", "none");
  spec.most_calls = 1;
  Expect(spec,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
         "<tool_call>{\"name\": \"g\", \"arguments\": {\"b\": 2}}</tool_call>",
         "@f:{\"a\": 1}");
}

TEST(Hermes, ForcedBeginningIsPartOfTheCall) {
  ParserSpec spec = SpecOf("hermes", "none");
  spec.forced = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
  Expect(spec, "{\"a\": 1}}\n</tool_call>", "@f:{\"a\": 1}");
}

TEST(LlamaJson, BareObjectsOfKnownTools) {
  ExpectTools("llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
              "@f:{\"a\": 1}");
  ExpectTools("llama3_json",
              "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; "
              "{\"name\": \"g\", \"parameters\": {}}",
              "@f:{}|@g:{}");
  ExpectTools("llama3_json", "{\"name\": \"Bob\", \"parameters\": {}}",
              "{\"name\": \"Bob\", \"parameters\": {}}");
  ExpectTools("llama3_json", "{\"name\": \"f\", \"age\": 3}",
              "{\"name\": \"f\", \"age\": 3}");
  ExpectTools("llama3_json", "{\"answer\": {\"name\": \"f\"}}",
              "{\"answer\": {\"name\": \"f\"}}");
  ExpectTools("llama3_json", "See {\"name\": \"f\"}", "See {\"name\": \"f\"}");
}

TEST(Granite, ListBehindATag) {
  ExpectTools("granite",
              "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}},"
              " {\"name\": \"g\", \"arguments\": {}}]",
              "@f:{\"a\": [1, 2]}|@g:{}");
  ExpectTools("granite",
              "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
              "@f:{}");
}

TEST(Mistral, ListsAndHeaders) {
  ExpectTools("mistral",
              "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, "
              "{\"name\": \"g\", \"arguments\": {}}]",
              "@f:{\"a\": 1}|@g:{}");
  ExpectTools("mistral",
              "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x12345678"
              "[ARGS]{}",
              "@f:{\"a\": 1}|@g#x12345678:{}");
  ExpectTools("mistral", "Hi[TOOL_CALLS]f{\"a\": {}}", "Hi|@f:{\"a\": {}}");
  ExpectTools("mistral", "[TOOL_CALLS]not a call {}",
              "[TOOL_CALLS]not a call {}");
  ExpectTools("mistral", "[TOOL", "[TOOL");
}

TEST(DeepSeek, BothVersions) {
  ExpectTools("deepseek_v3",
              "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"
              "<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n"
              "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
              "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
              "Sure.|@f:{\"a\": 1}|@g:{}");
  ExpectTools("deepseek_v31",
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
              "{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
              "@f:{\"a\": 1}");
}

TEST(Pythonic, ListsOfCalls) {
  ExpectTools("pythonic", "[f(a='it\\'s', b=[1, True, None]), g()]",
              "@f:{\"a\": \"it's\", \"b\": [1, true, null]}|@g:{}");
  ExpectTools("pythonic", "[f(a={'b': \"]\", 'c': (1.5, -2)})]",
              "@f:{\"a\": {\"b\": \"]\", \"c\": [1.5, -2]}}");
  ExpectTools("pythonic", R"([f(a='\x41\xe9 \u20ac \U0001F600')])",
              "@f:{\"a\": \"A\u00e9 \u20ac \U0001F600\"}");
  ExpectTools("pythonic", R"([f(a='\x4 \ud800 \q')])",
              R"(@f:{"a": "\\x4 \\ud800 \\q"})");
  ExpectTools("pythonic", "[1, 2, 3]", "[1, 2, 3]");
  ExpectTools("pythonic", "[h(a=1)] x", "[h(a=1)] x");
  ExpectTools("pythonic", "[f(1)]", "[f(1)]");
  ExpectTools("pythonic", "[f(a=", "[f(a=");
}

TEST(Gemma, BothVersions) {
  ExpectTools("gemma",
              "<start_function_call>call:f{a:<escape>x, \"y\"<escape>,b:[1,"
              "true],c:{d:null}}<end_function_call>",
              "@f:{\"a\": \"x, \\\"y\\\"\", \"b\": [1, true], \"c\": "
              "{\"d\": null}}");
  ExpectTools("gemma4", "Ok <|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>",
              "Ok|@f:{\"a\": \"x\"}");
  ExpectTools("gemma", "<start_function_call>f{}<end_function_call>!",
              "<start_function_call>f{}<end_function_call>!");
}

TEST(Harmony, ChannelsAndRecipients) {
  ExpectTools("harmony",
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
              "<|channel|>final<|message|>Hello.",
              "~Hm.|Hello.");
  ExpectTools("harmony",
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
              "<|channel|>commentary to=functions.f <|constrain|>json"
              "<|message|>{\"a\": 1}<|call|>",
              "~Hm.|@f:{\"a\": 1}");
  ExpectTools("harmony",
              "<|start|>assistant to=functions.g<|channel|>commentary "
              "json<|message|>",
              "@g:{}");
  ExpectTools("harmony", "plain text", "plain text");
  const std::string message = "<|channel|>final<|message|>A<|end|>";
  ExpectTools("harmony", message + " and B", "A and B");
  ExpectTools("harmony", message + "and B<|end|>", "Aand B");
  ExpectTools("harmony", message + "\n", "A");
  ExpectTools("harmony", message + "<|start|>assistant<|chan", "A");
  ExpectTools("harmony", message + "<|channel|>fin", "A");
}

TEST(Reasoning, BetweenTags) {
  const ParserSpec spec = SpecOf("none", "think");
  Expect(spec, "<think>\nHm, 1 < 2.\n</think>\n\nHello. ",
         "~Hm, 1 < 2.|Hello. ");
  Expect(spec, "Hello <think>x</think>", "Hello <think>x</think>");
  Expect(spec, "<think>never ends", "~never ends");
  Expect(spec, "<think></think>Hello", "Hello");
  Expect(spec, "<think><</think>x", "~<|x");
  Expect(spec, "  <thi", "  <thi");
}

TEST(Reasoning, ThePromptMayHaveBegunIt) {
  ParserSpec spec = SpecOf("none", "think");
  spec.in_reasoning = true;
  Expect(spec, "Hm.\n</think>\nHello", "~Hm.|Hello");
  Expect(spec, "<think>Hm.</think>Hello", "~Hm.|Hello");
  Expect(spec, "<th", "~<th");
  Expect(spec, "<</think>x", "~<|x");
}

TEST(Reasoning, CallsComeBehindIt) {
  Expect(SpecOf("hermes", "think"),
         "<think><tool_call></think>\n\n<tool_call>{\"name\": \"f\"}"
         "</tool_call>",
         "~<tool_call>|@f:{}");
  Expect(SpecOf("none", "mistral"), "[THINK]a[/THINK]b", "~a|b");
  Expect(SpecOf("none", "granite"),
         "Here is my thought process: a Here is my response: b", "~a|b");
}

TEST(Formats, AreChosenByTheTemplate) {
  const auto tools = [](std::string_view source) {
    const auto formats = ChooseFormats("auto", "auto", source);
    return std::string(formats->tools->name) + "+" +
           (formats->reasoning == nullptr
                ? "none"
                : std::string(formats->reasoning->name));
  };
  EXPECT_EQ(tools("{{ '<tool_call>' }}</think>"), "hermes+think");
  EXPECT_EQ(tools("[TOOL_CALLS]"), "mistral+none");
  EXPECT_EQ(tools("<｜tool▁sep｜> ```json"), "deepseek_v3+none");
  EXPECT_EQ(tools("<｜tool▁sep｜>"), "deepseek_v31+none");
  EXPECT_EQ(tools("<|channel|>"), "harmony+none");
  EXPECT_EQ(tools("<|python_tag|>"), "llama3_json+none");
  EXPECT_EQ(tools("no word of it"), "hermes+none");
}

TEST(Formats, SettingsNameThem) {
  EXPECT_EQ(ChooseFormats("openai", "none", "")->tools->name, "harmony");
  EXPECT_EQ(ChooseFormats("none", "none", "<tool_call>")->tools, nullptr);
  const Status unknown = ChooseFormats("hermse", "none", "").status();
  EXPECT_EQ(unknown.field(), "tool_call_parser");
  EXPECT_NE(unknown.message().find("hermes, llama3_json"), std::string::npos);
  EXPECT_EQ(ChooseFormats("auto", "x", "").status().field(),
            "reasoning_parser");
}

}  // namespace
}  // namespace millrace::handlers
