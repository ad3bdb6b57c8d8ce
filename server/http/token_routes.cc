// POST /tokenize, /detokenize and /apply-template. llama.cpp's clients send
// `content` to /tokenize, vLLM's send `prompt` or `messages`, and their
// defaults differ: the key decides.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Text where it is text, else its bytes as numbers (as llama.cpp answers).
Json PieceJson(const std::string& bytes) {
  if (IsValidUtf8(bytes)) return bytes;
  Json numbers = Json::array();
  for (char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

Json TokensJson(const handlers::TokenizedText& text, bool with_pieces) {
  if (!with_pieces) return text.ids;
  Json tokens = Json::array();
  for (size_t i = 0; i < text.ids.size(); ++i) {
    Json token = Json::object();
    token["id"] = text.ids[i];
    token["piece"] = PieceJson(text.pieces[i]);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

StatusOr<handlers::TokenizedText> TokenizeBody(
    const handlers::GenerateHandler& handler, const Json& body) {
  if (handlers::FindField(body, "messages") != nullptr) {
    ASSIGN_OR_RETURN(const handlers::ChatPrompt chat,
                     handlers::ReadChatPrompt(body));
    return handler.TokenizeChat(chat);
  }
  const bool llama = handlers::FindField(body, "content") != nullptr;
  const char* const key = llama ? "content" : "prompt";
  ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, key));
  if (!text.has_value()) {
    return InvalidArgument(
               "there is nothing to tokenize; send content, prompt or messages")
        .At("prompt");
  }
  const char* const special_key = llama ? "add_special" : "add_special_tokens";
  ASSIGN_OR_RETURN(const auto add_special,
                   handlers::ReadBool(body, special_key));
  ASSIGN_OR_RETURN(const auto parse_special,
                   handlers::ReadBool(body, "parse_special"));
  return handler.Tokenize(*text, add_special.value_or(!llama),
                          parse_special.value_or(true));
}

Status Tokenize(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const auto with_pieces,
                   handlers::ReadBool(body, "with_pieces"));
  ASSIGN_OR_RETURN(const auto with_strings,
                   handlers::ReadBool(body, "return_token_strs"));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(const handlers::TokenizedText text,
                   TokenizeBody(*handler, body));
  Json answer = Json::object();
  answer["count"] = text.ids.size();
  answer["max_model_len"] = model->text_facts()->max_model_len;
  answer["tokens"] = TokensJson(text, with_pieces.value_or(false));
  answer["token_strs"] = nullptr;
  if (with_strings.value_or(false)) answer["token_strs"] = text.pieces;
  exchange->Send(JsonResponse(200, DumpJson(answer)));
  return OkStatus();
}

Status Detokenize(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const Json* tokens, handlers::ReadArray(body, "tokens"));
  if (tokens == nullptr) {
    return InvalidArgument("tokens is missing; send a list of token ids")
        .At("tokens");
  }
  std::vector<int32_t> ids;
  ids.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(
        const int64_t id,
        handlers::AsInt((*tokens)[i], "tokens[" + std::to_string(i) + "]",
                        {.min = 0, .max = INT32_MAX}));
    ids.push_back(static_cast<int32_t>(id));
  }
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(std::string text, handler->Detokenize(ids));
  Json answer = Json::object();
  answer["content"] = text;            // llama.cpp's name
  answer["prompt"] = std::move(text);  // vLLM's
  exchange->Send(JsonResponse(200, DumpJson(answer)));
  return OkStatus();
}

Status ApplyTemplate(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const handlers::ChatPrompt chat,
                   handlers::ReadChatPrompt(body));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(std::string text, handler->ApplyTemplate(chat));
  Json answer = Json::object();
  answer["prompt"] = std::move(text);
  exchange->Send(JsonResponse(200, DumpJson(answer)));
  return OkStatus();
}

Status CountChat(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const handlers::ChatPrompt chat,
                   handlers::ReadChatPrompt(body));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(const handlers::TokenizedText text,
                   handler->TokenizeChat(chat));
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"input_tokens", text.ids.size()}})));
  return OkStatus();
}

}  // namespace

void ServeTokenize(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Tokenize);
}

void ServeDetokenize(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Detokenize);
}

void ServeApplyTemplate(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, ApplyTemplate);
}

void ServeCountChatTokens(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, CountChat);
}

}  // namespace millrace::server::http
