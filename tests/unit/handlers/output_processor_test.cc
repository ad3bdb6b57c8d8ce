#include "handlers/output_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/handlers/fakes.h"
#include "tests/unit/models/text/tiny_vocabulary.h"

namespace millrace::handlers {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Those whose log-probabilities the delta tells.
std::string Tokens(const OutputDelta& delta) {
  std::string tokens;
  for (const TokenLogprobs& token : delta.logprobs) {
    tokens += token.chosen.bytes;
  }
  return tokens;
}

class OutputProcessorTest : public testing::Test {
 protected:
  OutputProcessor Make(OutputProcessor::Options options) const {
    options.tokenizer = tokenizer_.get();
    return OutputProcessor(std::move(options));
  }
  // A token for each byte, until the completion is over.
  static bool Say(OutputProcessor& output, std::string_view bytes) {
    for (const char byte : bytes) {
      if (!output.Push({.id = static_cast<uint8_t>(byte)})) return false;
    }
    return true;
  }
  static std::string Text(const std::vector<OutputDelta>& deltas) {
    std::string text;
    for (const OutputDelta& delta : deltas) {
      EXPECT_EQ(delta.kind, DeltaKind::kContent);
      text += delta.text;
    }
    return text;
  }

  const std::shared_ptr<const models::Tokenizer> tokenizer_ = ByteTokenizer();
};

TEST_F(OutputProcessorTest, TokensBecomeOneDelta) {
  OutputProcessor output = Make({});
  EXPECT_TRUE(Say(output, "abc"));
  const auto deltas = output.Take();
  ASSERT_THAT(deltas, SizeIs(1));
  EXPECT_EQ(deltas[0].text, "abc");
  EXPECT_EQ(deltas[0].num_tokens, 3);
  EXPECT_THAT(output.Take(), IsEmpty());
  EXPECT_EQ(output.num_tokens(), 3);
  EXPECT_FALSE(output.stop_reason());
}

TEST_F(OutputProcessorTest, IdsGoWithTheTextThatTheyMake) {
  OutputProcessor output =
      Make({.stop = {"cd"}, .stop_ids = {'z'}, .ids = true});
  EXPECT_TRUE(Say(output, "abc"));
  auto deltas = output.Take();  // c may begin the stop string
  ASSERT_THAT(deltas, SizeIs(1));
  EXPECT_EQ(deltas[0].text, "ab");
  std::vector<int32_t> ids = deltas[0].ids;
  EXPECT_FALSE(Say(output, "ez"));
  deltas = output.Take();
  ASSERT_THAT(deltas, SizeIs(1));
  EXPECT_EQ(deltas[0].text, "ce");
  ids.insert(ids.end(), deltas[0].ids.begin(), deltas[0].ids.end());
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 'c', 'e', 'z'}));
  // An end without text has its own delta.
  OutputProcessor ends = Make({.stop_ids = {'z'}, .ids = true});
  EXPECT_FALSE(Say(ends, "z"));
  deltas = ends.Take();
  ASSERT_THAT(deltas, SizeIs(1));
  EXPECT_EQ(deltas[0].ids, std::vector<int32_t>{'z'});
  EXPECT_THAT(ends.Take(), IsEmpty());
}

TEST_F(OutputProcessorTest, StopStringEndsItAndLaterTokensAreDropped) {
  OutputProcessor output = Make({.stop = {"END"}});
  EXPECT_FALSE(Say(output, "onEND"));
  EXPECT_TRUE(output.stopped_by_text());
  EXPECT_EQ(*output.stop_reason(), StopReason("END"));
  EXPECT_FALSE(output.Push({.id = 'x'}));
  EXPECT_EQ(Text(output.Take()), "on");
  EXPECT_EQ(output.num_tokens(), 5);
}

TEST_F(OutputProcessorTest, StopIdEndsItWithoutItsText) {
  OutputProcessor output = Make({.stop_ids = {'!', '.'}});
  EXPECT_FALSE(Say(output, "a."));
  EXPECT_FALSE(output.stopped_by_text()) << "the engine knows of it";
  EXPECT_EQ(*output.stop_reason(), StopReason(int32_t{'.'}));
  const auto deltas = output.Take();
  EXPECT_EQ(Text(deltas), "a");
  EXPECT_EQ(deltas[0].num_tokens, 2) << "the stop token is counted";
}

