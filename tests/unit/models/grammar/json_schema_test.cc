// Which schemas are rewritten into what, and which are refused with which word.
// That the results mean the same is tested with real answers by tests/e2e.
#include "models/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

void ExpectBecomes(const std::string& schema, const std::string& wanted) {
  const StatusOr<std::string> normal = NormalSchema(schema);
  ASSERT_TRUE(normal.ok()) << schema << "\n" << normal.status().ToString();
  EXPECT_EQ(Json::parse(*normal), Json::parse(wanted)) << schema;
}

void ExpectRefused(const std::string& schema, const std::string& word) {
  const StatusOr<std::string> normal = NormalSchema(schema);
  ASSERT_FALSE(normal.ok()) << schema << "\n" << *normal;
  EXPECT_EQ(normal.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(normal.status().message().find(word), std::string::npos)
      << schema << "\n"
      << normal.status().ToString();
}

TEST(JsonSchema, AnObjectSaysWhetherItHasOtherNames) {
  ExpectBecomes(R"({"type": "object"})",
                R"({"type": "object", "additionalProperties": {}})");
  ExpectBecomes(R"({"type": "object", "properties": {"a": true}})",
                R"({"type": "object", "properties": {"a": {}},
                    "additionalProperties": false})");
}

TEST(JsonSchema, ARequiredNameBecomesAProperty) {
  ExpectBecomes(
      R"({"type": "object", "required": ["x"], "properties": {"y": {}},
          "additionalProperties": {"type": "null"}})",
      R"({"type": "object",
          "properties": {"y": {}, "x": {"type": "null"}}, "required": ["x"],
          "additionalProperties": {"type": "null"}})");
  ExpectRefused(R"({"type": "object", "required": ["x"],
                    "additionalProperties": false})",
                "no value");
}

TEST(JsonSchema, TypesAreFoundByTheirKeywords) {
  ExpectBecomes(R"({"minLength": 2})",
                R"({"type": "string", "pattern": "^.{2,}$"})");
  ExpectBecomes(R"({"type": ["string", "null"], "maxLength": 200})",
                R"({"anyOf": [{"type": "string", "maxLength": 200},
                              {"type": "null"}]})");
  ExpectBecomes(R"({"title": "anything"})", "{}");
  ExpectRefused(R"({"type": "text"})", "\"text\"");
}

TEST(JsonSchema, AListEndsBeforeAnItemThatNothingFits) {
  ExpectBecomes(
      R"({"prefixItems": [{"const": 1}, false, {"const": 2}],
          "items": {"const": 3}})",
      R"({"type": "array", "prefixItems": [{"enum": [1]}], "items": false})");
  ExpectBecomes(R"({"type": "array", "prefixItems": [false], "maxItems": 4})",
                R"({"type": "array", "maxItems": 4, "items": false})");
  ExpectRefused(R"({"prefixItems": [true, false], "minItems": 2})",
                "leaves no value: minItems is 2 but there are 1 items");
}

TEST(JsonSchema, IntegersHaveInclusiveBounds) {
  ExpectBecomes(R"({"type": "integer", "exclusiveMinimum": 4, "minimum": 2,
                    "maximum": 9.5})",
                R"({"type": "integer", "minimum": 5, "maximum": 9})");
  ExpectRefused(R"({"type": "integer", "minimum": 5, "maximum": 3})",
                "no value");
  ExpectRefused(R"({"type": "integer", "minimum": 1e300})", "2^53");
}

TEST(JsonSchema, MembersOfAllOfAreMerged) {
  ExpectBecomes(
      R"({"allOf": [{"type": "integer"}, {"minimum": 5}, {"maximum": 9}]})",
      R"({"type": "integer", "minimum": 5, "maximum": 9})");
  ExpectBecomes(
      R"({"allOf": [{"type": "object", "properties": {"a": {}, "b": {}}},
                    {"properties": {"a": {"type": "null"}},
                     "required": ["a"], "additionalProperties": false}]})",
      R"({"type": "object", "properties": {"a": {"type": "null"}},
          "required": ["a"], "additionalProperties": false})");
  ExpectRefused(R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})",
                "'pattern'");
  ExpectRefused(R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
                "no value");
}

TEST(JsonSchema, KeywordsBesideAnyOfMoveIntoItsBranches) {
  ExpectBecomes(
      R"({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 0}]})",
      R"({"anyOf": [{"type": "integer", "minimum": 5},
                    {"type": "integer", "maximum": 0}]})");
}

TEST(JsonSchema, OneOfIsTakenWhereNoValueFitsTwoBranches) {
  ExpectBecomes(R"({"oneOf": [{"type": "string"}, {"type": "null"}]})",
                R"({"anyOf": [{"type": "string"}, {"type": "null"}]})");
  EXPECT_TRUE(NormalSchema(R"({"oneOf": [
      {"properties": {"k": {"const": 1}}, "required": ["k"]},
      {"properties": {"k": {"const": 2}}, "required": ["k"]}]})")
                  .ok());
  ExpectRefused(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
                "'oneOf'");
  ExpectRefused(R"({"oneOf": [
      {"properties": {"k": {"const": 1}}},
      {"properties": {"k": {"const": 2}}}]})",
                "'oneOf'");
  // {"a": 1, "b": 1} would fit both, but is written for neither.
  EXPECT_TRUE(NormalSchema(R"({"oneOf": [
      {"properties": {"a": {}}, "required": ["a"]},
      {"properties": {"b": {}}, "required": ["b"]}]})")
                  .ok());
}

