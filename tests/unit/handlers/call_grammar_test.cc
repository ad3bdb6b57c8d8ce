// What a call that is not written as JSON is held to: the library over the
// grammar, and the reader of such calls, over the same texts.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "handlers/call_constraint.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/json_schema.h"
#include "models/grammar/literal_grammar.h"
#include "models/grammar/xgrammar.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kEnd = 256;  // ends a completion; ids below are bytes

constexpr char kOrder[] = R"({
  "type": "object", "additionalProperties": false,
  "properties": {
    "size": {"enum": ["small", "large", 3, null]},
    "count": {"type": "integer", "minimum": 1, "maximum": 120},
    "note": {"type": "string"},
    "to": {"$ref": "#/$defs/to"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 2},
             "minItems": 1, "maxItems": 2},
    "price": {"type": "number"},
    "gift": {"type": "boolean"}},
  "required": ["size", "count"],
  "$defs": {"to": {"anyOf": [{"type": "null"}, {
    "type": "object", "additionalProperties": false,
    "properties": {"street": {"type": "string"},
                   "at": {"$ref": "#/$defs/to"}},
    "required": ["street"]}]}}})";

class CallGrammar : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#ifndef MILLRACE_HAS_XGRAMMAR
    GTEST_SKIP() << "this build is without xgrammar";
#endif
    models::TokenTexts tokens = {{}, kEnd + 1, {kEnd}};
    for (int i = 0; i < 256; ++i) {
      tokens.texts.emplace_back(1, static_cast<char>(i));
    }
    tokens.texts.emplace_back("");
    const auto xgrammar = models::Xgrammar::Open();
    ASSERT_TRUE(xgrammar.ok()) << xgrammar.status().ToString();
    const auto vocabulary = (*xgrammar)->MakeVocabulary(tokens);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
    vocabulary_ = *vocabulary;
    formats_ = *ChooseFormats(GetParam(), "none", "");
  }

  // Tools f and g; `name`: the one that is asked for.
  ChatPrompt Chat(const std::string& f, std::string name = "") const {
    ChatPrompt chat;
    chat.tools = std::make_shared<const Json>(Json::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": )" +
        f + R"(}}, {"type": "function", "function": {"name": "g"}}])"));
    chat.tool_choice = {.mode = ToolChoice::Mode::kRequired,
                        .name = std::move(name),
                        .names = {"f", "g"}};
    return chat;
  }

  std::unique_ptr<models::GrammarMatcher> Matcher(const ChatPrompt& chat) {
    const models::OutputConstraint constraint = CallConstraint(formats_, chat);
    auto& grammar = grammars_[constraint.text];
    if (grammar == nullptr) {
      const auto source = models::SourceOf(constraint);
      EXPECT_TRUE(source.ok()) << source.status().ToString();
      const auto bytes = vocabulary_->Compile(*source);
      EXPECT_TRUE(bytes.ok()) << bytes.status().ToString() << source->text;
      const auto loaded = vocabulary_->Load(*bytes);
      EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
      grammar = *loaded;
    }
    return grammar->NewMatcher();
  }

  // As this notation writes them: ' for a quote, F, T and N for constants.
  std::string Spelled(const std::string& text) const {
    const bool python = std::string(GetParam()) == "pythonic";
    const bool newer = std::string(GetParam()) == "gemma4";
    std::string out;
    for (const char c : text) {
      if (c == '\'') {
        out += python ? "\"" : newer ? "<|\"|>" : "<escape>";
      } else if (c == 'F' || c == 'T' || c == 'N') {
        out += c == 'N'   ? (python ? "None" : "null")
               : c == 'T' ? (python ? "True" : "true")
                          : (python ? "False" : "false");
      } else if (c == '=' && !python) {
        out += ':';
      } else {
        out += c;
      }
    }
    return out;
  }

  // The arguments that are read of a call of f, if the grammar takes it.
  std::optional<Json> Take(const ChatPrompt& chat,
                           const std::string& arguments) {
    const auto matcher = Matcher(chat);
    const ToolFormat& format = *formats_.tools;
    std::string text = Spelled(arguments);
    text.append(format.behind_arguments).append(format.behind_calls);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return std::nullopt;
    }
    if (!matcher->Accept(kEnd)) return std::nullopt;
    return Read(text);
  }

  // Of a call of f whose text begins with its arguments.
  Json Read(const std::string& text) const {
    const ToolFormat& format = *formats_.tools;
    ParsedOutput out;
    const auto parser =
        MakeOutputParser({.tools = &format,
                          .tool_names = {"f", "g"},
                          .forced = std::string(format.before_name) + "f" +
                                    std::string(format.behind_name)},
                         out);
    for (const char c : text) parser->Step(c);
    parser->End();
    out.Finish();
    const std::vector<OutputDelta> deltas = out.Take();
    EXPECT_EQ(deltas.size(), 1u) << text;
    EXPECT_EQ(deltas[0].call_name, "f") << text;
    return Json::parse(deltas[0].text);
  }

  OutputFormats formats_;
  std::shared_ptr<const models::XgrammarVocabulary> vocabulary_;
  // By the text of their constraint.
  std::map<std::string, std::shared_ptr<const models::TokenGrammar>> grammars_;
};

