// How far a classifier's predictions are from their baseline.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/http/site.h"

namespace millrace::server::http {

// GET: the window of latest predictions, in the baseline's form. 404 where the
// model is not watched.
void ServeModelDrift(const Site& site,
                     const std::shared_ptr<Exchange>& exchange);

}  // namespace millrace::server::http
