// The keywords of a JSON Schema that speak of one type: strings, numbers,
// arrays, objects. See json_schema.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// Writes the schemas inside of a schema.
class SubschemaWriter {
 public:
  virtual StatusOr<nlohmann::ordered_json> Write(
      const nlohmann::ordered_json& schema, const std::string& path,
      int depth) = 0;
  // "the schema at PATH WHY".
  virtual Status Error(const std::string& path,
                       const std::string& why) const = 0;

 protected:
  ~SubschemaWriter() = default;
};

bool IsTypeKeyword(std::string_view keyword);

// The name of a value's type, "integer" for whole numbers.
std::string TypeOf(const nlohmann::ordered_json& value);

// All numbers in it are what the client wrote, not the nearest that fits.
bool IsExact(const nlohmann::ordered_json& value);

// A schema without $ref, allOf, anyOf, oneOf, enum and const. Without a `type`
// the value has one of the types that its keywords speak of; without those,
// too, any.
StatusOr<nlohmann::ordered_json> WriteTypes(
    const nlohmann::ordered_json& schema, const std::string& path, int depth,
    SubschemaWriter& writer);

// True if no value that is written for one of them fits the other. Neither they
// nor their required properties have a reference or allOf at the top.
bool AreDisjoint(const nlohmann::ordered_json& a,
                 const nlohmann::ordered_json& b);

}  // namespace millrace::models
