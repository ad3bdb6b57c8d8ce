// TorchServe's gRPC services over the same registry as its REST APIs:
// InferenceAPIsService, and ManagementAPIsService for a port of its own.
// Thread-safe.
#pragma once

#include <memory>

#include "server/grpc/infer_parts.h"
#include "server/grpc/infer_stream.h"
#include "server/torchserve/management.h"
#include "server/torchserve/registry.h"

namespace grpc {
class Service;
}

namespace millrace::server {

// Everything given outlives the service. `streams` ends those that wait for
// another request when the server drains.
std::unique_ptr<::grpc::Service> MakeTorchServeInference(
    const InferParts& parts, const torchserve::Registry* registry,
    CallReader* reader, InferStreams* streams);

std::unique_ptr<::grpc::Service> MakeTorchServeManagement(
    const InferParts& parts, const torchserve::Registry* registry,
    torchserve::Management* management, CallReader* reader);

}  // namespace millrace::server
