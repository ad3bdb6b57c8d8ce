// Processors by name set the fields that they stand for: each is read both
// ways, and the options are the same.
#include "handlers/logits_processor_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "handlers/request_fields.h"

namespace millrace::handlers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

StatusOr<GenerateOptions> Read(const std::string& body) {
  return ReadGenerateOptions(Json::parse(body), FieldDialect::kChat);
}
std::string Refusal(const std::string& list) {
  const auto options = Read("{\"logits_processors\": " + list + "}");
  EXPECT_FALSE(options.ok()) << list;
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(options.status().field(), "logits_processors");
  return std::string(options.status().message());
}

TEST(LogitsProcessorFields, AbsentNullAndEmptyNameNone) {
  for (const char* body : {"{}", R"({"logits_processors": null})",
                           R"({"logits_processors": []})"}) {
    const auto options = Read(body);
    ASSERT_TRUE(options.ok()) << options.status().ToString();
    EXPECT_THAT(options->logits_processors, IsEmpty());
  }
}

TEST(LogitsProcessorFields, EachNameSetsItsFields) {
  const auto options = Read(R"({"messages": [], "top_p": 0.5,
    "logits_processors": [
      {"qualname": "allowed_token_ids", "args": [[5, 6]]},
      {"qualname": "bad_words", "args": [["no"]]},
      {"qualname": "dry", "args": [1, null, 4],
       "kwargs": {"dry_sequence_breakers": ["."]}},
      {"qualname": "frequency_penalty", "args": [0.25]},
      {"qualname": "logit_bias", "kwargs": {"logit_bias": {"7": 1.5}}},
      {"qualname": "min_p", "kwargs": {"min_p": 0.05}},
      {"qualname": "min_tokens", "args": [2]},
      {"qualname": "no_repeat_ngram", "args": [4]},
      {"qualname": "presence_penalty", "args": [0.5]},
      {"qualname": "repetition_penalty", "args": [1.5]},
      {"qualname": "suppress_tokens", "args": [[8]]},
      {"qualname": "top_n_sigma", "args": [2]},
      {"qualname": "typical", "args": [0.75]},
      {"qualname": "xtc", "args": [0.125, 0.25]}]})");
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->top_p, 0.5);
  EXPECT_EQ(options->allowed_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(options->bad_words, (std::vector<std::string>{"no"}));
  EXPECT_EQ(options->dry_multiplier, 1);
  EXPECT_EQ(options->dry_base, std::nullopt);
  EXPECT_EQ(options->dry_allowed_length, 4);
  EXPECT_EQ(options->dry_sequence_breakers, (std::vector<std::string>{"."}));
  EXPECT_EQ(options->frequency_penalty, 0.25);
  EXPECT_EQ(options->logit_bias,
            (std::vector<std::pair<int32_t, float>>{{7, 1.5f}}));
  EXPECT_EQ(options->min_p, 0.05);
  EXPECT_EQ(options->min_tokens, 2);
  EXPECT_EQ(options->no_repeat_ngram_size, 4);
  EXPECT_EQ(options->presence_penalty, 0.5);
  EXPECT_EQ(options->repetition_penalty, 1.5);
  EXPECT_EQ(options->suppress_tokens, (std::vector<int32_t>{8}));
  EXPECT_EQ(options->top_n_sigma, 2);
  EXPECT_EQ(options->typical_p, 0.75);
  EXPECT_EQ(options->xtc_probability, 0.125);
  EXPECT_EQ(options->xtc_threshold, 0.25);
  const auto names = LogitsProcessorNames();
  const std::vector<std::string> all(names.begin(), names.end());
  EXPECT_EQ(options->logits_processors, all);
}

TEST(LogitsProcessorFields, SomeNamesStandAlone) {
  const auto options = Read(R"({"logits_processors":
      ["dry", "xtc", {"qualname": "no_repeat_ngram"}]})");
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->dry_multiplier, 0.8);
  EXPECT_EQ(options->xtc_probability, 0.5);
  EXPECT_EQ(options->no_repeat_ngram_size, 3);
  EXPECT_THAT(Refusal(R"(["min_p"])"),
              HasSubstr("names \"min_p\", which needs min_p; write"));
}

TEST(LogitsProcessorFields, WhatIsNotThereIsRefused) {
  EXPECT_EQ(Refusal(R"(["os.system"])"),
            "logits_processors[0] names \"os.system\", which is no logits "
            "processor of this server; it has allowed_token_ids, bad_words, "
            "dry, frequency_penalty, logit_bias, min_p, min_tokens, "
            "no_repeat_ngram, presence_penalty, repetition_penalty, "
            "suppress_tokens, top_n_sigma, typical, xtc");
  Refusal("\"dry\"");
  Refusal("[3]");
  Refusal("[{}]");
  Refusal(R"([{"qualname": 3}])");
  EXPECT_THAT(Refusal(R"([{"qualname": "xtc", "args": [0.5, 0.1, 7]}])"),
              HasSubstr("xtc takes xtc_probability, xtc_threshold"));
  EXPECT_THAT(Refusal(R"([{"qualname": "xtc", "kwargs": {"p": 1}}])"),
              HasSubstr("kwargs has \"p\"; xtc takes"));
  std::string many = "[\"dry\"";
  for (int i = 0; i < 32; ++i) many += ",\"dry\"";
  EXPECT_THAT(Refusal(many + "]"), HasSubstr("at most 32"));
  // The field's own reader says what a value must be.
  const auto wrong = Read(R"({"logits_processors":
      [{"qualname": "min_p", "args": [3]}]})");
  EXPECT_EQ(wrong.status().message(), "min_p is 3 but must be between 0 and 1");
  EXPECT_EQ(Read(R"({"logits_processors": [{"qualname": "min_p", "args": 3}]})")
                .status()
                .field(),
            "args");
}

TEST(LogitsProcessorFields, AFieldIsSetOnce) {
  EXPECT_THAT(Refusal(R"(["dry", "dry"])"),
              HasSubstr("sets dry_multiplier, which the request sets already"));
  EXPECT_THAT(Refusal(R"([{"qualname": "xtc", "args": [0.5],
                           "kwargs": {"xtc_probability": 0.5}}])"),
              HasSubstr("xtc_probability"));
  const auto both = Read(R"({"min_p": 0.1, "logits_processors":
      [{"qualname": "min_p", "args": [0.2]}]})");
  EXPECT_EQ(both.status().field(), "logits_processors");
}

TEST(LogitsProcessorFields, APatternAllowsNames) {
  const auto allowed = [](const std::string& pattern) {
    return AllowedLogitsProcessors(pattern).value();
  };
  EXPECT_EQ(allowed("").size(), LogitsProcessorNames().size());
  EXPECT_THAT(allowed("min_"), ElementsAre("min_p", "min_tokens"));
  EXPECT_THAT(allowed("(dry|xtc)$"), ElementsAre("dry", "xtc"));
  EXPECT_THAT(allowed("tc"), IsEmpty());  // from the beginning of a name on
  const auto bad = AllowedLogitsProcessors("(dry");
  EXPECT_EQ(bad.status().field(), "logits_processor_pattern");
}

}  // namespace
}  // namespace millrace::handlers
