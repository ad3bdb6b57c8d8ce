// vLLM's `logits_processors`: a request names processors of logits, which may
// have arguments:
//
//   "logits_processors": [
//     "xtc",
//     {"qualname": "min_p", "kwargs": {"min_p": 0.1}},
//     {"qualname": "no_repeat_ngram", "args": [3]}]
//
// Ours are those of the sampler, under a name each: naming one sets the fields
// of the request that it has as its parameters. So a processor does the same as
// its fields, whichever way it is asked for.
//
// Pure functions.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

// All there are, in alphabetical order.
std::vector<std::string_view> LogitsProcessorNames();

// Those that a pattern lets pass: it must match a name from its beginning on,
// as Python's re.match does. Empty: all. INVALID_ARGUMENT at
// logits_processor_pattern where it is no regular expression (ECMAScript's).
StatusOr<std::vector<std::string>> AllowedLogitsProcessors(
    const std::string& pattern);

struct NamedProcessors {
  std::vector<std::string> names;  // in the order of the request
  // The request without its prompt and logits_processors, with the fields that
  // the processors set.
  std::shared_ptr<const nlohmann::ordered_json> fields;
};

// Absent where the body names none. INVALID_ARGUMENT for an unknown name
// (telling those that are known), for arguments that a processor does not take,
// and for a field that is set twice.
StatusOr<std::optional<NamedProcessors>> ReadLogitsProcessors(
    const nlohmann::ordered_json& body);

}  // namespace millrace::handlers
