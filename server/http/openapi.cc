// Paths come from the routes, sampling fields from the table that reads them;
// the rest of the schemas stands here. A field that is not described is not
// forbidden: clients send more than one server reads.
#include "server/http/openapi.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/json.h"
#include "handlers/request_fields.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

struct Schema {
  std::string_view name;
  const char* json;
};

// ChatRequest and CompletionRequest get the sampling fields beside these.
constexpr Schema kSchemas[] = {
    {"Any", R"({"description": "A JSON object."})"},
    {"ChatRequest", R"({"type": "object", "required": ["messages"],
      "properties": {
        "model": {"type": "string", "description":
          "May be left out where one language model is served."},
        "messages": {"type": "array", "minItems": 1, "items": {
          "type": "object", "required": ["role"], "properties": {
            "role": {"type": "string", "examples":
              ["system", "user", "assistant"]},
            "content": {"anyOf": [
              {"type": "string"},
              {"type": "array", "items": {"type": "object",
                "required": ["type"], "properties": {
                  "type": {"enum": ["text", "image_url"]},
                  "text": {"type": "string"},
                  "image_url": {"type": "object", "required": ["url"],
                    "properties": {"url": {"type": "string", "description":
                      "A data URL in base64; models with an encoder of images."
                    }}}}}}]},
            "tool_calls": {"type": "array", "items":
              {"$ref": "#/components/schemas/ToolCall"}},
            "tool_call_id": {"type": "string"}}}},
        "tools": {"type": "array", "items":
          {"$ref": "#/components/schemas/Tool"}},
        "tool_choice": {"anyOf": [
          {"enum": ["auto", "none", "required"]},
          {"type": "object", "description":
            "{\"type\": \"function\", \"function\": {\"name\": \"...\"}}"}]},
        "parallel_tool_calls": {"type": "boolean"},
        "reasoning_effort": {"enum":
          ["none", "minimal", "low", "medium", "high", "xhigh"]},
        "stream": {"type": "boolean"},
        "stream_options": {"$ref": "#/components/schemas/StreamOptions"},
        "add_generation_prompt": {"type": "boolean"},
        "chat_template_kwargs": {"type": "object"}},
      "examples": [{"messages": [{"role": "user", "content": "Hello"}]}]})"},
    {"CompletionRequest", R"({"type": "object", "required": ["prompt"],
      "properties": {
        "model": {"type": "string", "description":
          "May be left out where one language model is served."},
        "prompt": {"anyOf": [
          {"type": "string"},
          {"type": "array", "items": {"type": "string"}},
          {"type": "array", "items": {"type": "integer"}},
          {"type": "array", "items":
            {"type": "array", "items": {"type": "integer"}}}]},
        "stream": {"type": "boolean"},
        "stream_options": {"$ref": "#/components/schemas/StreamOptions"}},
      "examples": [{"prompt": "Once upon a time", "max_tokens": 16}]})"},
    {"Tool", R"({"type": "object", "required": ["type", "function"],
      "properties": {"type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {
          "name": {"type": "string"}, "description": {"type": "string"},
          "parameters": {"type": "object"}}}}})"},
    {"ToolCall", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "type": {"const": "function"},
        "function": {"type": "object", "properties": {
          "name": {"type": "string"},
          "arguments": {"type": "string"}}}}})"},
    {"ResponsesRequest", R"({"type": "object", "required": ["input"],
      "properties": {
        "model": {"type": "string"}, "instructions": {"type": "string"},
        "input": {"anyOf": [{"type": "string"},
          {"type": "array", "items": {"type": "object"}}]},
        "max_output_tokens": {"type": "integer"},
        "previous_response_id": {"type": "string"},
        "store": {"type": "boolean"}, "stream": {"type": "boolean"},
        "tools": {"type": "array"}, "reasoning": {"type": "object"}},
      "examples": [{"input": "Hello", "max_output_tokens": 32}]})"},
    {"BatchRequest", R"({"type": "object",
      "required": ["input_file_id", "endpoint", "completion_window"],
      "properties": {
        "input_file_id": {"type": "string"},
        "endpoint": {"enum": ["/v1/chat/completions", "/v1/completions",
          "/v1/embeddings"]},
        "completion_window": {"enum": ["24h"]},
        "metadata": {"type": "object"},
        "output_expires_after": {"type": "object"}}})"},
    {"MessagesRequest", R"({"type": "object",
      "required": ["messages", "max_tokens"], "properties": {
        "model": {"type": "string"}, "max_tokens": {"type": "integer"},
        "system": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        "messages": {"type": "array", "minItems": 1, "items": {
          "type": "object", "required": ["role", "content"], "properties": {
            "role": {"enum": ["user", "assistant"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}},
        "stop_sequences": {"type": "array", "items": {"type": "string"}},
        "tools": {"type": "array"}, "tool_choice": {"type": "object"},
        "thinking": {"type": "object"}, "stream": {"type": "boolean"}},
      "examples": [{"max_tokens": 32,
        "messages": [{"role": "user", "content": "Hello"}]}]})"},
    {"Message", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "type": {"const": "message"},
        "role": {"const": "assistant"}, "model": {"type": "string"},
        "content": {"type": "array", "items": {"type": "object"}},
        "stop_reason": {"type": ["string", "null"]},
        "stop_sequence": {"type": ["string", "null"]},
        "usage": {"type": "object"}}})"},
    {"StreamOptions", R"({"type": "object", "properties": {
        "include_usage": {"type": "boolean"},
        "continuous_usage_stats": {"type": "boolean"}}})"},
    {"Usage", R"({"type": "object", "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
        "prompt_tokens_details": {"type": "object", "properties": {
          "cached_tokens": {"type": "integer"}}},
        "completion_tokens_details": {"type": "object", "properties": {
          "reasoning_tokens": {"type": "integer"},
          "accepted_prediction_tokens": {"type": "integer"},
          "rejected_prediction_tokens": {"type": "integer"}}}}})"},
    {"ChatCompletion", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "object": {"const": "chat.completion"},
        "created": {"type": "integer"}, "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object",
          "properties": {
            "index": {"type": "integer"},
            "message": {"type": "object", "properties": {
              "role": {"const": "assistant"},
              "content": {"type": ["string", "null"]},
              "reasoning_content": {"type": "string"},
              "tool_calls": {"type": "array", "items":
                {"$ref": "#/components/schemas/ToolCall"}}}},
            "finish_reason": {"type": ["string", "null"]}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {"Completion", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "object": {"const": "text_completion"},
        "created": {"type": "integer"}, "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object",
          "properties": {
            "index": {"type": "integer"}, "text": {"type": "string"},
            "finish_reason": {"type": ["string", "null"]}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {"EmbeddingsRequest", R"({"type": "object", "required": ["input"],
      "properties": {
        "model": {"type": "string", "description":
          "May be left out where one model has a task over texts."},
        "input": {"anyOf": [
          {"type": "string"},
          {"type": "array", "items": {"type": "string"}},
          {"type": "array", "items": {"type": "integer"}},
          {"type": "array", "items":
            {"type": "array", "items": {"type": "integer"}}}]},
        "encoding_format": {"enum": ["float", "base64", "int8", "uint8",
          "binary", "ubinary"]},
        "output_dtype": {"enum": ["float", "int8", "uint8", "binary",
          "ubinary"]},
        "dimensions": {"type": "integer", "minimum": 1},
        "normalize": {"type": "boolean"},
        "truncate_prompt_tokens": {"type": "integer", "minimum": -1}},
      "examples": [{"input": "What is a mill?"}]})"},
    {"EmbeddingList", R"({"type": "object", "properties": {
        "object": {"const": "list"}, "model": {"type": "string"},
        "data": {"type": "array", "items": {"type": "object", "properties": {
          "object": {"const": "embedding"}, "index": {"type": "integer"},
          "embedding": {"anyOf": [{"type": "string"},
            {"type": "array", "items": {"type": "number"}}]}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {"RerankRequest", R"({"type": "object", "required": ["query"],
      "properties": {
        "model": {"type": "string"}, "query": {"type": "string"},
        "documents": {"type": "array", "items": {"anyOf": [
          {"type": "string"}, {"type": "object"}]}},
        "texts": {"type": "array", "items": {"type": "string"}},
        "top_n": {"type": "integer", "minimum": 0},
        "return_documents": {"type": "boolean"},
        "return_text": {"type": "boolean"}, "raw_scores": {"type": "boolean"},
        "truncate_prompt_tokens": {"type": "integer", "minimum": -1}},
      "examples": [{"query": "What is a mill?",
        "documents": ["It grinds grain.", "It rains."]}]})"},
    {"RerankResponse", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "model": {"type": "string"},
        "results": {"type": "array", "items": {"type": "object",
          "properties": {"index": {"type": "integer"},
            "document": {"type": "object"},
            "relevance_score": {"type": "number"}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {"ScoreRequest", R"({"type": "object", "required": ["text_1", "text_2"],
      "properties": {"model": {"type": "string"},
        "text_1": {"anyOf": [{"type": "string"},
          {"type": "array", "items": {"type": "string"}}]},
        "text_2": {"anyOf": [{"type": "string"},
          {"type": "array", "items": {"type": "string"}}]}},
      "examples": [{"text_1": "What is a mill?",
        "text_2": ["It grinds grain.", "It rains."]}]})"},
    {"ScoreList", R"({"type": "object", "properties": {
        "object": {"const": "list"}, "model": {"type": "string"},
        "data": {"type": "array", "items": {"type": "object", "properties": {
          "index": {"type": "integer"}, "object": {"const": "score"},
          "score": {"type": "number"}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {"ClassifyRequest", R"({"type": "object", "required": ["input"],
      "properties": {"model": {"type": "string"},
        "input": {"anyOf": [{"type": "string"}, {"type": "array"}]}},
      "examples": [{"input": "What a day!"}]})"},
    {"Model", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "object": {"const": "model"},
        "created": {"type": "integer"}, "owned_by": {"type": "string"},
        "max_model_len": {"type": "integer"}, "task": {"type": "string"}}})"},
    {"ModelList", R"({"type": "object", "properties": {
        "object": {"const": "list"}, "data": {"type": "array",
          "items": {"$ref": "#/components/schemas/Model"}}}})"},
    {"TokenizeRequest", R"({"type": "object", "properties": {
        "model": {"type": "string"},
        "prompt": {"type": "string"}, "content": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}},
        "add_special_tokens": {"type": "boolean"},
        "with_pieces": {"type": "boolean"},
        "return_token_strs": {"type": "boolean"}}})"},
    {"Tokens", R"({"type": "object", "properties": {
        "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
        "tokens": {"type": "array"}}})"},
    {"DetokenizeRequest", R"({"type": "object", "required": ["tokens"],
      "properties": {"model": {"type": "string"},
        "tokens": {"type": "array", "items": {"type": "integer"}}}})"},
    {"Health", R"({"type": "object", "properties": {
        "status": {"enum": ["ok", "loading", "draining"]},
        "ready": {"type": "boolean"},
        "models_ready": {"type": "integer"},
        "models_expected": {"type": "integer"},
        "loading": {"type": "object", "properties": {
          "model": {"type": "string"},
          "progress": {"type": "number", "minimum": 0, "maximum": 1},
          "seconds": {"type": "number"}}}}})"},
    {"Tensor", R"({"type": "object",
      "required": ["name", "datatype", "shape"], "properties": {
        "name": {"type": "string"},
        "datatype": {"enum": ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
          "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16",
          "BYTES"]},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "parameters": {"type": "object"},
        "data": {"type": "array", "description":
          "Flat or nested as the shape says; left out for binary data."}}})"},
    {"InferRequest", R"({"type": "object", "required": ["inputs"],
      "properties": {
        "id": {"type": "string"}, "parameters": {"type": "object"},
        "inputs": {"type": "array", "items":
          {"$ref": "#/components/schemas/Tensor"}},
        "outputs": {"type": "array", "items": {"type": "object",
          "required": ["name"], "properties": {
            "name": {"type": "string"},
            "parameters": {"type": "object"}}}}}})"},
    {"GenerateRequest", R"({"type": "object", "required": ["text_input"],
      "properties": {
        "id": {"type": "string"}, "text_input": {"type": "string"},
        "parameters": {"type": "object", "description":
          "Sampling fields, as in CompletionRequest; details: why it ended."}},
      "examples": [{"text_input": "Once upon a time",
        "parameters": {"max_tokens": 16}}]})"},
    {"GenerateResponse", R"({"type": "object", "properties": {
        "id": {"type": "string"}, "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "text_output": {"type": "string"},
        "details": {"type": "object"}}})"},
    {"InferResponse", R"({"type": "object", "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"}, "id": {"type": "string"},
        "outputs": {"type": "array", "items":
          {"$ref": "#/components/schemas/Tensor"}}}})"},
    {"TensorMetadata", R"({"type": "object", "properties": {
        "name": {"type": "string"}, "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}}}})"},
    {"ModelMetadata", R"({"type": "object", "properties": {
        "name": {"type": "string"}, "platform": {"type": "string"},
        "versions": {"type": "array", "items": {"type": "string"}},
        "inputs": {"type": "array", "items":
          {"$ref": "#/components/schemas/TensorMetadata"}},
        "outputs": {"type": "array", "items":
          {"$ref": "#/components/schemas/TensorMetadata"}}}})"},
    {"RepositoryIndex", R"({"type": "array", "items": {"type": "object",
      "properties": {"name": {"type": "string"},
        "version": {"type": "string"}, "state": {"type": "string"},
        "reason": {"type": "string"}}}})"},
    {"OpenAiError", R"({"type": "object", "properties": {"error": {
      "type": "object", "properties": {
        "message": {"type": "string"}, "type": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]}}}}})"},
    {"OipError", R"({"type": "object", "properties": {
        "error": {"type": "string"}}})"},
};

