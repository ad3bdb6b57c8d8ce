// ModelInfer: one request, one answer: the whole text of a language model, the
// tensors of a graph.
#pragma once

#include <string>

#include "server/grpc/infer_parts.h"

namespace grpc {
class CallbackServerContext;
class ServerUnaryReactor;
}  // namespace grpc

namespace millrace::server {

// gRPC keeps request and response until the call is done.
::grpc::ServerUnaryReactor* StartUnaryInfer(
    ::grpc::CallbackServerContext* context, const InferParts& parts,
    CallInfo info, const inference::ModelInferRequest* request,
    inference::ModelInferResponse* response);

}  // namespace millrace::server
