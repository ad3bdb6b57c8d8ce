// Fields of llama.cpp that act on others: read by the same reader as those.
#include "handlers/llama_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"

namespace millrace::handlers {
namespace {

constexpr FieldDialect kDialects[] = {FieldDialect::kChat,
                                      FieldDialect::kCompletions,
                                      FieldDialect::kSamplingParameters};

GenerateOptions Read(const std::string& text,
                     FieldDialect dialect = FieldDialect::kChat) {
  const auto options = ReadGenerateOptions(*ParseJson(text), dialect);
  EXPECT_TRUE(options.ok()) << text << ": " << options.status().ToString();
  return options.ok() ? *options : GenerateOptions{};
}

// In every dialect.
void ExpectRefused(const std::string& text, const std::string& field) {
  for (const FieldDialect dialect : kDialects) {
    const auto options = ReadGenerateOptions(*ParseJson(text), dialect);
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.status().field(), field) << text;
    EXPECT_NE(options.status().message().find(field), std::string::npos)
        << options.status().message();
  }
}

TEST(LlamaFields, RepeatPenaltyIsTheRepetitionPenalty) {
  for (const FieldDialect dialect : kDialects) {
    EXPECT_EQ(Read(R"({"repeat_penalty": 1.25})", dialect).repetition_penalty,
              1.25);
  }
  EXPECT_EQ(Read(R"({"repeat_penalty": 1.5, "repetition_penalty": 1.5})")
                .repetition_penalty,
            1.5);
  ExpectRefused(R"({"repeat_penalty": 1.5, "repetition_penalty": 1.25})",
                "repeat_penalty");
  ExpectRefused(R"({"repeat_penalty": 0})", "repeat_penalty");
  ExpectRefused(R"({"repeat_penalty": [1]})", "repeat_penalty");
}

TEST(LlamaFields, ProbabilitiesOfTokens) {
  EXPECT_EQ(Read(R"({"n_probs": 3})").logprobs, 3);
  EXPECT_EQ(Read(R"({"n_probs": 3, "logprobs": true})").logprobs, 3);
  EXPECT_EQ(Read(R"({"n_probs": 3})", FieldDialect::kCompletions).logprobs, 3);
  EXPECT_EQ(Read(R"({"n_probs": 0})").logprobs, std::nullopt);
  EXPECT_EQ(Read(R"({"n_probs": 0, "logprobs": true})").logprobs, 0);
  ExpectRefused(R"({"n_probs": 21})", "n_probs");
  const auto two = ReadGenerateOptions(
      *ParseJson(R"({"n_probs": 3, "logprobs": true, "top_logprobs": 2})"),
      FieldDialect::kChat);
  EXPECT_EQ(two.status().field(), "n_probs");
}

TEST(LlamaFields, PenaltiesLookAtSoManyTokens) {
  EXPECT_EQ(Read("{}").repeat_last_n, std::nullopt);
  for (const int last_n : {-1, 1, 64}) {
    const GenerateOptions some =
        Read("{\"repeat_last_n\": " + std::to_string(last_n) +
             R"(, "repeat_penalty": 1.5, "presence_penalty": 1})");
    EXPECT_EQ(some.repeat_last_n, last_n);
    EXPECT_EQ(some.repetition_penalty, 1.5);
    EXPECT_EQ(some.presence_penalty, 1);
  }
  const GenerateOptions none = Read(
      R"({"repeat_last_n": 0, "repeat_penalty": 1.5, "presence_penalty": 1,
          "frequency_penalty": 1})");
  EXPECT_EQ(none.repetition_penalty, 1);
  EXPECT_EQ(none.presence_penalty, 0);
  EXPECT_EQ(none.frequency_penalty, 0);
  ExpectRefused(R"({"repeat_last_n": -2})", "repeat_last_n");
}

using enum models::DrawStage;
using Order = std::vector<models::DrawStage>;

constexpr char kAllOn[] =
    R"("temperature": 0.5, "top_k": 5, "top_p": 0.5, "min_p": 0.25,
       "typical_p": 0.5, "top_n_sigma": 2, "xtc_probability": 0.5,
       "xtc_threshold": 0.25, "dynatemp_range": 0.25, "dry_multiplier": 1,
       "repeat_penalty": 1.5, "presence_penalty": 1, "frequency_penalty": 1)";

