// The request's tensors are untrusted bytes: every length is checked against
// what really came.
#include "server/grpc/text_codec.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/generate_tensors.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "open_inference_grpc.pb.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;
using InputTensor = inference::ModelInferRequest::InferInputTensor;

template <typename Number>
std::optional<Number> WholeNumber(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

Status CheckShape(const InputTensor& tensor) {
  bool one = tensor.shape_size() > 0;
  std::string text;
  for (const int64_t dim : tensor.shape()) {
    one = one && dim == 1;
    if (text.size() < 60) {
      text += (text.empty() ? "" : ", ") + std::to_string(dim);
    }
  }
  if (one) return OkStatus();
  return InvalidArgument("input '" + tensor.name() + "' has shape [" + text +
                         "] but takes one element; send shape [1]")
      .At(tensor.name());
}

// The one element of a BYTES tensor.
StatusOr<std::string> BytesElement(const InputTensor& tensor,
                                   const std::string* raw) {
  if (raw == nullptr) {
    const auto& contents = tensor.contents();
    if (contents.bytes_contents_size() != 1) {
      return InvalidArgument("input '" + tensor.name() + "' holds " +
                             std::to_string(contents.bytes_contents_size()) +
                             " values in bytes_contents but its shape is [1]")
          .At(tensor.name());
    }
    return contents.bytes_contents(0);
  }
  uint32_t length = 0;
  if (raw->size() < sizeof(length)) {
    return InvalidArgument("input '" + tensor.name() + "' has " +
                           std::to_string(raw->size()) +
                           " raw bytes; a BYTES element is its length as "
                           "uint32 (4 bytes, little-endian) and its bytes")
        .At(tensor.name());
  }
  std::memcpy(&length, raw->data(), sizeof(length));
  if (length != raw->size() - sizeof(length)) {
    return InvalidArgument("input '" + tensor.name() +
                           "' says its element has " + std::to_string(length) +
                           " bytes but " +
                           std::to_string(raw->size() - sizeof(length)) +
                           " follow the length")
        .At(tensor.name());
  }
  return raw->substr(sizeof(length));
}

StatusOr<bool> BoolElement(const InputTensor& tensor, const std::string* raw) {
  if (raw == nullptr) {
    if (tensor.contents().bool_contents_size() != 1) {
      return InvalidArgument(
                 "input '" + tensor.name() + "' holds " +
                 std::to_string(tensor.contents().bool_contents_size()) +
                 " values in bool_contents but its shape is [1]")
          .At(tensor.name());
    }
    return tensor.contents().bool_contents(0);
  }
  if (raw->size() != 1 || static_cast<uint8_t>((*raw)[0]) > 1) {
    return InvalidArgument("input '" + tensor.name() +
                           "' is one raw byte, 0 or 1, but has " +
                           std::to_string(raw->size()) +
                           " bytes or another value")
        .At(tensor.name());
  }
  return (*raw)[0] == 1;
}

Status CheckInput(const InputTensor& tensor, std::set<std::string>& seen) {
  const models::TensorSpec* spec = nullptr;
  std::string names;
  for (const models::TensorSpec& known : handlers::GenerateInputs()) {
    if (tensor.name() == known.name) spec = &known;
    names += (names.empty() ? "" : ", ") + known.name;
  }
  if (spec == nullptr) {
    return InvalidArgument("input '" + tensor.name() +
                           "' is not one of this model's inputs: " + names)
        .At(tensor.name());
  }
  if (!seen.insert(tensor.name()).second) {
    return InvalidArgument("input '" + tensor.name() +
                           "' is given twice; give it once")
        .At(tensor.name());
  }
  if (tensor.datatype() != DTypeName(spec->dtype)) {
    return InvalidArgument("input '" + tensor.name() + "' has datatype '" +
                           tensor.datatype() + "' but is " +
                           std::string(DTypeName(spec->dtype)))
        .At(tensor.name());
  }
  if (tensor.parameters().count("shared_memory_region") != 0) {
    return InvalidArgument("input '" + tensor.name() +
                           "' lies in shared memory, which is not supported; "
                           "send its bytes in the request")
        .At(tensor.name());
  }
  return CheckShape(tensor);
}

Json ToJson(const inference::InferParameter& parameter) {
  using Kind = inference::InferParameter::ParameterChoiceCase;
  switch (parameter.parameter_choice_case()) {
    case Kind::kBoolParam:
      return parameter.bool_param();
    case Kind::kInt64Param:
      return parameter.int64_param();
    case Kind::kStringParam:
      return parameter.string_param();
    case Kind::kDoubleParam:
      return parameter.double_param();
    case Kind::kUint64Param:
      return parameter.uint64_param();
    case Kind::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return nullptr;
}

StatusOr<int64_t> WholeParameter(const std::string& name, Json value) {
  if (value.is_string()) {
    const auto number = WholeNumber<int64_t>(value.get<std::string>());
    if (number) value = *number;
  }
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<uint64_t>() > uint64_t{INT64_MAX})) {
    return InvalidArgument("parameter '" + name + "' is " + DumpJson(value) +
                           " but must be a whole number")
        .At(name);
  }
  return value.get<int64_t>();
}

