// The HTTP/1.1 front end: accepts connections, one coroutine each, and serves
// the routes of server/http/router.h. Beast and Asio stay in the sources. When
// max_connections are open, a new one is answered once: scrapes and probes as
// always, anything else by 503.
//
//   ASSIGN_OR_RETURN(auto http, HttpServer::Start(settings, services));
//   ... http->port() ...
//   http->Leave();  http->StopAccepting();  http->Stop(deadline);
//
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "server/audit.h"
#include "server/auth.h"
#include "server/batches/batches.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/repository.h"
#include "server/protocol_state.h"
#include "server/tls.h"
#include "server/tracing/capture.h"
#include "server/tracing/request_traces.h"

namespace millrace::server {
namespace torchserve {
class Management;
class Registry;
class Tokens;
}  // namespace torchserve

// What routes need; all of it outlives the server.
struct HttpServices {
  Repository* repository = nullptr;
  handlers::Pool* pool = nullptr;
  MetricRegistry* metrics = nullptr;
  Auth* auth = nullptr;
  Certificates* certificates = nullptr;  // null: no TLS
  AuditLog* audit = nullptr;             // null: nothing is written
  ProtocolState* state = nullptr;
  Batches* batches = nullptr;                  // null: no folder for them
  const RequestTraces* traces = nullptr;       // may be null
  Capturer* capturer = nullptr;                // may be null
  const config::Topology* topology = nullptr;  // may be null
  const CoreAllocator* cores = nullptr;        // may be null
  torchserve::Registry* torchserve = nullptr;  // null: another profile
  torchserve::Management* torchserve_management = nullptr;  // likewise
  torchserve::Tokens* torchserve_tokens = nullptr;          // null: no key file
  const Clock* clock = &Clock::Real();
};

class HttpServer {
 public:
  // Binds and starts the I/O threads. A busy port is FAILED_PRECONDITION naming
  // host and port.
  static StatusOr<std::unique_ptr<HttpServer>> Start(
      const config::ServerSettings& settings, const HttpServices& services);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual int metrics_port() const = 0;     // the same unless set apart
  virtual int management_port() const = 0;  // likewise
  // From now on each answer ends its connection ("Connection: close"), so that
  // clients and proxies have left before the sockets close.
  virtual void Leave() = 0;
  // No new connections but those that wait to be accepted; idle ones close,
  // busy ones close after their answer.
  virtual void StopAccepting() = 0;
  // Ends what is left at the deadline and joins.
  virtual void Stop(std::chrono::steady_clock::time_point deadline) = 0;
};

}  // namespace millrace::server
