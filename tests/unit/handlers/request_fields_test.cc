#include "handlers/request_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"

namespace millrace::handlers {
namespace {

StatusOr<GenerateOptions> Read(const std::string& text,
                               FieldDialect dialect = FieldDialect::kChat) {
  auto body = ParseJson(text);
  EXPECT_TRUE(body.ok()) << text;
  return ReadGenerateOptions(*body, dialect);
}

void ExpectRefused(const std::string& text, const std::string& field,
                   FieldDialect dialect = FieldDialect::kChat) {
  const auto options = Read(text, dialect);
  ASSERT_FALSE(options.ok()) << text;
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(options.status().field(), field) << text;
  EXPECT_NE(options.status().message().find(field.substr(0, 4)),
            std::string::npos)
      << options.status().message();
}

TEST(RequestFields, AbsentAndNullFieldsTakeDefaults) {
  for (const char* body :
       {"{}",
        R"({"temperature": null, "max_tokens": null, "stop": null, "n": null,
            "tools": null, "logprobs": null, "logit_bias": null})"}) {
    const auto options = Read(body);
    ASSERT_TRUE(options.ok()) << options.status().ToString();
    EXPECT_EQ(options->max_tokens, std::nullopt);
    EXPECT_FALSE(options->temperature.has_value());
    EXPECT_FALSE(options->top_k.has_value());
    EXPECT_EQ(options->seed, std::nullopt);
    EXPECT_TRUE(options->stop.empty());
    EXPECT_EQ(options->logprobs, std::nullopt);
    EXPECT_TRUE(options->skip_special_tokens);
  }
}

TEST(RequestFields, EveryHonouredFieldIsRead) {
  const auto options = Read(R"({
    "max_tokens": 9, "min_tokens": 2, "temperature": 0.5, "top_k": 40,
    "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1,
    "presence_penalty": -1, "frequency_penalty": 2, "seed": -2,
    "logit_bias": {"42": -100, "7": 1.5}, "stop": ["a", "b"],
    "stop_token_ids": [3, 4], "allowed_token_ids": [5, 6],
    "bad_words": ["no", " never"], "suppress_tokens": [7, 8],
    "no_repeat_ngram_size": 3, "include_stop_str_in_output": true,
    "ignore_eos": true, "skip_special_tokens": false, "priority": -3,
    "logprobs": true, "top_logprobs": 5})");
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->max_tokens, 9);
  EXPECT_EQ(options->min_tokens, 2);
  EXPECT_EQ(options->temperature, 0.5);
  EXPECT_EQ(options->top_k, 40);
  EXPECT_EQ(options->top_p, 0.9);
  EXPECT_EQ(options->min_p, 0.05);
  EXPECT_EQ(options->repetition_penalty, 1.1);
  EXPECT_EQ(options->presence_penalty, -1);
  EXPECT_EQ(options->frequency_penalty, 2);
  EXPECT_EQ(options->seed, UINT64_MAX - 1);
  const std::vector<std::pair<int32_t, float>> bias = {{42, -100}, {7, 1.5}};
  EXPECT_EQ(options->logit_bias, bias);
  EXPECT_EQ(options->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options->stop_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(options->allowed_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(options->bad_words, (std::vector<std::string>{"no", " never"}));
  EXPECT_EQ(options->suppress_tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(options->no_repeat_ngram_size, 3);
  EXPECT_TRUE(options->include_stop_str_in_output);
  EXPECT_TRUE(options->ignore_eos);
  EXPECT_FALSE(options->skip_special_tokens);
  EXPECT_EQ(options->priority, -3);
  EXPECT_EQ(options->logprobs, 5);
}

TEST(RequestFields, SamplersOfLlamaCppAreRead) {
  const auto options = Read(R"({
    "typical_p": 0.9, "top_n_sigma": -1, "xtc_probability": 0.5,
    "xtc_threshold": 0.2, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5,
    "mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2,
    "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3,
    "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n", "."]})");
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->typical_p, 0.9);
  EXPECT_EQ(options->top_n_sigma, -1);
  EXPECT_EQ(options->xtc_probability, 0.5);
  EXPECT_EQ(options->xtc_threshold, 0.2);
  EXPECT_EQ(options->dynatemp_range, 0.5);
  EXPECT_EQ(options->dynatemp_exponent, 1.5);
  EXPECT_EQ(options->mirostat, 2);
  EXPECT_EQ(options->mirostat_tau, 4);
  EXPECT_EQ(options->mirostat_eta, 0.2);
  EXPECT_EQ(options->dry_multiplier, 0.8);
  EXPECT_EQ(options->dry_base, 2);
  EXPECT_EQ(options->dry_allowed_length, 3);
  EXPECT_EQ(options->dry_penalty_last_n, -1);
  EXPECT_EQ(options->dry_sequence_breakers,
            (std::vector<std::string>{"\n", "."}));
  EXPECT_EQ(Read(R"({"mirostat": 0})")->mirostat, 0);
  EXPECT_EQ(Read(R"({"mirostat": 1})")->mirostat, 1);
  EXPECT_EQ(Read("{}")->min_keep, 0);
  EXPECT_EQ(Read(R"({"min_keep": 3})")->min_keep, 3);
  ExpectRefused(R"({"min_keep": -1})", "min_keep");
  EXPECT_EQ(Read("{}")->dry_sequence_breakers, std::nullopt);

  ExpectRefused(R"({"mirostat": 3})", "mirostat");
  ExpectRefused(R"({"typical_p": 0})", "typical_p");
  ExpectRefused(R"({"xtc_threshold": 2})", "xtc_threshold");
  ExpectRefused(R"({"dynatemp_range": -1})", "dynatemp_range");
  ExpectRefused(R"({"dry_multiplier": -1})", "dry_multiplier");
  ExpectRefused(R"({"dry_allowed_length": -1})", "dry_allowed_length");
  ExpectRefused(R"({"dry_penalty_last_n": -2})", "dry_penalty_last_n");
  ExpectRefused(R"({"dry_sequence_breakers": [""]})",
                "dry_sequence_breakers[0]");
  ExpectRefused(
      "{\"dry_sequence_breakers\": [\"" + std::string(41, 'x') + "\"]}",
      "dry_sequence_breakers[0]");
}

