// TorchServe's workflows over REST: registering, listing and predictions.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/base/utf8.h"
#include "server/http/pool_work.h"
#include "server/http/torchserve_form.h"
#include "server/http/torchserve_routes.h"
#include "server/torchserve/workflows.h"

namespace millrace::server::http {
namespace {

using torchserve::Workflows;

Status NoWorkflow(const std::string& name) {
  return NotFound("Workflow not found: " + Shortened(name, 300))
      .Because("workflow_not_found");
}

torchserve::Management::Done AnswerTo(
    const std::shared_ptr<Exchange>& exchange) {
  return [exchange](const StatusOr<torchserve::Change>& change) {
    exchange->Send(change.ok() ? TorchServeStatus(200, change->text)
                               : TorchServeErrorResponse(change.status()));
  };
}

Status Predict(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const Workflows& workflows = site.services.torchserve_management->workflows();
  const std::string& path = exchange->params().front();
  const std::string name = path.substr(0, path.find('/'));
  RETURN_IF_ERROR(CheckMayUse(*exchange, name, NoWorkflow(name)));
  ASSIGN_OR_RETURN(auto workflow, workflows.Find(name));
  exchange->SetModel(name);
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  Exchange::Body body = exchange->TakeBody();
  ASSIGN_OR_RETURN(std::vector<handlers::TaskPart> parts,
                   ReadParts(exchange->request().Header("content-type"),
                             std::move(body.text)));
  torchserve::RunWorkflow(
      workflows.parts(), std::move(workflow), std::move(parts),
      {.clock = site.services.clock,
       .deadline = deadline,
       .priority = PriorityOf(*exchange, 0),
       .trace = exchange->trace(),
       .stop = exchange->stop_token()},
      [exchange](StatusOr<torchserve::PredictionBody> answer) {
        if (!answer.ok()) {
          exchange->Send(TorchServeErrorResponse(answer.status()));
          return;
        }
        HttpResponse response =
            TorchServeResponse(200, std::move(answer->text));
        response.content_type = std::move(answer->content_type);
        exchange->Send(std::move(response));
      });
  return OkStatus();
}

Status List(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  exchange->Send(TorchServeResponse(
      200,
      site.services.torchserve_management->workflows().List(
          NumberField(fields, "limit").value_or(-1),
          NumberField(fields, "next_page_token").value_or(0),
          [&](const std::string& name) { return MayUse(*exchange, name); })));
  return OkStatus();
}

Status Describe(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  RETURN_IF_ERROR(CheckMayUse(*exchange, name, NoWorkflow(name)));
  ASSIGN_OR_RETURN(
      std::string text,
      site.services.torchserve_management->workflows().Describe(name));
  exchange->Send(TorchServeResponse(200, std::move(text)));
  return OkStatus();
}

Status Register(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  const std::string* url = FindField(fields, "url");
  if (url == nullptr) return InvalidArgument("Parameter url is required.");
  torchserve::WorkflowRequest request{.url = *url};
  if (const auto* name = FindField(fields, "workflow_name")) {
    request.name = *name;
  }
  request.sign_for_s3 = BoolField(fields, "s3_sse_kms", false);
  request.response_timeout_s = NumberField(fields, "response_timeout");
  request.startup_timeout_s = NumberField(fields, "startup_timeout");
  site.services.torchserve_management->workflows().Register(std::move(request),
                                                            AnswerTo(exchange));
  return OkStatus();
}

Status Unregister(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  RETURN_IF_ERROR(CheckMayUse(*exchange, name, NoWorkflow(name)));
  site.services.torchserve_management->workflows().Unregister(
      name, AnswerTo(exchange));
  return OkStatus();
}

}  // namespace

void ServeTorchWorkflow(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Predict, TorchServeErrorResponse);
}
void ServeTorchWorkflows(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, List, TorchServeErrorResponse);
}
void ServeTorchWorkflowDescribe(const Site& site,
                                const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Describe, TorchServeErrorResponse);
}
void ServeTorchWorkflowRegister(const Site& site,
                                const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Register, TorchServeErrorResponse);
}
void ServeTorchWorkflowUnregister(const Site& site,
                                  const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Unregister, TorchServeErrorResponse);
}

}  // namespace millrace::server::http
