// Anthropic's list of models: /v1/models and /v1/models/{id} of requests with
// the header anthropic-version, which others of these routes do not have.
// Source: docs.anthropic.com/en/api/models-list, …/models
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/http/message.h"
#include "server/http/site.h"

namespace millrace::server::http {

bool IsAnthropic(const HttpRequest& request);

// Models that generate text, those that serve Messages; page by page (limit,
// after_id, before_id).
void ServeAnthropicModels(const Site& site,
                          const std::shared_ptr<Exchange>& exchange);
void ServeAnthropicModel(const Site& site,
                         const std::shared_ptr<Exchange>& exchange);

}  // namespace millrace::server::http
