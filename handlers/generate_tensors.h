// A completion asked for by tensors, as Triton's vLLM backend has them; over
// REST, over gRPC and in warm-ups:
//
//   text_input               BYTES [1]  the prompt
//   stream                   BOOL  [1]  optional, one answer per piece
//   sampling_parameters      BYTES [1]  optional, JSON of sampling fields
//   exclude_input_in_output  BOOL  [1]  optional, false: the prompt comes first
//   => text_output           BYTES [1]
//
// Sampling fields may also stand in the request's parameters; those in
// sampling_parameters win. Numbers and switches that are written as strings are
// read as such where the field is one, since Triton's clients send them so; a
// stop string "42" stays one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

inline constexpr const char* kTextOutput = "text_output";

const std::vector<models::TensorSpec>& GenerateInputs();
const std::vector<models::TensorSpec>& GenerateOutputs();
// All but the prompt may be left out.
bool IsOptionalInput(std::string_view name);

struct GenerateTensors {
  TextPrompt prompt;
  GenerateOptions options;
  bool stream = false;
};

// `parameters`: an object whose fields are sampling fields. INVALID_ARGUMENT
// names the tensor or the field.
StatusOr<GenerateTensors> ReadGenerateTensors(
    const std::vector<NamedTensor>& inputs,
    const nlohmann::ordered_json& parameters);
// The same without parameters.
StatusOr<GenerateTensors> ReadGenerateTensors(
    const std::vector<NamedTensor>& inputs);

// INVALID_ARGUMENT at text_input unless the prompt is UTF-8.
Status CheckPromptText(const std::string& text);

// Adds the fields of the JSON in sampling_parameters; empty: none.
Status AddSamplingJson(const std::string& text, nlohmann::ordered_json* fields);
// Strings become numbers and switches where fields are such.
void ReadStringsAsValues(nlohmann::ordered_json* fields);
// Of a body that has the names of those tensors as fields: both of them become
// what they stand for.
Status TakeTensorFields(nlohmann::ordered_json* fields);

}  // namespace millrace::handlers
