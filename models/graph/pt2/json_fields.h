// Reading JSON objects whose shape is not to be trusted: a missing key or a
// wrong kind is a Status that says where.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models::graph::pt2 {

using Json = nlohmann::ordered_json;

// Cut to what a message can show, without control characters.
std::string Shown(std::string_view text);

// The member, or null when it is absent or `object` is no object.
const Json* FindMember(const Json& object, const char* key);
// The member, of any kind.
StatusOr<const Json*> Member(const Json& object, const char* key);
StatusOr<const Json*> ArrayMember(const Json& object, const char* key);
StatusOr<const Json*> ObjectMember(const Json& object, const char* key);
StatusOr<std::string> TextMember(const Json& object, const char* key);
StatusOr<int64_t> AsInt(const Json& value);
// A number, or one of the texts that stand for what JSON has no numbers for.
StatusOr<double> AsFloat(const Json& value);
// The only member of an object: how unions are written.
StatusOr<std::pair<std::string, const Json*>> OnlyMember(const Json& object);

}  // namespace millrace::models::graph::pt2