bool IsZero(const Json& value) {
  return value.is_null() || value == 0 || value == "" || value == "0";
}

// The request's own parameters: those with a meaning of the protocol are taken
// out, the others go to `fields`.
Status ReadParameters(const inference::ModelInferRequest& request,
                      InferCall& call, Json& fields) {
  RETURN_IF_ERROR(handlers::CheckFieldCount(request.parameters().size()));
  for (const auto& [name, parameter] : request.parameters()) {
    if (!IsValidUtf8(name)) {
      return InvalidArgument("the name of a request parameter is not UTF-8");
    }
    Json value = ToJson(parameter);
    if (name == "triton_enable_empty_final_response") {
      call.empty_final_response = value == true || value == "true";
    } else if (name == "timeout") {
      continue;  // see ReadTimeout
    } else if (name == "sequence_id") {
      if (IsZero(value)) continue;
      return InvalidArgument("parameter 'sequence_id' is " + DumpJson(value) +
                             " but a generative model keeps no state between "
                             "requests; leave it out")
          .At(name);
    } else if (name == "sequence_start" || name == "sequence_end" ||
               name == "headers" || name == "binary_data_output" ||
               name.rfind("triton_", 0) == 0) {
      continue;
    } else {
      fields[name] = std::move(value);
    }
  }
  return OkStatus();
}

Status CheckOutputs(const inference::ModelInferRequest& request) {
  for (const auto& output : request.outputs()) {
    if (output.name() != handlers::kTextOutput) {
      return InvalidArgument("output '" + output.name() +
                             "' is not one of this model's outputs: " +
                             handlers::kTextOutput)
          .At(output.name());
    }
    for (const char* name : {"shared_memory_region", "classification"}) {
      if (output.parameters().count(name) == 0) continue;
      return InvalidArgument("output '" + output.name() + "' asks for '" +
                             name + "', which is not supported; leave it out")
          .At(output.name());
    }
  }
  return OkStatus();
}

void Describe(const models::TensorSpec& spec,
              inference::ModelMetadataResponse::TensorMetadata* tensor) {
  tensor->set_name(spec.name);
  tensor->set_datatype(std::string(DTypeName(spec.dtype)));
  for (const int64_t size : spec.dims) tensor->add_shape(size);
}

}  // namespace

Status CheckForm(const inference::ModelInferRequest& request, bool may_share) {
  const int num_raw = request.raw_input_contents_size();
  if (num_raw == 0) return OkStatus();
  int num_wanted = 0;
  for (const InputTensor& tensor : request.inputs()) {
    if (!may_share || tensor.parameters().count("shared_memory_region") == 0) {
      ++num_wanted;
    }
    if (tensor.has_contents()) {
      return InvalidArgument("input '" + tensor.name() +
                             "' has contents while the request has "
                             "raw_input_contents; send all tensors one way")
          .At(tensor.name());
    }
  }
  if (num_raw != num_wanted) {
    return InvalidArgument("the request has " + std::to_string(num_wanted) +
                           " inputs but " + std::to_string(num_raw) +
                           " raw_input_contents; send one for each input")
        .At("raw_input_contents");
  }
  return OkStatus();
}

