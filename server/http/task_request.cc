#include "server/http/task_request.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/base64.h"
#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "server/classification.h"
#include "server/task_parts.h"
#include "server/tensor_bytes.h"

namespace millrace::server::http {
namespace {

using handlers::FindField;
using handlers::TaskPart;
using Json = nlohmann::ordered_json;

StatusOr<int64_t> BinarySize(const Json& input, const std::string& path) {
  ASSIGN_OR_RETURN(const Json* parameters,
                   handlers::ReadObject(input, "parameters"));
  if (parameters == nullptr) return -1;
  if (FindField(*parameters, "shared_memory_region") != nullptr) {
    return InvalidArgument(path +
                           " lies in shared memory, which tasks do not read; "
                           "send its bytes")
        .At(path);
  }
  ASSIGN_OR_RETURN(
      const auto size,
      handlers::ReadInt(*parameters, "binary_data_size", {.min = 0}));
  return size.value_or(-1);
}

// Texts of nested lists, row by row.
Status AddTexts(const Json& data, const std::string& name,
                std::vector<TaskPart>& parts) {
  if (data.is_array()) {
    for (const Json& each : data) {
      RETURN_IF_ERROR(AddTexts(each, name, parts));
    }
    return OkStatus();
  }
  ASSIGN_OR_RETURN(std::string text,
                   handlers::AsString(data, "data of input '" + name + "'"));
  parts.push_back({.name = name, .bytes = std::move(text)});
  return OkStatus();
}

Status ReadInput(const Json& input, size_t input_idx, std::string_view& tail,
                 std::vector<TaskPart>& parts) {
  const std::string path = "inputs[" + std::to_string(input_idx) + "]";
  if (!input.is_object()) {
    return handlers::WrongType(path, "an object", input);
  }
  ASSIGN_OR_RETURN(const auto name, handlers::ReadString(input, "name"));
  ASSIGN_OR_RETURN(const auto datatype,
                   handlers::ReadString(input, "datatype"));
  if (!name || !datatype) {
    return InvalidArgument(path + " has no " + (name ? "datatype" : "name"))
        .At(path);
  }
  if (*datatype != "BYTES") {
    return BadInput(*name, "is " +
                               ReplaceInvalidUtf8(Shortened(*datatype, 20)) +
                               " beside others of BYTES; a task takes BYTES "
                               "alone");
  }
  const size_t first = parts.size();
  ASSIGN_OR_RETURN(const int64_t size, BinarySize(input, path));
  const Json* data = FindField(input, "data");
  if (size < 0 && data == nullptr) {
    return BadInput(*name, "has neither data nor binary_data_size");
  }
  if (size >= 0) {
    if (data != nullptr || size > static_cast<int64_t>(tail.size())) {
      return BadInput(
          *name, data != nullptr
                     ? std::string("has both data and binary_data_size")
                     : "has a binary_data_size of " + std::to_string(size) +
                           " but only " + std::to_string(tail.size()) +
                           " bytes are left of the body");
    }
    RETURN_IF_ERROR(
        AddParts(*name, tail.substr(0, static_cast<size_t>(size)), parts));
    tail.remove_prefix(static_cast<size_t>(size));
  } else {
    RETURN_IF_ERROR(AddTexts(*data, *name, parts));
  }
  ASSIGN_OR_RETURN(const Json* sizes, handlers::ReadArray(input, "shape"));
  if (sizes == nullptr) return BadInput(*name, "has no shape");
  std::vector<int64_t> shape;
  for (const Json& each : *sizes) {
    ASSIGN_OR_RETURN(shape.emplace_back(),
                     handlers::AsInt(each, path + ".shape", {.min = 0}));
  }
  return CheckElements(*name, shape, parts.size() - first);
}

bool AsksClasses(const Json& root) {
  const Json* outputs = FindField(root, "outputs");
  if (outputs == nullptr || !outputs->is_array()) return false;
  return std::any_of(outputs->begin(), outputs->end(), [](const Json& output) {
    const Json* name = output.is_object() ? FindField(output, "name") : nullptr;
    return name != nullptr && *name == kClassesOutput;
  });
}

Status ReadOutputs(const Json& root, TaskInferBody& body) {
  ASSIGN_OR_RETURN(const Json* outputs, handlers::ReadArray(root, "outputs"));
  if (outputs == nullptr || outputs->empty()) return OkStatus();
  body.binary = false;  // each says for itself
  for (const Json& output : *outputs) {
    if (!output.is_object()) {
      return handlers::WrongType("outputs[0]", "an object", output);
    }
    ASSIGN_OR_RETURN(const auto name, handlers::ReadString(output, "name"));
    if (name.value_or("") != kTaskOutput) {
      return InvalidArgument(
                 "output '" +
                 ReplaceInvalidUtf8(Shortened(name.value_or(""), 100)) +
                 "' is not one of the task, which gives '" +
                 std::string(kTaskOutput) + "'")
          .At("outputs");
    }
    ASSIGN_OR_RETURN(const Json* parameters,
                     handlers::ReadObject(output, "parameters"));
    if (parameters == nullptr) continue;
    ASSIGN_OR_RETURN(const auto binary,
                     handlers::ReadBool(*parameters, "binary_data"));
    body.binary = binary.value_or(false);
  }
  return OkStatus();
}

// One item of "inputs" or "instances".
Status AddItem(const Json& item, const std::string& path,
               std::vector<TaskPart>& parts) {
  if (!item.is_object()) {
    ASSIGN_OR_RETURN(std::string text, handlers::AsString(item, path));
    parts.push_back({.name = "inputs", .bytes = std::move(text)});
    return OkStatus();
  }
  if (IsTextItem(item)) {
    parts.push_back({.name = "inputs",
                     .content_type = "application/json",
                     .bytes = DumpJson(item)});
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const auto base64, handlers::ReadString(item, "b64"));
  std::optional<std::string> bytes;
  if (base64.has_value()) bytes = DecodeBase64(*base64);
  if (!bytes.has_value()) {
    return InvalidArgument(path +
                           " must be a text or {\"b64\": \"…\"} in "
                           "base64")
        .At(path);
  }
  parts.push_back({.name = "inputs", .bytes = *std::move(bytes)});
  return OkStatus();
}

StatusOr<handlers::TaskRequest> ReadPlainJson(std::string_view body) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(body));
  handlers::TaskRequest request;
  const Json* items = FindField(root, "inputs");
  if (items == nullptr) items = FindField(root, "instances");
  if (items == nullptr) {
    return InvalidArgument(
               "inputs is missing; send {\"inputs\": [\"…\"]}, pictures in "
               "base64, or the bytes of one picture as the body")
        .At("inputs");
  }
  if (items->is_array()) {
    for (size_t i = 0; i < items->size(); ++i) {
      RETURN_IF_ERROR(AddItem((*items)[i], "inputs[" + std::to_string(i) + "]",
                              request.parts));
    }
  } else {
    RETURN_IF_ERROR(AddItem(*items, "inputs", request.parts));
  }
  ASSIGN_OR_RETURN(const Json* parameters,
                   handlers::ReadObject(root, "parameters"));
  if (parameters != nullptr) {
    request.parameters = std::make_shared<const Json>(*parameters);
  }
  return request;
}