Json FieldSchema(const handlers::FieldFacts& field) {
  Json schema = {{"type", std::string(field.type)}};
  if (field.min.has_value()) {
    schema[field.without_min ? "exclusiveMinimum" : "minimum"] = *field.min;
  }
  if (field.max.has_value()) schema["maximum"] = *field.max;
  if (!field.items.empty()) {
    schema["items"] = {{"type", std::string(field.items)}};
  }
  if (field.name == "stop") {
    return {{"anyOf", Json::array({Json{{"type", "string"}}, schema})}};
  }
  return schema;
}

void AddFields(handlers::FieldDialect dialect, Json& request) {
  for (const handlers::FieldFacts& field : handlers::GenerateFields(dialect)) {
    request["properties"][std::string(field.name)] = FieldSchema(field);
  }
}

Json Reference(std::string_view kind, std::string_view name) {
  return {
      {"$ref", "#/components/" + std::string(kind) + "/" + std::string(name)}};
}

Json Content(std::string_view schema) {
  return {{"schema", Reference("schemas", schema)}};
}

bool IsOip(const Route& route) { return route.pattern.starts_with("/v2"); }

// "get_v2_models_id_ready".
std::string OperationId(const Route& route) {
  std::string id;
  for (const char c : route.method) id += static_cast<char>(c - 'A' + 'a');
  for (const char c : route.pattern) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_word) {
      id += c;
    } else if (id.back() != '_') {
      id += '_';
    }
  }
  if (id.back() == '_') id.pop_back();
  return id;
}