StatusOr<std::optional<std::chrono::microseconds>> ReadTimeout(
    const inference::ModelInferRequest& request) {
  std::optional<std::chrono::microseconds> timeout;
  const auto found = request.parameters().find("timeout");
  if (found == request.parameters().end()) return timeout;
  ASSIGN_OR_RETURN(const int64_t us,
                   WholeParameter("timeout", ToJson(found->second)));
  if (us < 0) {
    return InvalidArgument("parameter 'timeout' is " + std::to_string(us) +
                           " microseconds but must not be negative")
        .At("timeout");
  }
  if (us > 0) timeout = std::chrono::microseconds(us);
  return timeout;
}

StatusOr<InferCall> DecodeInfer(const inference::ModelInferRequest& request) {
  InferCall call;
  call.raw = request.raw_input_contents_size() > 0;
  RETURN_IF_ERROR(CheckForm(request, false));
  RETURN_IF_ERROR(CheckOutputs(request));

  ASSIGN_OR_RETURN(call.timeout, ReadTimeout(request));
  Json fields = Json::object();
  RETURN_IF_ERROR(ReadParameters(request, call, fields));

  std::set<std::string> seen;
  bool echo = false;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const InputTensor& tensor = request.inputs(i);
    const std::string* raw =
        call.raw ? &request.raw_input_contents(i) : nullptr;
    RETURN_IF_ERROR(CheckInput(tensor, seen));
    if (tensor.name() == "text_input") {
      ASSIGN_OR_RETURN(call.prompt.text, BytesElement(tensor, raw));
    } else if (tensor.name() == "stream") {
      ASSIGN_OR_RETURN(call.stream, BoolElement(tensor, raw));
    } else if (tensor.name() == "exclude_input_in_output") {
      ASSIGN_OR_RETURN(const bool exclude, BoolElement(tensor, raw));
      echo = !exclude;
    } else {
      ASSIGN_OR_RETURN(const std::string text, BytesElement(tensor, raw));
      RETURN_IF_ERROR(handlers::AddSamplingJson(text, &fields));
    }
  }
  if (seen.count("text_input") == 0) {
    return InvalidArgument(
               "input 'text_input' is missing; send the prompt as a BYTES "
               "tensor of shape [1]")
        .At("text_input");
  }
  RETURN_IF_ERROR(handlers::CheckPromptText(call.prompt.text));
  handlers::ReadStringsAsValues(&fields);
  if (echo) fields["echo"] = true;
  ASSIGN_OR_RETURN(call.options,
                   handlers::ReadGenerateOptions(
                       fields, handlers::FieldDialect::kSamplingParameters));
  return call;
}

void BeginResponse(const inference::ModelInferRequest& request,
                   const std::string& version,
                   inference::ModelInferResponse* response) {
  response->set_model_name(request.model_name());
  response->set_model_version(version);
  response->set_id(request.id());
}

void AddTextOutput(const std::string& text, bool raw,
                   inference::ModelInferResponse* response) {
  auto* output = response->add_outputs();
  output->set_name(handlers::kTextOutput);
  output->set_datatype("BYTES");
  output->add_shape(1);
  if (!raw) {
    output->mutable_contents()->add_bytes_contents(text);
    return;
  }
  const uint32_t length = static_cast<uint32_t>(text.size());
  std::string bytes(sizeof(length) + text.size(), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), text.data(), text.size());
  response->add_raw_output_contents(std::move(bytes));
}

void SetFinal(bool is_final, inference::ModelInferResponse* response) {
  (*response->mutable_parameters())["triton_final_response"].set_bool_param(
      is_final);
}

void AddUsage(const handlers::GenerateEnd& end,
              inference::ModelInferResponse* response) {
  auto& parameters = *response->mutable_parameters();
  parameters["finish_reason"].set_string_param(
      end.reason == handlers::FinishReason::kLength ? "length" : "stop");
  parameters["prompt_tokens"].set_int64_param(end.usage.prompt_tokens);
  parameters["completion_tokens"].set_int64_param(end.usage.completion_tokens);
}

void DescribeTensors(inference::ModelMetadataResponse* metadata) {
  for (const models::TensorSpec& spec : handlers::GenerateInputs()) {
    Describe(spec, metadata->add_inputs());
  }
  for (const models::TensorSpec& spec : handlers::GenerateOutputs()) {
    Describe(spec, metadata->add_outputs());
  }
}

}  // namespace millrace::server