GenerateOptions WithSamplers(const std::string& samplers) {
  return Read("{" + std::string(kAllOn) + R"(, "samplers": )" + samplers + "}");
}

TEST(LlamaFields, SamplersThatAreNotNamedAreOff) {
  const GenerateOptions all = WithSamplers(
      R"(["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p",
          "xtc", "temperature"])");
  const GenerateOptions without = Read("{" + std::string(kAllOn) + "}");
  EXPECT_EQ(all.temperature, without.temperature);
  EXPECT_EQ(all.top_k, without.top_k);
  EXPECT_EQ(all.xtc_probability, without.xtc_probability);
  EXPECT_EQ(all.xtc_threshold, without.xtc_threshold);
  EXPECT_EQ(all.dry_multiplier, without.dry_multiplier);
  EXPECT_EQ(all.repetition_penalty, without.repetition_penalty);

  for (const char* few : {R"(["top_k", "temperature"])", R"("kt")"}) {
    const GenerateOptions two = WithSamplers(few);
    EXPECT_EQ(two.temperature, 0.5) << few;
    EXPECT_EQ(two.top_k, 5);
    EXPECT_EQ(two.top_p, 1);
    EXPECT_EQ(two.min_p, 0);
    EXPECT_EQ(two.typical_p, 1);
    EXPECT_EQ(two.top_n_sigma, -1);
    EXPECT_EQ(two.dry_multiplier, 0);
    EXPECT_EQ(two.repetition_penalty, 1);
    EXPECT_EQ(two.presence_penalty, 0);
    EXPECT_EQ(two.frequency_penalty, 0);
    EXPECT_EQ(two.dynatemp_range, 0.25);
    EXPECT_EQ(two.xtc_probability, 0);
    EXPECT_EQ(two.sampler_order, (Order{kTopK, kTemperature}));
  }
  const GenerateOptions none = WithSamplers("[]");
  EXPECT_EQ(none.temperature, 1);
  EXPECT_EQ(none.dynatemp_range, 0);
  EXPECT_EQ(none.top_k, 0);
}

TEST(LlamaFields, SamplersActInTheOrderOfTheirNames) {
  EXPECT_EQ(Read("{}").sampler_order, Order{});
  EXPECT_EQ(
      WithSamplers(R"(["temperature", "typical_p", "top_k"])").sampler_order,
      (Order{kTemperature, kTypical, kTopK}));
  EXPECT_EQ(
      WithSamplers(R"("edtxmpyks")").sampler_order,
      (Order{kTemperature, kXtc, kMinP, kTopP, kTypical, kTopK, kTopNSigma}));
  EXPECT_FALSE(WithSamplers(R"(["penalties", "dry", "top_k"])").dry_first);
  EXPECT_TRUE(WithSamplers(R"(["dry", "penalties", "top_k"])").dry_first);
  EXPECT_FALSE(WithSamplers(R"(["dry", "top_k"])").dry_first);
  // What changes logits comes before what cuts, where it is on.
  ExpectRefused(R"({"samplers": ["top_k", "penalties"],
                    "frequency_penalty": 1})",
                "samplers");
  ExpectRefused(R"({"samplers": ["top_k", "dry"], "dry_multiplier": 1})",
                "samplers");
  const GenerateOptions last =
      Read(R"({"samplers": ["top_k", "dry", "penalties"]})");
  EXPECT_EQ(last.repetition_penalty, 1);
  EXPECT_EQ(last.dry_multiplier, 0);
  EXPECT_EQ(last.sampler_order, (Order{kTopK}));
}

TEST(LlamaFields, SamplersThatDoNotGoTogetherAreRefused) {
  ExpectRefused(R"({"samplers": ["top_k", "top_k"]})", "samplers");
  ExpectRefused(R"({"samplers": ["infill"]})", "samplers");
  ExpectRefused(R"({"samplers": "k?"})", "samplers");
  ExpectRefused(R"({"samplers": [1]})", "samplers");
  ExpectRefused(R"({"samplers": 1})", "samplers");
  // Mirostat takes the place of all.
  EXPECT_EQ(
      Read(R"({"samplers": ["top_k"], "mirostat": 2, "top_p": 0.5})").top_p,
      0.5);
}

}  // namespace
}  // namespace millrace::handlers