TEST(RequestFields, ASeedOfMinusOneIsNone) {
  EXPECT_EQ(Read(R"({"seed": -1})")->seed, std::nullopt);
}

TEST(RequestFields, TheNewerNameOfMaxTokensWins) {
  EXPECT_EQ(
      Read(R"({"max_tokens": 9, "max_completion_tokens": 5})")->max_tokens, 5);
}

TEST(RequestFields, LlamaCppsNamesOfLengthAndNumber) {
  EXPECT_EQ(Read(R"({"n_predict": 5})")->max_tokens, 5);
  EXPECT_EQ(Read(R"({"n_predict": 5, "max_tokens": 5})")->max_tokens, 5);
  EXPECT_FALSE(Read(R"({"n_predict": 5})")->clip_to_context);
  const auto all = Read(R"({"n_predict": -1})", FieldDialect::kCompletions);
  EXPECT_EQ(all->max_tokens, std::nullopt);
  EXPECT_TRUE(all->clip_to_context);
  ExpectRefused(R"({"n_predict": 5, "max_tokens": 6})", "n_predict");
  ExpectRefused(R"({"n_predict": 0})", "n_predict");
  ExpectRefused(R"({"n_predict": -2})", "n_predict");
  ExpectRefused(R"({"n_predict": 5, "min_tokens": 6})", "min_tokens");
  EXPECT_EQ(Read(R"({"n_cmpl": 3})")->n, 3);
  ExpectRefused(R"({"n_cmpl": 3, "n": 2})", "n_cmpl");
  ExpectRefused(R"({"n_cmpl": 2})", "n", FieldDialect::kSamplingParameters);
}

TEST(RequestFields, StopMayBeOneString) {
  EXPECT_EQ(Read(R"({"stop": "\n"})")->stop, std::vector<std::string>{"\n"});
}

