// What the routes over texts share (embeddings, rerank, score, classify): their
// fields, the model that they name, the way there and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/texts/text_task.h"
#include "server/http/exchange.h"
#include "server/http/pool_work.h"
#include "server/http/site.h"
#include "server/lifecycle/repository.h"

namespace millrace::server::http {

// The model that `model` names. Without that field, the only one there is with
// a task over texts.
StatusOr<ModelHandle> BorrowForTexts(const Site& site, Exchange& exchange,
                                     const nlohmann::ordered_json& body);

// A text, a list of texts, token ids, or a list of lists of these.
StatusOr<std::vector<handlers::TextItem>> ReadInputs(
    const nlohmann::ordered_json& body, const char* field);
// A text or a list of texts; Jina's and Cohere's {"text": "..."} for each.
StatusOr<std::vector<std::string>> ReadTexts(const nlohmann::ordered_json& body,
                                             const char* field);
// truncate_prompt_tokens (vLLM: -1 is the model's limit), truncate (others).
Status ReadTruncation(const nlohmann::ordered_json& body,
                      handlers::TextRequest& request);

// OK where the model has one of these tasks; else a sentence that names what it
// has and what `route` needs.
Status WantTask(const handlers::TextTaskFacts& facts, const std::string& model,
                std::initializer_list<config::TaskKind> wanted,
                std::string_view route);

// On the handler pool. Fills in deadline, trace and the caller's priority, and
// counts the tokens in the access log. A failure that is returned was not sent.
using TextForm = std::function<StatusOr<HttpResponse>(
    const handlers::TextTaskFacts& facts, const handlers::TextResponse&)>;
Status RunTexts(const Site& site, const std::shared_ptr<Exchange>& exchange,
                ModelHandle model, handlers::TextRequest request, TextForm form,
                ErrorForm error = ErrorResponse);

// {"prompt_tokens": n, "total_tokens": n}
nlohmann::ordered_json TextUsage(const handlers::TextResponse& response);
// Appends [1.5,…], each number as short as it can be.
void AppendNumbers(const std::vector<float>& row, std::string& out);
// The Unix time of the server's wall clock.
int64_t CreatedNow();

}  // namespace millrace::server::http