TEST_P(CallGrammar, TakesWhatFitsAndNothingElse) {
  const ChatPrompt chat = Chat(kOrder, "f");
  const auto expect = [&](const std::string& text, const char* json) {
    const auto taken = Take(chat, text);
    ASSERT_TRUE(taken.has_value()) << Spelled(text);
    EXPECT_EQ(taken->dump(), Json::parse(json).dump()) << text;
  };
  expect("size='small',count=1", R"({"size": "small", "count": 1})");
  expect("size=3,count=120,gift=T",
         R"({"size": 3, "count": 120, "gift": true})");
  expect("size=N,count=99,note='',to=N,tags=['ab'],price=-0.5,gift=F",
         R"({"size": null, "count": 99, "note": "", "to": null,
             "tags": ["ab"], "price": -0.5, "gift": false})");
  expect("size='large',count=7,note='a <b> \xc3\xa9, [(x)]'",
         R"({"size": "large", "count": 7, "note": "a <b> é, [(x)]"})");
  for (const char* wrong :
       {"size='huge',count=1", "size='small'", "count=1,size='small'",
        "size='small',count=0", "size='small',count=121",
        "size='small',count=1.0", "size='small',count='1'",
        "size='small',count=1,other=2", "size='small',count=1,gift=1",
        "size='small',count=1,tags=[]", "size='small',count=1,tags=['abc']",
        "size='small',count=1,tags=['a','b','c']", "size=small,count=1",
        "size='small',count=1,", "size='small',count=1,price=1e3", "",
        "size='small',count=1,note=N"}) {
    EXPECT_FALSE(Take(chat, wrong).has_value()) << wrong;
  }
}

TEST_P(CallGrammar, ObjectsInsideAreHeldToo) {
  const ChatPrompt chat = Chat(kOrder, "f");
  const bool python = std::string(GetParam()) == "pythonic";
  const std::string inside = python ? "{'street': 'A 1', 'at': {'street': ''}}"
                                    : "{street:'A 1',at:{street:''}}";
  const auto taken = Take(chat, "size='small',count=1,to=" + inside);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ((*taken)["to"]["at"]["street"], "");
  EXPECT_FALSE(Take(chat, python ? "size='small',count=1,to={'at': N}"
                                 : "size='small',count=1,to={at:N}"));
}

TEST_P(CallGrammar, AFunctionWithoutParametersTakesNoArguments) {
  ChatPrompt chat = Chat("{}", "g");
  const auto matcher = Matcher(chat);
  const ToolFormat& format = *formats_.tools;
  std::string text(format.behind_arguments);
  for (const char c : text.append(format.behind_calls)) {
    ASSERT_TRUE(matcher->Accept(static_cast<uint8_t>(c))) << text;
  }
  EXPECT_TRUE(matcher->Accept(kEnd));
}