// "top_k=3&x=y": whole numbers are numbers, true and false are bools.
StatusOr<std::shared_ptr<const Json>> ReadQuery(std::string_view query) {
  Json parameters = Json::object();
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? "" : query.substr(end + 1);
    const size_t equals = pair.find('=');
    const auto key = PercentDecoded(pair.substr(0, equals));
    const auto value = PercentDecoded(
        equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!key || !value) {
      return InvalidArgument(
          "the query has a '%' without two hexadecimal "
          "digits behind it");
    }
    if (key->empty()) continue;
    int64_t number = 0;
    const auto [last, error] =
        std::from_chars(value->data(), value->data() + value->size(), number);
    if (error == std::errc() && last == value->data() + value->size()) {
      parameters[*key] = number;
    } else if (*value == "true" || *value == "false") {
      parameters[*key] = *value == "true";
    } else {
      parameters[*key] = *value;
    }
  }
  return std::make_shared<const Json>(std::move(parameters));
}

}  // namespace

StatusOr<std::optional<TaskInferBody>> ReadTaskInfer(
    std::string_view body, std::optional<size_t> json_bytes) {
  const size_t end = json_bytes.value_or(body.size());
  const std::string_view json = body.substr(0, end);
  // Long lists of numbers are not parsed twice.
  if (json.find("\"BYTES\"") == std::string_view::npos)
    return std::optional<TaskInferBody>();
  ASSIGN_OR_RETURN(const Json root, ParseJson(json));
  const Json* inputs = FindField(root, "inputs");
  if (inputs == nullptr || !inputs->is_array() || inputs->empty() ||
      !inputs->front().is_object()) {
    return std::optional<TaskInferBody>();
  }
  const Json* datatype = FindField(inputs->front(), "datatype");
  if (datatype == nullptr || *datatype != "BYTES" || AsksClasses(root)) {
    return std::optional<TaskInferBody>();
  }

  TaskInferBody read;
  ASSIGN_OR_RETURN(read.id, handlers::ReadString(root, "id"));
  ASSIGN_OR_RETURN(const Json* parameters,
                   handlers::ReadObject(root, "parameters"));
  if (parameters != nullptr) {
    ASSIGN_OR_RETURN(const auto binary,
                     handlers::ReadBool(*parameters, "binary_data_output"));
    read.binary = binary.value_or(false);
    ASSIGN_OR_RETURN(const auto priority,
                     handlers::ReadInt(*parameters, "priority",
                                       {.min = 0, .max = INT32_MAX}));
    read.request.priority = static_cast<int32_t>(priority.value_or(0));
    read.request.parameters = std::make_shared<const Json>(*parameters);
  }
  std::string_view tail = body.substr(end);
  for (size_t i = 0; i < inputs->size(); ++i) {
    RETURN_IF_ERROR(ReadInput((*inputs)[i], i, tail, read.request.parts));
  }
  RETURN_IF_ERROR(ReadOutputs(root, read));
  return std::optional<TaskInferBody>(std::move(read));
}