TEST(RequestFields, LogprobsDifferBetweenChatAndCompletions) {
  EXPECT_EQ(Read(R"({"logprobs": true})")->logprobs, 0);
  EXPECT_EQ(Read(R"({"logprobs": false})")->logprobs, std::nullopt);
  EXPECT_EQ(Read(R"({"logprobs": false, "top_logprobs": 0})")->logprobs,
            std::nullopt);
  ExpectRefused(R"({"logprobs": 3})", "logprobs");
  ExpectRefused(R"({"top_logprobs": 3})", "top_logprobs");
  ExpectRefused(R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs");
  EXPECT_EQ(Read(R"({"logprobs": 3})", FieldDialect::kCompletions)->logprobs,
            3);
  ExpectRefused(R"({"logprobs": true})", "logprobs",
                FieldDialect::kCompletions);
  ExpectRefused(R"({"logprobs": 21})", "logprobs", FieldDialect::kCompletions);
}

TEST(RequestFields, NumbersOutOfRangeAreRefused) {
  for (const char* field : {R"("temperature": -0.1)",
                            R"("temperature": 2.1)",
                            R"("top_p": 0)",
                            R"("top_p": 1.01)",
                            R"("top_k": -2)",
                            R"("top_k": 4294967296)",
                            R"("min_p": -1)",
                            R"("min_p": 1.5)",
                            R"("repetition_penalty": 0)",
                            R"("repetition_penalty": 11)",
                            R"("presence_penalty": -2.5)",
                            R"("frequency_penalty": 3)",
                            R"("max_tokens": 0)",
                            R"("max_tokens": 1e40)",
                            R"("max_completion_tokens": -1)",
                            R"("min_tokens": -1)",
                            R"("seed": 1e30)",
                            R"("priority": 1e10)",
                            R"("temperature": "hot")",
                            R"("top_k": 1.5)",
                            R"("top_k": true)",
                            R"("ignore_eos": 1)",
                            R"("stop_token_ids": 5)",
                            R"("logit_bias": [])",
                            R"("n": 0)",
                            R"("n": 129)",
                            R"("best_of": 0)"}) {
    const std::string text(field);
    const std::string name = text.substr(1, text.find('"', 1) - 1);
    ExpectRefused("{" + text + "}", name);
  }
  ExpectRefused(R"({"max_tokens": 3, "min_tokens": 4})", "min_tokens");
  ExpectRefused(R"({"stop_token_ids": [1, -1]})", "stop_token_ids[1]");
}

TEST(RequestFields, StopStringsAreBounded) {
  ExpectRefused(R"({"stop": ""})", "stop");
  ExpectRefused(R"({"stop": ["a", ""]})", "stop[1]");
  ExpectRefused(R"({"stop": ["a", 1]})", "stop[1]");
  ExpectRefused(R"({"stop": 1})", "stop");
  std::string many = "[\"a\"";
  for (int i = 0; i < 16; ++i) many += ",\"a\"";
  ExpectRefused("{\"stop\": " + many + "]}", "stop");
  ExpectRefused("{\"stop\": \"" + std::string(1025, 'x') + "\"}", "stop");
}

TEST(RequestFields, LogitBiasKeysAreTokenIds) {
  for (const char* key : {"", "a", "-1", "1.5", "99999999999", " 1", "1 "}) {
    ExpectRefused(std::string("{\"logit_bias\": {\"") + key + "\": 1}}",
                  "logit_bias");
  }
  ExpectRefused(R"({"logit_bias": {"1": 101}})", "logit_bias.1");
  std::string many;
  for (int i = 0; i < 1025; ++i) {
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\": 0";
  }
  ExpectRefused("{\"logit_bias\": {" + many + "}}", "logit_bias");
}

TEST(RequestFields, WhatWouldChangeTheAnswerAndDoesNotWorkIsRefused) {
  for (const char* field :
       {R"("functions": [{"name": "f"}])", R"("function_call": "auto")",
        R"("modalities": ["text", "audio"])", R"("best_of": 2)",
        R"("echo": true)", R"("use_beam_search": true)",
        R"("prompt_logprobs": 1)", R"("lora": [{"id": 0, "scale": 1}])",
        R"("post_sampling_probs": true)", R"("adaptive_target": 0.5)",
        R"("grammar_lazy": true)", R"("tfs_z": 0.9)",
        R"("add_special_tokens": true)",
        R"("spaces_between_special_tokens": false)",
        R"("prompt_embeds": "AAAA")"}) {
    const std::string text(field);
    const std::string name = text.substr(1, text.find('"', 1) - 1);
    ExpectRefused("{" + text + "}", name);
    EXPECT_EQ(Read("{" + text + "}").status().reason(),
              "unsupported_parameter");
  }
  ExpectRefused(R"({"suffix": "end"})", "suffix", FieldDialect::kCompletions);
  ExpectRefused(R"({"add_special_tokens": false})", "add_special_tokens",
                FieldDialect::kCompletions);
}

TEST(RequestFields, SeveralAnswersMayBeAskedFor) {
  EXPECT_EQ(Read("{}")->n, 1);
  EXPECT_EQ(Read(R"({"n": 128})")->n, 128);
  EXPECT_EQ(Read(R"({"n": 3, "best_of": 3})", FieldDialect::kCompletions)->n,
            3);
  ExpectRefused(R"({"n": 3, "best_of": 2})", "best_of");
  ExpectRefused(R"({"n": 3, "best_of": 4})", "best_of");
  ExpectRefused(R"({"n": 2})", "n", FieldDialect::kSamplingParameters);
}

TEST(RequestFields, TheHarmlessFormOfARefusedFieldPasses) {
  EXPECT_TRUE(Read(R"({"tools": [], "tool_choice": "none", "n": 1,
                       "response_format": {"type": "text"},
                       "modalities": ["text"], "best_of": 1, "echo": false,
                       "use_beam_search": false, "lora": [],
                       "post_sampling_probs": false, "adaptive_target": -1,
                       "grammar_lazy": false, "tfs_z": 1,
                       "add_special_tokens": false,
                       "spaces_between_special_tokens": true})")
                  .ok());
  EXPECT_TRUE(Read(R"({"suffix": ""})", FieldDialect::kCompletions).ok());
}

