// Written by hand: an answer is long lists of numbers between few words.
#include "server/http/oip_answer.h"

#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "server/http/tensor_json.h"
#include "server/tensor_bytes.h"

namespace millrace::server::http {
namespace {

void AppendText(std::string_view text, std::string& json) {
  json += DumpJson(std::string(text));
}

void AppendHead(const handlers::NamedTensor& output, std::string& json) {
  json += "{\"name\":";
  AppendText(output.name, json);
  json += ",\"datatype\":\"";
  json += DTypeName(output.tensor.dtype());
  json += "\",\"shape\":[";
  for (int i = 0; i < output.tensor.shape().rank(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(output.tensor.shape()[i]);
  }
  json += ']';
}

}  // namespace

StatusOr<HttpResponse> InferResponse(const InferAnswerShape& shape,
                                     const handlers::TensorAnswer& outputs) {
  std::string json = "{\"model_name\":";
  AppendText(shape.model, json);
  json += ",\"model_version\":";
  AppendText(shape.version, json);
  if (shape.id.has_value()) {
    json += ",\"id\":";
    AppendText(*shape.id, json);
  }
  json += ",\"outputs\":[";
  std::string bytes;
  bool any_binary = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const handlers::NamedTensor& output = outputs[i];
    if (i > 0) json += ',';
    AppendHead(output, json);
    const auto named = shape.binary_by_name.find(output.name);
    const bool binary =
        named != shape.binary_by_name.end() ? named->second : shape.binary;
    if (binary) {
      any_binary = true;
      json += ",\"parameters\":{\"binary_data_size\":" +
              std::to_string(output.tensor.num_bytes()) + "}";
      bytes += BytesOf(output.tensor);
    } else {
      json += ",\"data\":";
      RETURN_IF_ERROR(AppendData(output.name, output.tensor, json));
    }
    json += '}';
  }
  json += "]}";
  HttpResponse response;
  if (any_binary) {
    response.content_type = "application/octet-stream";
    response.headers.emplace_back("Inference-Header-Content-Length",
                                  std::to_string(json.size()));
    json += bytes;
  }
  response.body = std::move(json);
  return response;
}

}  // namespace millrace::server::http
