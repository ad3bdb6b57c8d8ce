// The sampling fields that clients send, by their public names (OpenAI, vLLM):
// one table of names, types, ranges and error sentences for every wire. REST
// bodies and the JSON of gRPC's `sampling_parameters` are read here.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"

namespace millrace::handlers {

enum class FieldDialect { kChat, kCompletions, kSamplingParameters };

// Alternatives that are told beside a token, at most.
inline constexpr int kMostTopLogprobs = 20;
// Tokens with a bias in logit_bias, at most.
inline constexpr size_t kMaxLogitBias = 1024;

// Reads every sampling field of `body`, an object. INVALID_ARGUMENT with
// field() set for a wrong type, a value out of range (value and limit in the
// message), or a field that would change the completion and is not supported
// (refused_fields.h). Fields without effect (user, metadata, …) and null are
// accepted; so are unknown ones, as OpenAI's clients expect.
StatusOr<GenerateOptions> ReadGenerateOptions(
    const nlohmann::ordered_json& body, FieldDialect dialect);

// A field that is read, for descriptions of the API: its type as JSON Schema
// calls it and the range of a number.
struct FieldFacts {
  std::string_view name;
  std::string_view type;        // "number", "integer", "boolean", "array", …
  std::string_view items = {};  // of an array; "string" may also stand alone
  std::optional<double> min = {};
  std::optional<double> max = {};
  bool without_min = false;  // (min, max] instead of [min, max]
};
std::vector<FieldFacts> GenerateFields(FieldDialect dialect);

}  // namespace millrace::handlers
