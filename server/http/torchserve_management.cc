// TorchServe's management API over REST: paths and queries become calls of
// torchserve::Management.
#include <algorithm>
#include <string>
#include <utility>

#include "server/http/pool_work.h"
#include "server/http/torchserve_form.h"
#include "server/http/torchserve_routes.h"
#include "server/torchserve/description.h"
#include "server/torchserve/management.h"
#include "server/torchserve/tokens.h"

namespace millrace::server::http {
namespace {

using torchserve::Change;
using torchserve::Management;

constexpr int kDone = 200;
constexpr int kUnderWay = 202;

struct ModelPath {
  std::string name, version, rest;
};
ModelPath PathOf(const Exchange& exchange) {
  std::string_view path = exchange.params().front();
  const auto take = [&path] {
    const size_t slash = std::min(path.find('/'), path.size());
    std::string part(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
    return part;
  };
  ModelPath found;
  found.name = take();
  found.version = take();
  found.rest = path;
  return found;
}

Status NoResource() {
  return NotFound(
             "Requested resource is not found, please refer to API document.")
      .Because("route_not_found");
}

void Answer(const std::shared_ptr<Exchange>& exchange,
            const StatusOr<Change>& change) {
  exchange->Send(
      change.ok()
          ? TorchServeStatus(change->is_done ? kDone : kUnderWay, change->text)
          : TorchServeErrorResponse(change.status()));
}

Management::Done AnswerTo(const std::shared_ptr<Exchange>& exchange) {
  return
      [exchange](const StatusOr<Change>& change) { Answer(exchange, change); };
}

Status NoModel(const std::string& name) {
  return NotFound("Model not found: " + name);
}

Status List(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  exchange->Send(TorchServeResponse(
      kDone,
      site.services.torchserve_management->List(
          NumberField(fields, "limit").value_or(-1),
          NumberField(fields, "next_page_token").value_or(0),
          [&](const std::string& name) { return MayUse(*exchange, name); })));
  return OkStatus();
}

Status DescribeModel(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  if (!path.rest.empty() && path.rest != "set-default") return NoResource();
  if (path.name.empty()) return NoModel("");
  RETURN_IF_ERROR(CheckMayUse(*exchange, path.name, NoModel(path.name)));
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  return torchserve::StartDescription(
      *site.services.torchserve_management, *site.services.torchserve,
      {.name = path.name,
       .version = path.version,
       .customized = BoolField(fields, "customized", false)},
      [&](const std::string& name, const std::string& version) {
        return BorrowNamed(site, *exchange, name, version);
      },
      {.clock = site.services.clock,
       .trace = exchange->trace(),
       .stop = exchange->stop_token()},
      [exchange](StatusOr<std::string> text) {
        exchange->Send(text.ok() ? TorchServeResponse(kDone, *std::move(text))
                                 : TorchServeErrorResponse(text.status()));
      });
}

StatusOr<torchserve::RegisterRequest> ReadRegistration(const Fields& fields) {
  torchserve::RegisterRequest request;
  const std::string* url = FindField(fields, "url");
  if (url == nullptr) return InvalidArgument("Parameter url is required.");
  request.url = *url;
  if (const auto* name = FindField(fields, "model_name")) {
    request.model_name = *name;
  }
  if (const auto* handler = FindField(fields, "handler")) {
    request.handler = *handler;
  }
  if (const auto* runtime = FindField(fields, "runtime")) {
    RETURN_IF_ERROR(torchserve::CheckRuntime(*runtime));
  }
  request.sign_for_s3 = BoolField(fields, "s3_sse_kms", false);
  for (const auto& [name, value] :
       {std::pair{"batch_size", &request.batch_size},
        std::pair{"max_batch_delay", &request.max_batch_delay_ms},
        std::pair{"initial_workers", &request.initial_workers},
        std::pair{"response_timeout", &request.response_timeout_s},
        std::pair{"startup_timeout", &request.startup_timeout_s}}) {
    *value = NumberField(fields, name);
  }
  return request;
}

Status Register(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  Management& management = *site.services.torchserve_management;
  RETURN_IF_ERROR(management.CheckEnabled());
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  ASSIGN_OR_RETURN(torchserve::RegisterRequest request,
                   ReadRegistration(fields));
  request.may_use = [exchange](const std::string& name) {
    return CheckMayUse(*exchange, name, NoModel(name));
  };
  management.Register(request, BoolField(fields, "synchronous", true),
                      AnswerTo(exchange));
  return OkStatus();
}

Status Scale(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  Management& management = *site.services.torchserve_management;
  const ModelPath path = PathOf(*exchange);
  RETURN_IF_ERROR(CheckMayUse(*exchange, path.name, NoModel(path.name)));
  if (path.rest == "set-default") {
    Answer(exchange, management.SetDefault(path.name, path.version));
    return OkStatus();
  }
  if (!path.rest.empty()) return NoResource();
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  // Not `timeout`: the last requests of an instance are always awaited.
  const int64_t least = NumberField(fields, "min_worker").value_or(1);
  const int64_t most = NumberField(fields, "max_worker").value_or(least);
  management.Scale(path.name, path.version, least, most,
                   BoolField(fields, "synchronous", false), AnswerTo(exchange));
  return OkStatus();
}

Status Unregister(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  Management& management = *site.services.torchserve_management;
  RETURN_IF_ERROR(management.CheckEnabled());
  const ModelPath path = PathOf(*exchange);
  if (!path.rest.empty()) return NoResource();
  RETURN_IF_ERROR(CheckMayUse(*exchange, path.name, NoModel(path.name)));
  management.Unregister(path.name, path.version, AnswerTo(exchange));
  return OkStatus();
}

// GET /token?type=inference|management, with the API key.
Status RenewToken(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  torchserve::Tokens* tokens = site.services.torchserve_tokens;
  if (tokens == nullptr) return NoResource();
  RETURN_IF_ERROR(
      tokens->CheckApiKey(exchange->request().Header("authorization")));
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  const std::string* type = FindField(fields, "type");
  ASSIGN_OR_RETURN(std::string text, tokens->Renew(type ? *type : ""));
  exchange->Send(TorchServeResponse(kDone, std::move(text)));
  return OkStatus();
}

}  // namespace

void ServeTorchModels(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, List, TorchServeErrorResponse);
}
void ServeTorchRegister(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Register, TorchServeErrorResponse);
}
void ServeTorchDescribe(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, DescribeModel, TorchServeErrorResponse);
}
void ServeTorchScale(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Scale, TorchServeErrorResponse);
}
void ServeTorchUnregister(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Unregister, TorchServeErrorResponse);
}
void ServeTorchToken(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, RenewToken, TorchServeErrorResponse);
}

}  // namespace millrace::server::http