Json Parameters(std::string_view pattern) {
  Json list = Json::array();
  size_t open = pattern.find('{');
  while (open != std::string_view::npos) {
    const size_t close = pattern.find('}', open);
    list.push_back(
        {{"name", std::string(pattern.substr(open + 1, close - open - 1))},
         {"in", "path"},
         {"required", true},
         {"schema", {{"type", "string"}}}});
    open = pattern.find('{', close);
  }
  return list;
}

Json Operation(const Route& route) {
  Json operation = {{"operationId", OperationId(route)},
                    {"summary", std::string(route.summary)},
                    {"tags", Json::array({IsOip(route) ? "kserve" : "rest"})}};
  if (route.is_public) operation["security"] = Json::array();
  Json parameters = Parameters(route.pattern);
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!route.request.empty()) {
    Json content = {{"application/json", Content(route.request)}};
    if (route.takes_bytes) {
      content["application/octet-stream"] = Json::object();
    }
    operation["requestBody"] = {{"required", !route.takes_bytes},
                                {"content", std::move(content)}};
  }
  Json answer = {{"description", "The answer."}};
  if (!route.response.empty()) {
    answer["content"]["application/json"] = Content(route.response);
  }
  if (route.serve == ServeChatCompletions || route.serve == ServeCompletions ||
      route.serve == ServeMessages || route.serve == ServeCreateResponse) {
    answer["content"]["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  }
  const bool upgrades = route.socket != nullptr;
  if (upgrades) {
    answer = {{"description", "The connection is a WebSocket (RFC 6455)."}};
  }
  operation["responses"] = {
      {upgrades ? "101" : "200", std::move(answer)},
      {"default",
       Reference("responses", IsOip(route) ? "OipError" : "OpenAiError")}};
  return operation;
}

Json ErrorAnswer(std::string_view schema) {
  return {{"description",
           "An error: a sentence that names the value, the "
           "limit and the remedy."},
          {"content", {{"application/json", Content(schema)}}}};
}

Json Components() {
  Json schemas = Json::object();
  for (const Schema& schema : kSchemas) {
    schemas[std::string(schema.name)] = Json::parse(schema.json);
  }
  AddFields(handlers::FieldDialect::kChat, schemas["ChatRequest"]);
  AddFields(handlers::FieldDialect::kCompletions, schemas["CompletionRequest"]);
  return {{"schemas", std::move(schemas)},
          {"responses",
           {{"OpenAiError", ErrorAnswer("OpenAiError")},
            {"OipError", ErrorAnswer("OipError")}}},
          {"securitySchemes",
           {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
            {"api_key",
             {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}};
}

Status Describe(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, OpenApiText(ServingRoutes())));
  return OkStatus();
}

}  // namespace

std::string OpenApiText(std::span<const Route> routes) {
  Json paths = Json::object();
  for (const Route& route : routes) {
    const std::string id = OperationId(route);
    paths[std::string(route.pattern)][id.substr(0, id.find('_'))] =
        Operation(route);
  }
  // A server without keys asks for none: {} is the third way in.
  const Json security = Json::array({{{"bearer", Json::array()}},
                                     {{"api_key", Json::array()}},
                                     Json::object()});
  return DumpJson(
      Json{{"openapi", "3.1.0"},
           {"info",
            {{"title", "Millrace"},
             {"version", std::string(Version())},
             {"description",
              "Language models by OpenAI's routes, tensors by those of the "
              "Open Inference Protocol (KServe v2, Triton)."}}},
           {"servers", Json::array({Json{{"url", "/"}}})},
           {"security", security},
           {"paths", std::move(paths)},
           {"components", Components()}});
}

void ServeOpenApi(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Describe);
}

}  // namespace millrace::server::http
