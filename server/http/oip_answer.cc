// Written by hand: a response is long lists of numbers between few words.
#include "server/http/oip_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "config/base/json.h"
#include "models/tensor/travel_bytes.h"
#include "server/classification.h"
#include "server/tensor_json.h"

namespace millrace::server::http {
namespace {

// Of the JSON of a response with its tensors as bytes.
constexpr size_t kUsualBytes = 512;

void AppendText(std::string_view text, std::string& json) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    json.append("\"").append(text).append("\"");
  } else {
    json += DumpJson(std::string(text));
  }
}

void AppendHead(const std::string& name, std::string_view datatype,
                std::span<const int64_t> shape, std::string& json) {
  json += "{\"name\":";
  AppendText(name, json);
  json += ",\"datatype\":\"";
  json += datatype;
  json += "\",\"shape\":[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(shape[i]);
  }
  json += ']';
}

void AppendBinarySize(size_t bytes, std::string& json) {
  json += ",\"parameters\":{\"binary_data_size\":";
  json += std::to_string(bytes);
  json += '}';
}

void AppendClasses(const std::string& name, const models::Tensor& tensor,
                   int64_t count, bool binary, std::string& json,
                   std::string& bytes) {
  const Classes classes = Classify(tensor, count);
  AppendHead(name, "BYTES", classes.shape, json);
  if (binary) {
    const std::string packed = PackTexts(classes.texts);
    AppendBinarySize(packed.size(), json);
    bytes += packed;
    return;
  }
  json += ",\"data\":[";
  for (size_t i = 0; i < classes.texts.size(); ++i) {
    if (i > 0) json += ',';
    AppendText(classes.texts[i], json);
  }
  json += ']';
}

void AppendSpan(const SharedSpan& span, std::string& json) {
  json += ",\"parameters\":{\"shared_memory_region\":";
  AppendText(span.region, json);
  if (span.offset > 0) {
    json += ",\"shared_memory_offset\":" + std::to_string(span.offset);
  }
  json +=
      ",\"shared_memory_byte_size\":" + std::to_string(span.byte_size) + "}";
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
                                     const handlers::TensorResponse& result,
                                     const SharedRegions& regions) {
  std::string json;
  json.reserve(kUsualBytes);
  json += "{\"model_name\":";
  AppendText(shape.model, json);
  json += ",\"model_version\":";
  AppendText(shape.version, json);
  if (shape.id.has_value() && !shape.id->empty()) {
    json += ",\"id\":";
    AppendText(*shape.id, json);
  }
  if (shape.batch_statistics) AppendBatch(result.batch, json);
  if (!shape.parameters.empty()) {
    json += ",\"parameters\":" + shape.parameters;
  }
  json += ",\"outputs\":[";
  const std::vector<handlers::NamedTensor>& outputs = result.outputs;
  std::string bytes;
  bool any_binary = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const handlers::NamedTensor& output = outputs[i];
    if (i > 0) json += ',';
    const auto named = shape.forms.find(output.name);
    const OutputForm form =
        named != shape.forms.end() ? named->second : OutputForm{};
    const bool binary = form.binary.value_or(shape.binary);
    any_binary = any_binary || (binary && !form.shared.has_value());
    if (form.classes > 0) {
      RETURN_IF_ERROR(CheckClassified(output.name, output.tensor));
      AppendClasses(output.name, output.tensor, form.classes, binary, json,
                    bytes);
      json += '}';
      continue;
    }
    AppendHead(output.name, DTypeName(output.tensor.dtype()),
               output.tensor.shape().dims(), json);
    if (form.shared.has_value()) {
      const models::TravelBytes travel(output.tensor);
      RETURN_IF_ERROR(regions.Write(*form.shared, travel.view()));
      AppendSpan(*form.shared, json);
    } else if (binary) {
      const models::TravelBytes travel(output.tensor);
      AppendBinarySize(travel.view().size(), json);
      bytes += travel.view();
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