TEST_F(OutputProcessorTest, StopIdStaysWhenAskedFor) {
  OutputProcessor output = Make({.stop_ids = {'.'}, .include_stop = true});
  EXPECT_FALSE(Say(output, "a."));
  EXPECT_EQ(Text(output.Take()), "a.");
}

TEST_F(OutputProcessorTest, TheModelsOwnEndHasNoReason) {
  OutputProcessor output = Make({.stop_ids = {kImEnd}});
  EXPECT_FALSE(output.Push({.id = kImEnd}));
  EXPECT_EQ(*output.stop_reason(), StopReason());
  // Named by a client that ignores the model's end, it is one.
  OutputProcessor named = Make({.stop_ids = {kImEnd}, .ignore_eos = true});
  EXPECT_FALSE(named.Push({.id = kImEnd}));
  EXPECT_EQ(*named.stop_reason(), StopReason(kImEnd));
}

TEST_F(OutputProcessorTest, TheEndOfTheTextMayCompleteAStopString) {
  OutputProcessor output = Make({.stop = {"\xEF\xBF\xBD"}});
  EXPECT_TRUE(output.Push({.id = 0xF0}));  // half a character
  EXPECT_FALSE(output.stop_reason());
  output.Finish();
  EXPECT_EQ(*output.stop_reason(), StopReason("\xEF\xBF\xBD"));
}

TEST_F(OutputProcessorTest, EchoComesFirstAsADeltaOfItsOwn) {
  OutputProcessor output = Make({.echo = PromptEcho{.text = "Hi"}});
  Say(output, "!");
  const auto deltas = output.Take();
  ASSERT_THAT(deltas, SizeIs(2));
  EXPECT_EQ(deltas[0].text, "Hi");
  EXPECT_EQ(deltas[0].num_tokens, 0);
  EXPECT_EQ(deltas[1].text, "!");
}

TEST_F(OutputProcessorTest, EchoWithLogprobsWaitsForTheScores) {
  OutputProcessor output =
      Make({.logprobs = true,
            .echo = PromptEcho{.text = "abc", .ids = {'a', 'b', 'c'}}});
  EXPECT_THAT(output.Take(), IsEmpty());
  output.PushPrompt({.id = 'b', .logprob = -1});
  EXPECT_THAT(output.Take(), IsEmpty());
  output.PushPrompt({.id = 'c', .logprob = -2});
  const auto deltas = output.Take();
  ASSERT_THAT(deltas, SizeIs(1));
  ASSERT_THAT(deltas[0].logprobs, SizeIs(3));
  EXPECT_FALSE(deltas[0].logprobs[0].has_logprob);
  EXPECT_EQ(deltas[0].logprobs[2].chosen.logprob, -2);
}

TEST_F(OutputProcessorTest, AParserTellsKindsApart) {
  OutputProcessor output = Make(
      {.logprobs = true,
       .parser = {.tools = ChooseFormats("hermes", "none", "")->tools,
                  .reasoning = ChooseFormats("none", "think", "")->reasoning,
                  .in_reasoning = true}});
  EXPECT_TRUE(Say(output, "ab</think>\nc<tool_call>{\"name\": \"f\"}"));
  output.Finish();
  const auto deltas = output.Take();
  ASSERT_THAT(deltas, SizeIs(3));
  EXPECT_EQ(deltas[0].kind, DeltaKind::kReasoning);
  EXPECT_EQ(deltas[0].text, "ab");
  EXPECT_EQ(deltas[1].kind, DeltaKind::kContent);
  EXPECT_EQ(deltas[1].text, "c");
  EXPECT_EQ(deltas[2].kind, DeltaKind::kToolCall);
  EXPECT_EQ(deltas[2].call_name, "f");
  EXPECT_EQ(deltas[2].text, "{}");
  EXPECT_EQ(deltas[0].num_tokens, output.num_tokens());
  EXPECT_EQ(Tokens(deltas[0]), "ab</think>\n");
  EXPECT_EQ(Tokens(deltas[1]), "c");
  EXPECT_EQ(Tokens(deltas[2]), "<tool_call>{\"name\": \"f\"}");
}

