// Requests of batches, answered by the functions behind the routes as if they
// had come over a connection of their own.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "server/batches/batches.h"
#include "server/http/site.h"

namespace millrace::server::http {

// INVALID_ARGUMENT names the endpoints that a batch may have.
Status CheckBatchEndpoint(const std::string& endpoint);

std::unique_ptr<LineExecutor> MakeBatchExecutor(
    std::shared_ptr<const Site> site);

}  // namespace millrace::server::http
