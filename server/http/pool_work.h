// Work of a route on the handler pool: bodies are parsed and prompts made
// there; on an I/O thread only what is short.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "handlers/messages.h"
#include "server/http/exchange.h"
#include "server/http/site.h"

namespace millrace::server::http {

// A failure it returns becomes the answer; OK means that the answer was sent
// or will be.
using PoolWork = Status (*)(const Site& site,
                            const std::shared_ptr<Exchange>& exchange);

// A failure in the words of the route's protocol.
using ErrorForm = HttpResponse (*)(const Status& status);

// Posts the work; a full pool is answered 429 at once.
void RunOnPool(const Site& site, const std::shared_ptr<Exchange>& exchange,
               PoolWork work, ErrorForm error = ErrorResponse);

// As JSON, about 0.1 ms to read.
inline constexpr size_t kShortBodyBytes = 8 << 10;

// Does the work at once where the body is small and not compressed, else posts
// it. For work that takes no longer than its body needs to be read: two threads
// fewer take part in a request.
void RunSoon(const Site& site, const std::shared_ptr<Exchange>& exchange,
             PoolWork work, ErrorForm error = ErrorResponse);

// The body as a JSON object; it is moved out of the exchange.
StatusOr<nlohmann::ordered_json> ReadJsonBody(Exchange& exchange);

// Prompts of one request to complete text.
inline constexpr size_t kMaxPrompts = 64;
Status TooManyPrompts(size_t count);

// The model that `model` names. Without that field, the only language model
// there is.
StatusOr<ModelHandle> BorrowModel(const Site& site, Exchange& exchange,
                                  const nlohmann::ordered_json& body);

// The name itself, or that of the model which served_model_name lets answer
// for names that no model has.
std::string ServedName(const Site& site, std::string name);

// A model by its name; PERMISSION_DENIED where the caller's tenant may not use
// it.
StatusOr<ModelHandle> BorrowNamed(const Site& site, const Exchange& exchange,
                                  const std::string& name,
                                  const std::string& version);

// Whether lists of models show this name to the caller: BorrowNamed takes it.
bool MayUse(const Exchange& exchange, const std::string& name);

// The request's own priority, but none that goes before its tenant's (lower
// runs first).
int32_t PriorityOf(const Exchange& exchange, int32_t asked);

// The caller's tenant, for the order between tenants.
handlers::TenantShare ShareOf(const Exchange& exchange);

// From X-Request-Timeout-Ms, counted from the request's first byte; kNever
// without it.
StatusOr<Clock::Time> ReadDeadline(const Exchange& exchange);

}  // namespace millrace::server::http