// What a client sees of a completion: pieces of a kind, in order.
struct Seen {
  DeltaKind kind;
  int32_t call_idx;
  std::string text;
  std::string tokens;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> Join(const std::vector<OutputDelta>& deltas) {
  std::vector<Seen> all;
  for (const OutputDelta& delta : deltas) {
    if (all.empty() || all.back().kind != delta.kind ||
        all.back().call_idx != delta.call_idx) {
      all.push_back({delta.kind, delta.call_idx, "", ""});
    }
    all.back().text += delta.text;
    all.back().tokens += Tokens(delta);
  }
  return all;
}

TEST_F(OutputProcessorTest, HowTokensAreGroupedDoesNotChangeWhatIsToldOfThem) {
  struct Case {
    const char* tools;
    const char* reasoning;
    std::vector<std::string> stop;
    std::string text;
  };
  const std::vector<Case> cases = {
      {"hermes",
       "think",
       {},
       "<think>\nab <b</think>\n\nc <b <<tool_call>\n"
       R"({"name": "f", "arguments": {"a": "c"}})"
       "\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n"
       "more \xC3\xA9 <tool_"},
      {"hermes", "think", {"STOP"}, "a<think>b</think>c ST d STOP e"},
      {"hermes", "think", {}, "ab<tool_call>{no call}</tool_call> c"},
      {"none", "deepseek_r1", {}, "ab </think>  c </think> d\n"},
      {"llama3_json", "none", {}, R"({"name": "f", "parameters": {"a": 1}})"},
      {"llama3_json", "none", {}, R"({"a": 1} is no call)"},
      {"pythonic", "none", {}, "[f(a=1), g(b='x')]"},
      {"pythonic", "none", {}, "[x] is a list"},
      {"mistral",
       "mistral",
       {},
       R"([THINK]a[/THINK]b [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})"},
      {"harmony",
       "none",
       {},
       "<|channel|>analysis<|message|>ab<|end|><|start|>assistant"
       "<|channel|>final<|message|>c d"}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    const OutputFormats formats =
        *ChooseFormats(each.tools, each.reasoning, "");
    const auto told = [&](uint32_t seed) {
      std::mt19937 random(seed);
      OutputProcessor output = Make({.stop = each.stop,
                                     .logprobs = true,
                                     .parser = {.tools = formats.tools,
                                                .reasoning = formats.reasoning,
                                                .tool_names = {"f", "g"}}});
      std::vector<OutputDelta> all;
      const auto take = [&] {
        for (OutputDelta& delta : output.Take())
          all.push_back(std::move(delta));
      };
      for (const char byte : each.text) {
        if (!output.Push({.id = static_cast<uint8_t>(byte)})) break;
        // One by one, all together, or in groups.
        if (seed == 0 || (seed > 1 && random() % 4 == 0)) take();
      }
      output.Finish();
      take();
      return Join(all);
    };
    const std::vector<Seen> one_by_one = told(0);
    for (uint32_t seed = 1; seed < 20; ++seed) {
      EXPECT_TRUE(told(seed) == one_by_one) << "seed " << seed;
    }
    std::string tokens;
    for (const Seen& piece : one_by_one) {
      tokens += piece.tokens;
      if (piece.kind == DeltaKind::kContent) {
        EXPECT_EQ(piece.tokens, piece.text) << "of content alone";
      }
    }
    EXPECT_TRUE(each.text.starts_with(tokens)) << tokens;
    EXPECT_TRUE(!each.stop.empty() || tokens == each.text) << tokens;
  }
}

// Tokens of bytes, and one for each tag from 256 on.
std::shared_ptr<const models::Tokenizer> TagTokenizer(
    const std::vector<std::string>& tags) {
  std::vector<std::pair<std::string, models::TokenKind>> specials;
  for (const std::string& tag : tags) {
    specials.emplace_back(tag, models::TokenKind::kUserDefined);
  }
  auto made =
      models::Tokenizer::Create(models::TinyVocabulary("gpt-2", {}, specials));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}
std::vector<int32_t> IdsOf(std::string_view text,
                           const std::vector<std::string>& tags) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t tag = 0;
    while (tag < tags.size() && !text.starts_with(tags[tag])) ++tag;
    const bool is_tag = tag < tags.size();
    ids.push_back(is_tag ? static_cast<int32_t>(256 + tag)
                         : static_cast<uint8_t>(text[0]));
    text.remove_prefix(is_tag ? tags[tag].size() : 1);
  }
  return ids;
}

