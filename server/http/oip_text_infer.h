// infer of a language model over REST: the prompt as a tensor, the completion
// as one (handlers/generate_tensors.h).
//
//   {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES",
//                "data": ["Once"]}], "parameters": {"max_tokens": 8}}
//   {"model_name": "m", "model_version": "1",
//    "parameters": {"finish_reason": "length", …},
//    "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1],
//                 "data": [" upon a time"]}]}
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "server/http/pool_work.h"

namespace millrace::server::http {

// Handler pool only. `name` is the model's as the client wrote it.
Status InferText(const Site& site, const std::shared_ptr<Exchange>& exchange,
                 ModelHandle model, const std::string& name);

}  // namespace millrace::server::http
