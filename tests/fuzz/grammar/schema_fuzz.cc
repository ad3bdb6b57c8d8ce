// Any bytes as a JSON Schema: refused with a sentence, or rewritten into a
// schema that holds only what the library honours, stays within the limits and
// is taken again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/grammar/json_schema.h"

namespace {

using Json = nlohmann::ordered_json;

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "schema_fuzz: %s\n", why);
  std::abort();
}

void CheckNothingLeft(const Json& schema) {
  if (!schema.is_object()) return;
  for (const char* keyword : {"allOf", "oneOf", "not", "if", "uniqueItems"}) {
    Require(!schema.contains(keyword), "a keyword that is not honoured");
  }
  if (const auto any = schema.find("anyOf"); any != schema.end()) {
    Require(schema.size() <= 2, "something stands beside anyOf");
    for (const Json& branch : *any) CheckNothingLeft(branch);
  }
  if (schema.contains("items")) CheckNothingLeft(schema["items"]);
  for (const char* named : {"properties", "$defs"}) {
    if (!schema.contains(named)) continue;
    for (const Json& part : schema[named]) CheckNothingLeft(part);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto normal = millrace::models::NormalSchema(text);
  if (!normal.ok()) {
    Require(normal.status().code() == millrace::StatusCode::kInvalidArgument,
            "a bad schema is INVALID_ARGUMENT");
    Require(!normal.status().message().empty(), "a refusal says why");
    Require(millrace::IsValidUtf8(normal.status().message()),
            "and says it in UTF-8");
    return 0;
  }
  const auto schema = millrace::ParseJson(*normal, {.max_depth = 1000});
  Require(schema.ok() && schema->is_object(), "the result is a JSON object");
  CheckNothingLeft(*schema);
  return 0;
}
