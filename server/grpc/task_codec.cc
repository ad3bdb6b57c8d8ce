#include "server/grpc/task_codec.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "open_inference_grpc.pb.h"
#include "server/classification.h"
#include "server/task_parts.h"
#include "server/tensor_bytes.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;
using Parameter = inference::InferParameter;

Json ValueOf(const Parameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case Parameter::kBoolParam:
      return parameter.bool_param();
    case Parameter::kInt64Param:
      return parameter.int64_param();
    case Parameter::kStringParam:
      return parameter.string_param();
    case Parameter::kUint64Param:
      return parameter.uint64_param();
    case Parameter::kDoubleParam:
      return parameter.double_param();
    default:
      return nullptr;
  }
}

Json ParametersOf(const inference::ModelInferRequest& request) {
  Json parameters = Json::object();
  for (const auto& [name, value] : request.parameters()) {
    parameters[name] = ValueOf(value);
  }
  return parameters;
}

Status AddInput(const inference::ModelInferRequest& request, int input_idx,
                std::vector<handlers::TaskPart>& parts) {
  const auto& input = request.inputs(input_idx);
  if (input.datatype() != "BYTES") {
    return BadInput(input.name(), "is " + Shortened(input.datatype(), 20) +
                                      " beside others of BYTES; a task takes "
                                      "BYTES alone");
  }
  const size_t first = parts.size();
  if (request.raw_input_contents_size() > 0) {
    RETURN_IF_ERROR(
        AddParts(input.name(), request.raw_input_contents(input_idx), parts));
  } else {
    for (const std::string& bytes : input.contents().bytes_contents()) {
      parts.push_back({.name = input.name(), .bytes = bytes});
    }
  }
  return CheckElements(input.name(),
                       {input.shape().begin(), input.shape().end()},
                       parts.size() - first);
}

}  // namespace

bool AsksTask(const inference::ModelInferRequest& request) {
  return request.inputs_size() > 0 && request.inputs(0).datatype() == "BYTES" &&
         std::none_of(request.outputs().begin(), request.outputs().end(),
                      [](const auto& output) {
                        return output.name() == kClassesOutput;
                      });
}

StatusOr<TaskCall> DecodeTask(const inference::ModelInferRequest& request) {
  TaskCall call;
  call.raw = request.raw_input_contents_size() > 0;
  if (call.raw && request.raw_input_contents_size() != request.inputs_size()) {
    return InvalidArgument("raw_input_contents has " +
                           std::to_string(request.raw_input_contents_size()) +
                           " entries for " +
                           std::to_string(request.inputs_size()) +
                           " inputs; a task takes no input from shared memory")
        .At("raw_input_contents");
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    RETURN_IF_ERROR(AddInput(request, i, call.request.parts));
  }
  for (const auto& output : request.outputs()) {
    if (output.name() == kTaskOutput) continue;
    return InvalidArgument("output '" + Shortened(output.name(), 100) +
                           "' is not one of the task, which gives '" +
                           std::string(kTaskOutput) + "'")
        .At("outputs");
  }
  RETURN_IF_ERROR(handlers::CheckFieldCount(request.parameters().size()));
  Json parameters = ParametersOf(request);
  ASSIGN_OR_RETURN(
      const auto priority,
      handlers::ReadInt(parameters, "priority", {.min = 0, .max = INT32_MAX}));
  call.request.priority = static_cast<int32_t>(priority.value_or(0));
  call.request.parameters = std::make_shared<const Json>(std::move(parameters));
  return call;
}

void EncodeTask(const handlers::TaskResponse& response, bool raw,
                inference::ModelInferResponse* to) {
  auto* output = to->add_outputs();
  output->set_name(std::string(kTaskOutput));
  output->set_datatype("BYTES");
  output->add_shape(static_cast<int64_t>(response.results.size()));
  if (raw) {
    to->add_raw_output_contents(PackTexts(response.results));
    return;
  }
  for (const std::string& result : response.results) {
    output->mutable_contents()->add_bytes_contents(result);
  }
}

}  // namespace millrace::server
