#include "handlers/constraint_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "handlers/request_fields.h"

namespace millrace::handlers {
namespace {

using models::ConstraintKind;
using models::OutputConstraint;

StatusOr<OutputConstraint> Read(const std::string& body) {
  return ReadConstraint(nlohmann::ordered_json::parse(body));
}

void ExpectReads(const std::string& body, ConstraintKind kind,
                 const std::string& text, const std::string& field) {
  const auto constraint = Read(body);
  ASSERT_TRUE(constraint.ok()) << body << constraint.status().ToString();
  EXPECT_EQ(constraint->kind, kind) << body;
  EXPECT_EQ(constraint->text, text) << body;
  EXPECT_EQ(constraint->field, field) << body;
}

void ExpectRefused(const std::string& body, const std::string& field) {
  const auto constraint = Read(body);
  ASSERT_FALSE(constraint.ok()) << body;
  EXPECT_EQ(constraint.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(constraint.status().field(), field) << body;
}

TEST(ConstraintFields, ResponseFormatIsReadAsOpenAiSpellsIt) {
  ExpectReads(R"({"response_format": {"type": "text"}})", ConstraintKind::kNone,
              "", "");
  ExpectReads(R"({"response_format": {"type": "json_object"}})",
              ConstraintKind::kJsonObject, "", "response_format");
  for (const char* schema : {R"("json_schema": {"name": "n", "strict": true,
                           "schema": {"type": "null"}})",
                             R"("schema": {"type": "null"})"}) {
    ExpectReads(R"({"response_format": {"type": "json_schema", )" +
                    std::string(schema) + "}}",
                ConstraintKind::kJsonSchema, R"({"type":"null"})",
                "response_format.json_schema.schema");
  }
  ExpectReads(
      R"({"response_format": {"type": "json_object",
                              "schema": {"type": "null"}}})",
      ConstraintKind::kJsonSchema, R"({"type":"null"})",
      "response_format.schema");
  ExpectRefused(R"({"response_format": "json"})", "response_format");
  ExpectRefused(R"({"response_format": {}})", "response_format.type");
  ExpectRefused(R"({"response_format": {"type": "xml"}})",
                "response_format.type");
  ExpectRefused(R"({"response_format": {"type": "json_schema"}})",
                "response_format.json_schema");
}

TEST(ConstraintFields, NamesOfVllmLlamaCppAndSglang) {
  ExpectReads(R"({"structured_outputs": {"json": {"a": 1}}})",
              ConstraintKind::kJsonSchema, R"({"a":1})",
              "structured_outputs.json");
  ExpectReads(R"({"structured_outputs": {"json_object": true}})",
              ConstraintKind::kJsonObject, "",
              "structured_outputs.json_object");
  ExpectReads(R"({"guided_json": "{}"})", ConstraintKind::kJsonSchema, "{}",
              "guided_json");
  ExpectReads(R"({"guided_regex": "a+"})", ConstraintKind::kRegex, "a+",
              "guided_regex");
  ExpectReads(R"({"guided_choice": ["a", "b"]})", ConstraintKind::kChoice,
              R"(["a","b"])", "guided_choice");
  ExpectReads(R"({"grammar": "root ::= x"})", ConstraintKind::kGrammar,
              "root ::= x", "grammar");
  ExpectReads(R"({"json_schema": {}})", ConstraintKind::kJsonSchema, "{}",
              "json_schema");
  ExpectReads(R"({"regex": "a+"})", ConstraintKind::kRegex, "a+", "regex");
  ExpectReads(R"({"ebnf": "root ::= x"})", ConstraintKind::kGrammar,
              "root ::= x", "ebnf");
}

TEST(ConstraintFields, EmptyOnesAskForNothing) {
  ExpectReads(R"({"guided_regex": "", "guided_choice": [], "grammar": null,
                  "structured_outputs": {"json_object": false}})",
              ConstraintKind::kNone, "", "");
}

TEST(ConstraintFields, WrongTypesAreRefused) {
  ExpectRefused(R"({"guided_json": 1})", "guided_json");
  ExpectRefused(R"({"guided_regex": {}})", "guided_regex");
  ExpectRefused(R"({"guided_choice": "a"})", "guided_choice");
  ExpectRefused(R"({"structured_outputs": []})", "structured_outputs");
  ExpectRefused(R"({"structured_outputs": {"json_object": "yes"}})",
                "structured_outputs.json_object");
}

TEST(ConstraintFields, OnlyOneMayAskForSomething) {
  ExpectRefused(R"({"response_format": {"type": "json_object"},
                    "guided_regex": "a"})",
                "guided_regex");
  ExpectRefused(R"({"structured_outputs": {"regex": "a", "choice": ["b"]}})",
                "structured_outputs.choice");
}

TEST(ConstraintFields, OptionsOfOtherCompilersAreRefused) {
  ExpectRefused(R"({"structured_outputs": {"whitespace_pattern": " "}})",
                "structured_outputs.whitespace_pattern");
  ExpectRefused(R"({"guided_whitespace_pattern": " "})",
                "guided_whitespace_pattern");
}

TEST(ConstraintFields, AllowedTokensCannotStandBesideThem) {
  const auto options = ReadGenerateOptions(
      nlohmann::ordered_json::parse(
          R"({"guided_regex": "a", "allowed_token_ids": [1]})"),
      FieldDialect::kChat);
  EXPECT_EQ(options.status().field(), "allowed_token_ids");
}

TEST(ConstraintFields, APatternOfDigitsStaysAText) {
  const auto options = ReadGenerateOptions(
      nlohmann::ordered_json::parse(R"({"guided_regex": "12"})"),
      FieldDialect::kSamplingParameters);
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->constraint.text, "12");
}

}  // namespace
}  // namespace millrace::handlers
