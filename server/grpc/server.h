// The gRPC front end, by the callback API: grpc.health.v1.Health, reflection,
// and inference.GRPCInferenceService (Open Inference Protocol with Triton's
// ModelStreamInfer) over the same handlers as REST. With a TorchServe registry
// also its InferenceAPIsService, and ManagementAPIsService on a port of its
// own. gRPC and Abseil headers stay in the sources of this folder.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <memory>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "handlers/pool.h"
#include "server/audit.h"
#include "server/auth.h"
#include "server/lifecycle/repository.h"
#include "server/protocol_state.h"
#include "server/tls.h"
#include "server/torchserve/management.h"
#include "server/torchserve/registry.h"
#include "server/tracing/request_traces.h"

namespace millrace::server {

struct GrpcServices {
  Repository* repository = nullptr;
  handlers::Pool* pool = nullptr;
  MetricRegistry* metrics = nullptr;
  Auth* auth = nullptr;
  Certificates* certificates = nullptr;  // null: no TLS
  AuditLog* audit = nullptr;             // null: nothing is written
  ProtocolState* state = nullptr;
  const RequestTraces* traces = nullptr;             // may be null
  const torchserve::Registry* torchserve = nullptr;  // null: another profile
  torchserve::Management* torchserve_management = nullptr;  // likewise
  const Clock* clock = &Clock::Real();
};

class GrpcServer {
 public:
  // Health is SERVING if the repository is ready now, see SetReady. A busy port
  // is FAILED_PRECONDITION naming host and
  // port.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(
      const config::ServerSettings& settings, const GrpcServices& services);
  virtual ~GrpcServer() = default;

  virtual int port() const = 0;
  // Health goes from NOT_SERVING to SERVING, unless it stops accepting.
  virtual void SetReady() = 0;
  // Health goes to NOT_SERVING.
  virtual void StopAccepting() = 0;
  virtual void Stop(std::chrono::steady_clock::time_point deadline) = 0;
};

}  // namespace millrace::server