TEST(JsonSchema, ListedValuesAreThoseOfTheType) {
  ExpectBecomes(R"({"type": "string", "enum": ["a", 1, "b"]})",
                R"({"enum": ["a", "b"]})");
  ExpectRefused(R"({"type": "null", "enum": ["a"]})", "no value");
  ExpectRefused(R"({"enum": ["a"], "minLength": 2})", "'minLength'");
  ExpectRefused(R"({"const": 123456789012345678901234567890})", "exact");
}

TEST(JsonSchema, ReferencesKeepTheirTargets) {
  ExpectBecomes(R"({"$ref": "#/$defs/a~1b",
                    "$defs": {"a/b": {"type": "array",
                                      "items": {"$ref": "#"}}}})",
                R"({"$ref": "#/$defs/d0",
                    "$defs": {"d0": {"type": "array",
                                     "items": {"$ref": "#/$defs/d1"}},
                              "d1": {"$ref": "#/$defs/d0"}}})");
  ExpectBecomes(R"({"$ref": "#/$defs/n", "minimum": 5,
                    "$defs": {"n": {"type": "integer"}}})",
                R"({"type": "integer", "minimum": 5})");
  ExpectBecomes(
      R"({"$ref": "#/$defs/a%25%62", "$defs": {"a%b": {"const": 1}}})",
      R"({"$ref": "#/$defs/d0", "$defs": {"d0": {"enum": [1]}}})");
  for (const char* ref : {"#/$defs/a%2", "#/$defs/a%zz", "#/$defs/a%"}) {
    ExpectRefused(R"({"$ref": ")" + std::string(ref) + R"("})", ref);
  }
  ExpectRefused(R"({"$ref": "http://x/y"})", "http://x/y");
  ExpectRefused(R"({"$ref": "#/$defs/x"})", "no schema");
  ExpectRefused(R"({"$ref": "#"})", "itself");
  ExpectRefused(R"({"allOf": [{"$ref": "#"}]})", "nested");
}

TEST(JsonSchema, WhatIsNotHonouredIsNamed) {
  for (const char* keyword :
       {"not", "if", "contains", "dependentRequired", "dependentSchemas",
        "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
        "$recursiveRef", "minContains", "propertyOrder"}) {
    ExpectRefused("{\"" + std::string(keyword) + "\": {}}",
                  "'" + std::string(keyword) + "'");
  }
  ExpectRefused(R"({"type": "array", "uniqueItems": true})", "'uniqueItems'");
  ExpectBecomes(R"({"type": "integer", "multipleOf": 1e-8, "minimum": 1})",
                R"({"type": "integer", "minimum": 1})");
  ExpectRefused(R"({"type": "integer", "multipleOf": 0.4})", "multipleOf 0.4");
  ExpectRefused(R"({"type": "number", "multipleOf": 2})", "'multipleOf'");
  ExpectRefused(R"({"format": "idn-email"})", "idn-email");
  ExpectRefused(R"({"properties": {"a": {"items": {"not": {}}}}})",
                "/properties/a/items");
}

TEST(JsonSchema, AMergedPropertyThatIsFalseStaysForbidden) {
  ExpectBecomes(
      R"({"allOf": [{"type": "object", "properties": {"x": false}},
                    {"properties": {"y": {}}}]})",
      R"({"type": "object", "properties": {"y": {}},
          "additionalProperties": false})");
  ExpectRefused(R"({"allOf": [{"properties": {"x": false}},
                              {"properties": {"y": {}}, "required": ["x"]}]})",
                "no value");
  ExpectRefused(R"({"allOf": [{"properties": {"x": false}},
                              {"properties": {"y": {}},
                               "additionalProperties": true}]})",
                "'x'");
}

TEST(JsonSchema, ManyBranchesWithOneNameEachExcludeEachOther) {
  std::string branches;
  for (int i = 0; i < 100; ++i) {
    branches += std::string(i > 0 ? "," : "") +
                R"({"type": "object", "required": ["kind"], "properties":
                    {"kind": {"const": "k)" +
                std::to_string(i) + R"("}}})";
  }
  const auto normal = NormalSchema(R"({"oneOf": [)" + branches + "]}");
  EXPECT_TRUE(normal.ok()) << normal.status().ToString();
}

TEST(JsonSchema, TheOrderOfNamesInAValueDoesNotCount) {
  ExpectRefused(R"({"oneOf": [{"const": {"a": 1, "b": 2}},
                              {"const": {"b": 2, "a": 1}}]})",
                "'oneOf'");
  ExpectBecomes(R"({"enum": [{"a": 1, "b": [{"c": 1, "d": 2}]}, 7],
                    "const": {"b": [{"d": 2, "c": 1}], "a": 1}})",
                R"({"enum": [{"b": [{"d": 2, "c": 1}], "a": 1}]})");
}

TEST(JsonSchema, SizesAndDepthAreBounded) {
  std::string deep = "{}";
  for (int i = 0; i <= kMaxSchemaDepth; ++i)
    deep = R"({"items": )" + deep + "}";
  ExpectRefused(deep, "nested");
  // Each doubles the one before.
  std::string defs = R"("a20": {"type": "string"})";
  for (int i = 0; i < 20; ++i) {
    const std::string next =
        R"({"$ref": "#/$defs/a)" + std::to_string(i + 1) + "\"}";
    defs += ", \"a" + std::to_string(i) + R"(": {"allOf": [)" + next + ", " +
            next + "]}";
  }
  ExpectRefused(
      R"({"$ref": "#/$defs/a0", "minLength": 1, "$defs": {)" + defs + "}}",
      "limit");
  std::string many = "0";
  for (int i = 1; i <= kMaxEnumValues; ++i) many += "," + std::to_string(i);
  ExpectRefused("{\"enum\": [" + many + "]}", "limit");
  ExpectRefused(R"({"maxLength": 100001})", "100000");
}

}  // namespace
}  // namespace millrace::models
