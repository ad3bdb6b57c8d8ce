// The JSON of an infer request in the form that most clients send, read by
// simdjson at a fraction of the instructions. It may decline anything; then the
// reader of all forms (oip_request.h) reads the text, or says what is wrong
// with it. What it takes, it reads as that one does.
//
//   {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16],
//                "parameters": {"binary_data_size": 64}}],
//    "outputs": [{"name": "y", "parameters": {"binary_data": true}}],
//    "parameters": {"binary_data_output": true}, "id": "7"}
//
// Keys stand in any order. Declined: data in JSON, other keys, keys that stand
// twice, escapes, signs, more than 8 KiB of JSON.
#pragma once

#include <optional>
#include <string_view>

#include "server/http/oip_request.h"

namespace millrace::server::http {

// `tail`: the bytes behind the JSON.
std::optional<InferBody> ReadPlainInfer(std::string_view json,
                                        std::string_view tail);

}  // namespace millrace::server::http