HttpResponse TaskInferResponse(const std::string& model,
                               const std::string& version,
                               const TaskInferBody& shape,
                               const handlers::TaskResponse& response) {
  Json json = {{"model_name", model}, {"model_version", version}};
  if (shape.id.has_value() && !shape.id->empty()) json["id"] = *shape.id;
  Json output = {{"name", std::string(kTaskOutput)},
                 {"datatype", "BYTES"},
                 {"shape", Json::array({response.results.size()})}};
  std::string packed;
  if (shape.binary) {
    packed = PackTexts(response.results);
    output["parameters"]["binary_data_size"] = packed.size();
  } else {
    output["parameters"]["content_type"] = response.content_type;
    output["data"] = response.results;
  }
  json["outputs"] = Json::array({std::move(output)});
  HttpResponse answer = JsonResponse(200, DumpJson(json));
  if (shape.binary) {
    answer.content_type = "application/octet-stream";
    answer.headers.emplace_back("Inference-Header-Content-Length",
                                std::to_string(answer.body.size()));
    answer.body += packed;
  }
  return answer;
}

StatusOr<handlers::TaskRequest> ReadTaskBody(const HttpRequest& head,
                                             std::string body) {
  const std::string type = MediaType(head.Header("content-type"));
  if (type == "multipart/form-data") {
    return InvalidArgument(
               "a form is not read here; send the bytes as the body, or JSON "
               "with inputs in base64")
        .At("Content-Type");
  }
  // curl calls every body a form.
  const size_t first = body.find_first_not_of(" \t\r\n");
  const bool is_object = first != std::string::npos && body[first] == '{';
  if (type == "application/json" ||
      (is_object &&
       (type.empty() || type == "application/x-www-form-urlencoded"))) {
    return ReadPlainJson(body);
  }
  handlers::TaskRequest request;
  ASSIGN_OR_RETURN(request.parameters, ReadQuery(head.query));
  request.parts.push_back({.content_type = type, .bytes = std::move(body)});
  return request;
}

std::string MediaType(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return type;
}

}  // namespace millrace::server::http