// Texts that the grammar leads to, byte by byte: each is a call that is read,
// with arguments that fit.
TEST_P(CallGrammar, WhateverItLeadsToIsReadAndFits) {
  const ChatPrompt chat = Chat(kOrder, "f");
  std::mt19937 random(5);
  int read = 0;
  for (int round = 0; round < 200; ++round) {
    const auto matcher = Matcher(chat);
    std::string text;
    bool ended = false;
    while (!ended && text.size() < 600) {
      uint32_t mask[(kEnd + 32) / 32] = {};
      matcher->Fill(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id <= kEnd; ++id) {
        if ((mask[id / 32] >> (id % 32) & 1) == 0) continue;
        // Signs that end something come often, so that texts end.
        const bool often = id == kEnd || id == '"' || id == '\'' || id == '<' ||
                           id == ')' || id == ']' || id == '}' || id == '>';
        allowed.insert(allowed.end(), often ? 60 : 1, id);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      const int32_t id = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher->Accept(id));
      ended = id == kEnd;
      if (!ended) text += static_cast<char>(id);
    }
    if (!ended) continue;
    ++read;
    const Json arguments = Read(text);
    ASSERT_TRUE(arguments.is_object()) << text;
    const Json& size = arguments["size"];
    EXPECT_TRUE(size == "small" || size == "large" || size == 3 ||
                size == nullptr)
        << text;
    EXPECT_GE(arguments["count"], 1) << text;
    EXPECT_LE(arguments["count"], 120) << text;
    if (arguments.contains("tags")) {
      EXPECT_LE(arguments["tags"].size(), 2u) << text;
      EXPECT_GE(arguments["tags"].size(), 1u) << text;
    }
    for (const auto& [key, value] : arguments.items()) {
      EXPECT_TRUE(Json::parse(kOrder)["properties"].contains(key)) << text;
    }
  }
  EXPECT_GT(read, 50);
}

TEST_P(CallGrammar, SeveralCallsFollowEachOther) {
  const ChatPrompt chat = Chat(R"({"properties": {"a": {"type": "null"}}})");
  const ToolFormat& format = *formats_.tools;
  const auto matcher = Matcher(chat);
  std::string text = "f" + std::string(format.behind_name) + Spelled("a=N");
  text.append(format.behind_arguments).append(format.between_calls);
  text.append("g").append(format.behind_name).append(format.behind_arguments);
  for (const char c : text.append(format.behind_calls)) {
    ASSERT_TRUE(matcher->Accept(static_cast<uint8_t>(c))) << text;
  }
  EXPECT_TRUE(matcher->Accept(kEnd));
  ParsedOutput out;
  const auto parser =
      MakeOutputParser({.tools = &format,
                        .tool_names = {"f", "g"},
                        .forced = std::string(format.before_name)},
                       out);
  for (const char c : text) parser->Step(c);
  parser->End();
  EXPECT_EQ(out.Take().size(), 2u) << text;
}

TEST_P(CallGrammar, WhatIsNotHonouredIsRefusedByName) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"x": {"type": "string", "pattern": "^a+$"}})", "'pattern'"},
      {R"({"x": {"type": "string", "format": "date"}})", "'format'"},
      {R"({"x": {"type": "integer", "multipleOf": 5}})", "'multipleOf'"},
      {R"({"x": {"type": "number", "minimum": 0}})", "'minimum'"},
      {R"({"x": {"type": "object", "propertyNames": {"maxLength": 3},
                 "additionalProperties": true}})",
       "'propertyNames'"},
      {R"({"x": {"type": "object", "minProperties": 2,
                 "properties": {"a": {}, "b": {}}}})",
       "'minProperties'"}};
  for (const auto& [properties, keyword] : refused) {
    const ChatPrompt chat =
        Chat("{\"properties\": " + std::string(properties) + "}", "f");
    const auto source = models::SourceOf(CallConstraint(formats_, chat));
    ASSERT_FALSE(source.ok()) << properties;
    const Status status = AtTool(formats_, chat, source.status());
    EXPECT_EQ(status.field(), "tools[0].function.parameters");
    EXPECT_NE(status.message().find(keyword), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("/properties/x"), std::string::npos)
        << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CallGrammar,
                         ::testing::Values("pythonic", "gemma", "gemma4"),
                         [](const auto& of_test) {
                           return std::string(of_test.param);
                         });

}  // namespace
}  // namespace millrace::handlers