TEST(RequestFields, FieldsWithoutEffectAndUnknownOnesAreAccepted) {
  EXPECT_TRUE(Read(R"({"user": "u", "store": true, "metadata": {"a": 1},
                       "service_tier": "auto", "parallel_tool_calls": true,
                       "reasoning_effort": "low", "something_new": [1]})")
                  .ok());
}

TEST(RequestFields, EchoBelongsToCompletions) {
  EXPECT_TRUE(Read(R"({"echo": true})", FieldDialect::kCompletions)->echo);
}

TEST(RequestFields, SamplingParametersMayBeStrings) {
  const auto options =
      Read(R"({"temperature": "0.1", "top_k": "5", "ignore_eos": "True",
               "stop": "7", "max_tokens": "12"})",
           FieldDialect::kSamplingParameters);
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->temperature, 0.1);
  EXPECT_EQ(options->top_k, 5);
  EXPECT_TRUE(options->ignore_eos);
  EXPECT_EQ(options->stop, std::vector<std::string>{"7"});
  EXPECT_EQ(options->max_tokens, 12);
  ExpectRefused(R"({"temperature": "hot"})", "temperature",
                FieldDialect::kSamplingParameters);
  ExpectRefused(R"({"temperature": "0.1"})", "temperature");
}

TEST(RequestFields, BodyMustBeAnObjectOfFewFields) {
  std::string many;
  for (int i = 0; i < 1001; ++i) {
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\": 0";
  }
  EXPECT_EQ(Read("{" + many + "}").status().message(),
            "the request has 1001 fields but may have at most 1000");
  EXPECT_FALSE(Read("[]").ok());
  EXPECT_FALSE(Read("3", FieldDialect::kSamplingParameters).ok());
}

TEST(RequestFields, APredictionIsATextOrPartsOfOne) {
  const auto text = [](const std::string& prediction) {
    const auto options = Read("{\"prediction\": " + prediction + "}");
    EXPECT_TRUE(options.ok()) << options.status().ToString();
    return options.ok() ? options->prediction : "";
  };
  EXPECT_EQ(text("null"), "");
  EXPECT_EQ(text(R"({"type": "content", "content": "a\nb"})"), "a\nb");
  EXPECT_EQ(text(R"({"type": "content", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})"),
            "ab");
  EXPECT_EQ(text(R"({"type": "content", "content": []})"), "");
  ExpectRefused(R"({"prediction": "a"})", "prediction");
  ExpectRefused(R"({"prediction": {"content": "a"}})", "prediction.type");
  ExpectRefused(R"({"prediction": {"type": "text", "content": "a"}})",
                "prediction.type");
  ExpectRefused(R"({"prediction": {"type": "content"}})", "prediction.content");
  ExpectRefused(R"({"prediction": {"type": "content", "content": 3}})",
                "prediction.content");
  ExpectRefused(R"({"prediction": {"type": "content", "content": ["a"]}})",
                "prediction.content[0]");
  ExpectRefused(R"({"prediction": {"type": "content",
                    "content": [{"type": "image_url"}]}})",
                "prediction.content[0].type");
  ExpectRefused(R"({"prediction": {"type": "content",
                    "content": [{"type": "text"}]}})",
                "prediction.content[0].text");
  // Of chats only, as with OpenAI.
  EXPECT_EQ(Read(R"({"prediction": {"type": "content", "content": "a"}})",
                 FieldDialect::kCompletions)
                ->prediction,
            "");
}

TEST(RequestFields, TokensThatMayBeDrawnAreListsThatMakeSense) {
  ExpectRefused(R"({"allowed_token_ids": []})", "allowed_token_ids");
  ExpectRefused(R"({"allowed_token_ids": [1, -1]})", "allowed_token_ids[1]");
  ExpectRefused(R"({"allowed_token_ids": "1"})", "allowed_token_ids");
  ExpectRefused(R"({"bad_words": "no"})", "bad_words");
  ExpectRefused(R"({"bad_words": ["no", ""]})", "bad_words[1]");
  ExpectRefused(R"({"bad_words": [" \t"]})", "bad_words[0]");
  ExpectRefused(R"({"bad_words": [3]})", "bad_words[0]");
  EXPECT_TRUE(Read(R"({"allowed_token_ids": null, "bad_words": []})").ok());
}

}  // namespace
}  // namespace millrace::handlers
