// Typed readers for the fields of a JSON request. Every error is a sentence
// with the field's path, what it must be and what it is, and has field() set:
//
//   ASSIGN_OR_RETURN(auto stream, ReadBool(body, "stream"));
//   if (stream.value_or(false)) ...
//   => "temperature is 3.5 but must be between 0 and 2"
//   => "stream must be true or false, not a string (\"yes\")"
//
// Absent and null are the same: no value. 1.0 is an integer; true is not.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::handlers {

struct IntRange {
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;
};
struct NumberRange {
  double min;
  double max;
  bool without_min = false;  // (min, max] instead of [min, max]
};

// A request's object has at most so many fields: each look-up of an ordered
// object walks all of them, and so does each insertion. Asked before any of
// either. `num_fields` may also be that of a map which is yet to be put into
// one.
inline constexpr size_t kMostFields = 1000;
Status CheckFieldCount(size_t num_fields);

// Null when absent, null, or when `body` is no object.
const nlohmann::ordered_json* FindField(const nlohmann::ordered_json& body,
                                        std::string_view name);

StatusOr<std::optional<bool>> ReadBool(const nlohmann::ordered_json& body,
                                       std::string_view name);
StatusOr<std::optional<int64_t>> ReadInt(const nlohmann::ordered_json& body,
                                         std::string_view name,
                                         const IntRange& range = {});
StatusOr<std::optional<double>> ReadNumber(const nlohmann::ordered_json& body,
                                           std::string_view name,
                                           const NumberRange& range);
StatusOr<std::optional<std::string>> ReadString(
    const nlohmann::ordered_json& body, std::string_view name);
// The object or array itself, borrowed from the body; null when absent.
StatusOr<const nlohmann::ordered_json*> ReadObject(
    const nlohmann::ordered_json& body, std::string_view name);
StatusOr<const nlohmann::ordered_json*> ReadArray(
    const nlohmann::ordered_json& body, std::string_view name);

// The same for a value inside an array or object; `path` is its name in the
// sentence ("stop_token_ids[3]").
StatusOr<int64_t> AsInt(const nlohmann::ordered_json& value,
                        std::string_view path, const IntRange& range = {});
StatusOr<double> AsNumber(const nlohmann::ordered_json& value,
                          std::string_view path, const NumberRange& range);
StatusOr<std::string> AsString(const nlohmann::ordered_json& value,
                               std::string_view path);

// "PATH must be EXPECTED, not a string ("hot")".
Status WrongType(std::string_view path, std::string_view expected,
                 const nlohmann::ordered_json& value);
// A value as it goes into a sentence: JSON, shortened.
std::string Shown(const nlohmann::ordered_json& value);

}  // namespace millrace::handlers
