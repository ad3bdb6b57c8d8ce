// gRPC answers an unknown method UNIMPLEMENTED without a word. Clients of
// Triton try methods that are not offered here, so the sentence says why.
#include "server/grpc/unknown_calls.h"

#include <grpcpp/generic/async_generic_service.h>

#include <string>
#include <string_view>

#include "config/base/utf8.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/oip_service.h"

namespace millrace::server {
namespace {

constexpr size_t kShownMethod = 200;

struct NotOffered {
  std::string_view part;  // of the method
  std::string_view instead;
};
constexpr NotOffered kNotOffered[] = {
    {"org.pytorch.serve.", "call ModelInfer of inference.GRPCInferenceService"},
    {"inference.GRPCInferenceService",
     "reflection lists its methods (grpcurl HOST:PORT describe "
     "inference.GRPCInferenceService)"},
};

Status NotHere(const std::string& method) {
  std::string_view instead =
      "this server has inference.GRPCInferenceService, grpc.health.v1.Health "
      "and reflection";
  for (const NotOffered& each : kNotOffered) {
    if (method.find(each.part) != std::string::npos) {
      instead = each.instead;
      break;
    }
  }
  return Unimplemented("there is no method '" +
                       Shortened(method, kShownMethod) + "'; " +
                       std::string(instead))
      .Because("method_not_found");
}

class Refusal final : public ::grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

class UnknownCalls final : public ::grpc::CallbackGenericService {
 public:
  UnknownCalls(const CallReader* reader, const Recorder* recorder)
      : reader_(reader), recorder_(recorder) {}

  ::grpc::ServerGenericBidiReactor* CreateReactor(
      ::grpc::GenericCallbackServerContext* context) override {
    Status status = reader_->Identify(*context, GrpcRoute::kNone).status();
    if (status.ok()) status = NotHere(context->method());
    recorder_->Count(GrpcRoute::kNone, status, context->peer());
    return new Refusal(status);  // deletes itself when done
  }

 private:
  const CallReader* const reader_;
  const Recorder* const recorder_;
};

}  // namespace

std::unique_ptr<::grpc::CallbackGenericService> MakeUnknownCalls(
    const CallReader* reader, const Recorder* recorder) {
  return std::make_unique<UnknownCalls>(reader, recorder);
}

}  // namespace millrace::server