// Content may begin as the tag before it does, or be equal to its first byte.
TEST_F(OutputProcessorTest, ATagsTokenIsNeverToldAsTheContentBehindIt) {
  struct Case {
    const char* tools;
    const char* reasoning;
    std::vector<std::string> tags;
    std::string text;
    std::string content;
    std::string tokens = "";  // of content, where these are others
  };
  const std::vector<std::string> think = {"<think>", "</think>"};
  const std::vector<std::string> mistral = {"[THINK]", "[/THINK]"};
  const std::vector<std::string> hermes = {"<tool_call>", "</tool_call>"};
  const std::vector<std::string> deepseek = {"<｜tool▁calls▁begin｜>",
                                             "<｜tool▁calls▁end｜>"};
  const std::vector<std::string> harmony = {"<|start|>", "<|channel|>",
                                            "<|message|>", "<|end|>"};
  const std::string call = R"(<tool_call>{"name": "f"})";
  const std::string analysis = "<|channel|>analysis<|message|>";
  const std::string answer = "<|start|>assistant<|channel|>final<|message|>";
  const std::vector<Case> cases = {
      {"none", "think", think, "<think>a</think>\n<p>x</p>", "<p>x</p>"},
      {"none", "think", think, "<think>a</think><<p", "<<p"},
      {"none", "think", think, "<think>a</think>\n<", "<"},
      {"none", "mistral", mistral, "[THINK]a[/THINK][1, 2]", "[1, 2]"},
      {"none",
       "granite",
       {},
       "Here is my thought process: a "
       "Here is my response: Here it is",
       "Here it is"},
      {"hermes", "think", think, "<think>a</think><tool <b", "<tool <b"},
      {"hermes", "none", hermes, call + "</tool_call><<x", "<<x"},
      {"hermes", "none", hermes, call + "\n</tool_call>}</tool", "}</tool"},
      // Calls that break off.
      {"hermes", "none", hermes, R"(<tool_call>{"name": "f" <x)", "<x"},
      {"hermes", "none", hermes, R"(<tool_call>{"name": "f" f)", "f"},
      {"deepseek_v3", "none", deepseek, "a " + deepseek[0] + " <b", "a  <b"},
      {"harmony", "none", harmony, analysis + "a<|end|>" + answer + "< 2<",
       "< 2<"},
      {"harmony", "none", harmony, analysis + "a<|end|>" + answer + "<<| b",
       "<<| b"},
      // White space that reasoning came behind was told with that.
      {"harmony", "none", harmony,
       answer + "a \n<|end|><|start|>assistant" + analysis + "<r<|end|>" +
           answer + "<b",
       "a \n<b", "a<b"}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    const OutputFormats formats =
        *ChooseFormats(each.tools, each.reasoning, "");
    const auto tokenizer = TagTokenizer(each.tags);
    const auto told = [&](uint32_t seed) {
      std::mt19937 random(seed);
      OutputProcessor output(
          {.tokenizer = tokenizer.get(),
           .logprobs = true,
           .parser = {.tools = formats.tools, .reasoning = formats.reasoning}});
      std::vector<OutputDelta> all;
      const auto take = [&] {
        for (OutputDelta& delta : output.Take()) {
          all.push_back(std::move(delta));
        }
      };
      for (const int32_t id : IdsOf(each.text, each.tags)) {
        EXPECT_TRUE(output.Push({.id = id}));
        if (seed == 0 || (seed > 1 && random() % 4 == 0)) take();
      }
      output.Finish();
      take();
      return Join(all);
    };
    const std::vector<Seen> one_by_one = told(0);
    for (uint32_t seed = 1; seed < 20; ++seed) {
      EXPECT_TRUE(told(seed) == one_by_one) << "seed " << seed;
    }
    std::string content, of_content, tokens;
    for (const Seen& piece : one_by_one) {
      tokens += piece.tokens;
      if (piece.kind != DeltaKind::kContent) continue;
      content += piece.text;
      of_content += piece.tokens;
    }
    EXPECT_EQ(content, each.content);
    EXPECT_EQ(of_content, each.tokens.empty() ? each.content : each.tokens);
    EXPECT_EQ(tokens, each.text) << "each once, in order";
  }
}

}  // namespace
}  // namespace millrace::handlers
