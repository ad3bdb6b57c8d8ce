// What config.yaml calls the task of a model: bytes in, JSON out.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "config/base/out_of_memory.h"
#include "handlers/task.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/http/task_request.h"
#include "server/http/task_work.h"

namespace millrace::server::http {
namespace {

Status RunPlain(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params()[0];
  exchange->SetModel(name);
  ASSIGN_OR_RETURN(ModelHandle model, BorrowNamed(site, *exchange, name, ""));
  ASSIGN_OR_RETURN(
      handlers::TaskRequest request,
      ReadTaskBody(exchange->request(), std::move(exchange->TakeBody().text)));
  return RunTask(site, exchange, std::move(model), std::move(request),
                 ErrorResponse, [](handlers::TaskResponse response) {
                   HttpResponse answer;
                   answer.content_type = response.content_type;
                   answer.body = handlers::TaskBody(std::move(response));
                   return answer;
                 });
}

}  // namespace

Status RunTask(const Site& site, const std::shared_ptr<Exchange>& exchange,
               ModelHandle model, handlers::TaskRequest request,
               ErrorForm error, TaskForm form) {
  ASSIGN_OR_RETURN(handlers::TaskHandler * handler, model->ForTask());
  ASSIGN_OR_RETURN(request.deadline, ReadDeadline(*exchange));
  request.priority = PriorityOf(*exchange, request.priority);
  request.trace = exchange->trace();
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  // Let go of by the ending itself: the last copy of the closure may die on the
  // model's own thread, which must not be the one to unload it.
  auto held = std::make_shared<std::optional<ModelHandle>>(std::move(model));
  handler->Start(
      std::move(request),
      [exchange, held, error,
       form = std::move(form)](StatusOr<handlers::TaskResponse> response) {
        StatusOr<HttpResponse> answer =
            CatchOutOfMemory([&]() -> StatusOr<HttpResponse> {
              RETURN_IF_ERROR(response.status());
              return form(*std::move(response));
            });
        exchange->Send(answer.ok() ? *std::move(answer)
                                   : error(answer.status()));
        held->reset();
      },
      exchange->stop_token());
  return OkStatus();
}

Status GuardTask(const Site& site, const std::vector<std::string>& params) {
  const StatusOr<ModelHandle> model =
      site.services.repository->Borrow(params[0], "");
  // What else is wrong, the route says; and which of several versions serves,
  // the request's headers.
  if (!model.ok() ||
      site.services.repository->VersionsOf(params[0]).size() > 1) {
    return OkStatus();
  }
  const handlers::TaskHandler* const handler = (*model)->task();
  return handler != nullptr ? handler->HasPlace() : OkStatus();
}

void ServeTask(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, RunPlain);
}

}  // namespace millrace::server::http
