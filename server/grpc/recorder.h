// One counted and logged ending for each call: the request metrics under route
// "grpc/METHOD", and for inference one line in the access log.
//
// Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "handlers/messages.h"
#include "server/auth.h"
#include "server/request_metrics.h"
#include "server/tracing/request_traces.h"

namespace millrace::server {

// The methods that are counted.
enum class GrpcRoute {
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kModelInfer,
  kModelStreamInfer,
  kModelConfig,
  kModelStatistics,
  kRepositoryIndex,
  kRepositoryModelLoad,
  kRepositoryModelUnload,
  kSharedMemory,  // its six methods
  kTraceSetting,
  kLogSettings,
  kTorchServePing,
  kTorchServePredict,  // three methods
  kTorchServeManage,   // six methods
  kNone,               // no method of ours
  kCount,
};

// "grpc/ModelInfer"
std::string_view GrpcRouteName(GrpcRoute route);

class Recorder {
 public:
  struct Ended {
    GrpcRoute route;
    Status status;
    std::string model;
    std::string peer;
    CallerPtr caller;              // null: nobody was asked
    const Trace* trace = nullptr;  // never null
    handlers::Usage usage;
  };

  // registry may be null: nothing is counted; so may traces.
  Recorder(MetricRegistry* registry, const RequestTraces* traces,
           bool access_log);

  // A call that did work for a model.
  void Record(const Ended& ended) const;
  // Health-like calls: counted, with a line in the log for those that failed.
  void Count(GrpcRoute route, const Status& status,
             std::string_view peer) const;

 private:
  std::vector<RequestMetrics> metrics_;  // by route
  const RequestTraces* const traces_;
  const bool access_log_;
};

}  // namespace millrace::server
