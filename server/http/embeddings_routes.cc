// POST /v1/embeddings as OpenAI has it, Ollama's /api/embed and
// /api/embeddings, and llama.cpp's /embedding and /embeddings. openai-python
// asks for base64 unless told otherwise: the bytes of each vector as
// little-endian FP32.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "server/http/routes.h"
#include "server/http/text_work.h"
#include "server/http/vector_format.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using config::TaskKind;
using handlers::TextResponse;
using handlers::TextTaskFacts;

constexpr int64_t kMaxDimensions = 1 << 20;

// By hand: a vector has hundreds of numbers, and a tree of them costs more than
// computing it.
HttpResponse EmbeddingsBody(const std::string& model,
                            const VectorFormat& format,
                            const TextResponse& response) {
  std::string body = R"({"id":"embd-)" + RandomHex(32) +
                     R"(","object":"list","created":)" +
                     std::to_string(CreatedNow()) + R"(,"model":)" +
                     DumpJson(Json(model)) + R"(,"data":[)";
  for (size_t i = 0; i < response.rows.size(); ++i) {
    body += (i > 0 ? "," : "");
    body += R"({"object":"embedding","index":)" + std::to_string(i) +
            R"(,"embedding":)";
    AppendVector(response.rows[i].values, format, body);
    body += '}';
  }
  body += R"(],"usage":)" + DumpJson(TextUsage(response)) + "}";
  return JsonResponse(200, std::move(body));
}

Status Embeddings(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  handlers::TextRequest request;
  ASSIGN_OR_RETURN(request.items, ReadInputs(body, "input"));
  ASSIGN_OR_RETURN(const VectorFormat format, ReadVectorFormat(body));
  ASSIGN_OR_RETURN(
      request.dimensions,
      handlers::ReadInt(body, "dimensions", {.min = 1, .max = kMaxDimensions}));
  ASSIGN_OR_RETURN(request.normalize, handlers::ReadBool(body, "normalize"));
  RETURN_IF_ERROR(ReadTruncation(body, request));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowForTexts(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::TextHandler* handler, model->ForTexts());
  RETURN_IF_ERROR(WantTask(handler->facts(), model->id(), {TaskKind::kEmbed},
                           "/v1/embeddings"));
  const std::string name = model->id();
  return RunTexts(site, exchange, std::move(model), std::move(request),
                  [name, format](const TextTaskFacts&, const TextResponse& r) {
                    return EmbeddingsBody(name, format, r);
                  });
}

// `input` and a vector for each text, or `prompt` and one vector.
Status OllamaVectors(const Site& site,
                     const std::shared_ptr<Exchange>& exchange, bool many) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  handlers::TextRequest request;
  ASSIGN_OR_RETURN(request.items, ReadInputs(body, many ? "input" : "prompt"));
  ASSIGN_OR_RETURN(
      request.dimensions,
      handlers::ReadInt(body, "dimensions", {.min = 1, .max = kMaxDimensions}));
  ASSIGN_OR_RETURN(const auto cut, handlers::ReadBool(body, "truncate"));
  request.truncate = cut.value_or(true);
  ASSIGN_OR_RETURN(ModelHandle model, BorrowForTexts(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::TextHandler* handler, model->ForTexts());
  RETURN_IF_ERROR(WantTask(handler->facts(), model->id(), {TaskKind::kEmbed},
                           "/api/embed"));
  const std::string name = model->id();
  return RunTexts(
      site, exchange, std::move(model), std::move(request),
      [name, many](const TextTaskFacts&, const TextResponse& response) {
        std::string text =
            many ? R"({"model":)" + DumpJson(Json(name)) + R"(,"embeddings":[)"
                 : R"({"embedding":)";
        for (size_t i = 0; i < response.rows.size(); ++i) {
          if (i > 0) text += ',';
          AppendNumbers(response.rows[i].values, text);
        }
        if (many) {
          text += R"(],"total_duration":0,"load_duration":0,)"
                  R"("prompt_eval_count":)" +
                  std::to_string(response.num_tokens());
        }
        return JsonResponse(200, text + "}");
      },
      OipErrorResponse);
}

// `embd_normalize` of llama.cpp: 2, the Euclidean length, is what models here
// normalise by; -1: not at all.
Status ReadLlamaNorm(const Json& body, handlers::TextRequest& request) {
  ASSIGN_OR_RETURN(const auto norm, handlers::ReadInt(body, "embd_normalize"));
  if (!norm) return OkStatus();
  if (*norm != 2 && *norm != -1) {
    return InvalidArgument("embd_normalize is " + std::to_string(*norm) +
                           " but may be 2 (Euclidean) or -1 (none)")
        .At("embd_normalize")
        .Because("unsupported_parameter");
  }
  request.normalize = *norm == 2;
  return OkStatus();
}

// Vectors stand in a list each, as there, where a model without pooling has one
// for each token.
Status LlamaEmbeddings(const Site& site,
                       const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  handlers::TextRequest request;
  const bool as_input = handlers::FindField(body, "input") != nullptr;
  ASSIGN_OR_RETURN(request.items,
                   ReadInputs(body, as_input ? "input" : "content"));
  ASSIGN_OR_RETURN(const auto encoding,
                   handlers::ReadString(body, "encoding_format"));
  if (encoding.value_or("float") != "float") {
    return InvalidArgument("encoding_format is " +
                           handlers::Shown(Json(*encoding)) +
                           " but vectors are lists of numbers here; use "
                           "/v1/embeddings")
        .At("encoding_format");
  }
  RETURN_IF_ERROR(ReadLlamaNorm(body, request));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowForTexts(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::TextHandler* handler, model->ForTexts());
  RETURN_IF_ERROR(WantTask(handler->facts(), model->id(), {TaskKind::kEmbed},
                           "/embeddings"));
  return RunTexts(site, exchange, std::move(model), std::move(request),
                  [](const TextTaskFacts&, const TextResponse& response) {
                    std::string text = "[";
                    for (size_t i = 0; i < response.rows.size(); ++i) {
                      text += (i > 0 ? ",{" : "{");
                      text += R"("index":)" + std::to_string(i) +
                              R"(,"embedding":[)";
                      AppendNumbers(response.rows[i].values, text);
                      text += "]}";
                    }
                    return JsonResponse(200, text + "]");
                  });
}

Status OllamaEmbed(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  return OllamaVectors(site, exchange, true);
}
Status OllamaEmbeddings(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  return OllamaVectors(site, exchange, false);
}

}  // namespace

void ServeEmbeddings(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Embeddings);
}

void ServeOllamaEmbed(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, OllamaEmbed, OipErrorResponse);
}

void ServeOllamaEmbeddings(const Site& site,
                           const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, OllamaEmbeddings, OipErrorResponse);
}

void ServeLlamaEmbeddings(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, LlamaEmbeddings);
}

}  // namespace millrace::server::http
