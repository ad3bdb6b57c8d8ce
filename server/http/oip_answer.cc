// Written by hand: a response is long lists of numbers between few words.
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

void AppendBatch(const handlers::BatchFacts& batch, std::string& json) {
  json += ",\"parameters\":{\"batch_closed\":";
  AppendText(batch.closed, json);
  const auto append = [&json](const char* name, int64_t value) {
    json += std::string(",\"") + name + "\":" + std::to_string(value);
  };
  append("batch_size", batch.rows);
  append("batch_requests", batch.requests);
  append("queue_ns", batch.queue.count());
  append("compute_input_ns", batch.compute_input.count());
  append("compute_infer_ns", batch.compute_infer.count());
  append("compute_output_ns", batch.compute_output.count());
  json += '}';
}

}  // namespace

StatusOr<HttpResponse> InferResponse(const InferAnswerShape& shape,
                                     const handlers::TensorResponse& result) {
  std::string json = "{\"model_name\":";
  AppendText(shape.model, json);
  json += ",\"model_version\":";
  AppendText(shape.version, json);
  if (shape.id.has_value()) {
    json += ",\"id\":";
    AppendText(*shape.id, json);
  }
  if (shape.batch_statistics) AppendBatch(result.batch, json);
  json += ",\"outputs\":[";
  const std::vector<handlers::NamedTensor>& outputs = result.outputs;
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
