// JSON numbers are not C++ numbers: 1.0 and 1e2 are integers,
// 18446744073709551615 is an integer that int64_t cannot hold, and 1e999 is
// infinity once it is parsed.
#include "handlers/json_fields.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kShownBytes = 60;

std::string TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_float:
      return "a number with a fraction";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    default:
      return "binary";
  }
}

std::string Plain(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", number);
  return buffer;
}

Status OutOfBounds(std::string_view path, const Json& value,
                   const std::string& bounds) {
  return InvalidArgument(std::string(path) + " is " + Shown(value) +
                         " but must be " + bounds)
      .At(path);
}

std::string Bounds(const IntRange& range) {
  if (range.max == INT64_MAX && range.min == INT64_MIN) {
    return "an integer of 64 bits";
  }
  if (range.max == INT64_MAX) {
    return "at least " + std::to_string(range.min);
  }
  if (range.min == INT64_MIN) return "at most " + std::to_string(range.max);
  return "between " + std::to_string(range.min) + " and " +
         std::to_string(range.max);
}

std::string Bounds(const NumberRange& range) {
  if (range.without_min) {
    return "greater than " + Plain(range.min) + " and at most " +
           Plain(range.max);
  }
  return "between " + Plain(range.min) + " and " + Plain(range.max);
}

template <typename T>
StatusOr<std::optional<T>> Optional(StatusOr<T> value) {
  if (!value.ok()) return std::move(value).status();
  return std::optional<T>(std::move(value).value());
}

}  // namespace

std::string Shown(const Json& value) {
  // A long array or object is not written out to be thrown away.
  if (value.is_structured() && value.size() > 8) {
    return TypeName(value) + " of " + std::to_string(value.size());
  }
  std::string text;
  if (value.is_string()) {
    const auto& string = value.get_ref<const std::string&>();
    text = DumpJson(string.size() > kShownBytes
                        ? Json(Shortened(string, kShownBytes))
                        : value);
    if (string.size() > kShownBytes) text += "...";
    return text;
  }
  text = DumpJson(value);
  if (text.size() > kShownBytes) {
    text = Shortened(text, kShownBytes) + "...";
  }
  return text;
}

Status WrongType(std::string_view path, std::string_view expected,
                 const Json& value) {
  std::string message =
      std::string(path) + " must be " + std::string(expected) + ", not ";
  message += TypeName(value);
  if (!value.is_null()) message += " (" + Shown(value) + ")";
  return InvalidArgument(message).At(path);
}

Status CheckFieldCount(size_t num_fields) {
  if (num_fields <= kMostFields) return OkStatus();
  return InvalidArgument("the request has " + std::to_string(num_fields) +
                         " fields but may have at most " +
                         std::to_string(kMostFields));
}

const Json* FindField(const Json& body, std::string_view name) {
  if (!body.is_object()) return nullptr;
  const auto it = body.find(std::string(name));
  return it == body.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<int64_t> AsInt(const Json& value, std::string_view path,
                        const IntRange& range) {
  int64_t integer = 0;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) {
      return OutOfBounds(path, value, Bounds(range));
    }
    integer = static_cast<int64_t>(number);
  } else if (value.is_number_integer()) {
    integer = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number) ||
        (std::isfinite(number) && std::trunc(number) != number)) {
      return WrongType(path, "an integer", value);
    }
    // Every double below 2^63 in size is an int64_t once it has no fraction.
    if (number < -0x1p63 || number >= 0x1p63) {
      return OutOfBounds(path, value, Bounds(range));
    }
    integer = static_cast<int64_t>(number);
  } else {
    return WrongType(path, "an integer", value);
  }
  if (integer < range.min || integer > range.max) {
    return OutOfBounds(path, value, Bounds(range));
  }
  return integer;
}

StatusOr<double> AsNumber(const Json& value, std::string_view path,
                          const NumberRange& range) {
  if (!value.is_number()) return WrongType(path, "a number", value);
  const double number = value.get<double>();
  const bool above =
      range.without_min ? number > range.min : number >= range.min;
  // Not-a-number fails both comparisons.
  if (!above || !(number <= range.max)) {
    return OutOfBounds(path, value, Bounds(range));
  }
  return number;
}

StatusOr<std::string> AsString(const Json& value, std::string_view path) {
  if (!value.is_string()) return WrongType(path, "a string", value);
  return value.get<std::string>();
}

StatusOr<std::optional<bool>> ReadBool(const Json& body,
                                       std::string_view name) {
  const Json* value = FindField(body, name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return WrongType(name, "true or false", *value);
  return std::optional<bool>(value->get<bool>());
}

StatusOr<std::optional<int64_t>> ReadInt(const Json& body,
                                         std::string_view name,
                                         const IntRange& range) {
  const Json* value = FindField(body, name);
  if (value == nullptr) return std::optional<int64_t>();
  return Optional(AsInt(*value, name, range));
}

StatusOr<std::optional<double>> ReadNumber(const Json& body,
                                           std::string_view name,
                                           const NumberRange& range) {
  const Json* value = FindField(body, name);
  if (value == nullptr) return std::optional<double>();
  return Optional(AsNumber(*value, name, range));
}

StatusOr<std::optional<std::string>> ReadString(const Json& body,
                                                std::string_view name) {
  const Json* value = FindField(body, name);
  if (value == nullptr) return std::optional<std::string>();
  return Optional(AsString(*value, name));
}

StatusOr<const Json*> ReadObject(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  if (value != nullptr && !value->is_object()) {
    return WrongType(name, "an object", *value);
  }
  return value;
}

StatusOr<const Json*> ReadArray(const Json& body, std::string_view name) {
  const Json* value = FindField(body, name);
  if (value != nullptr && !value->is_array()) {
    return WrongType(name, "an array", *value);
  }
  return value;
}

}  // namespace millrace::handlers
