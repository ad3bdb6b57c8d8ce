// A task's request on its way to the model and back, whatever its wire's form.
#pragma once

#include <functional>
#include <memory>

#include "config/base/status.h"
#include "handlers/task.h"
#include "server/http/exchange.h"
#include "server/http/pool_work.h"
#include "server/http/site.h"
#include "server/lifecycle/repository.h"

namespace millrace::server::http {

using TaskForm = std::function<HttpResponse(handlers::TaskResponse)>;

// On the handler pool. Fills in deadline, trace and the caller's priority. A
// failure that is returned was not sent.
Status RunTask(const Site& site, const std::shared_ptr<Exchange>& exchange,
               ModelHandle model, handlers::TaskRequest request,
               ErrorForm error, TaskForm form);

}  // namespace millrace::server::http
