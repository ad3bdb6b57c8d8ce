// inference.GRPCInferenceService: the calls of the Open Inference Protocol and
// Triton's ModelStreamInfer. Thread-safe.
#pragma once

#include <memory>

#include "server/grpc/infer_parts.h"
#include "server/grpc/infer_stream.h"

namespace grpc {
class Service;
}

namespace millrace::server {

inline constexpr const char* kOipServiceName = "inference.GRPCInferenceService";

// Everything given outlives the service.
std::unique_ptr<::grpc::Service> MakeOipService(const InferParts& parts,
                                                CallReader* reader,
                                                InferStreams* streams);

}  // namespace millrace::server
