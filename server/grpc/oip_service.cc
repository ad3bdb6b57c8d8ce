// Each call checks the key first and is counted once. Liveness, readiness and
// metadata are answered on gRPC's own threads; only inference goes to the
// handler pool.
#include "server/grpc/oip_service.h"

#include <grpcpp/support/server_callback.h>

#include <string>
#include <utility>

#include "open_inference_grpc.grpc.pb.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/infer_unary.h"
#include "server/grpc/repository_calls.h"
#include "server/grpc/state_calls.h"
#include "server/grpc/tensor_codec.h"
#include "server/lifecycle/composite.h"
#include "server/version.h"

namespace millrace::server {
namespace {

using ::grpc::CallbackServerContext;
using ::grpc::ServerUnaryReactor;

// A stream that is refused before its first message.
class RefusedStream final
    : public ::grpc::ServerBidiReactor<inference::ModelInferRequest,
                                       inference::ModelStreamInferResponse> {
 public:
  explicit RefusedStream(const Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

class OipService final
    : public inference::GRPCInferenceService::CallbackService {
 public:
  OipService(const InferParts& parts, CallReader* reader, InferStreams* streams)
      : parts_(parts), reader_(reader), streams_(streams) {}

  ServerUnaryReactor* ServerLive(
      CallbackServerContext* context, const inference::ServerLiveRequest*,
      inference::ServerLiveResponse* response) override {
    return Answer(GrpcRoute::kServerLive, context, [&] {
      response->set_live(true);
      return OkStatus();
    });
  }

  ServerUnaryReactor* ServerReady(
      CallbackServerContext* context, const inference::ServerReadyRequest*,
      inference::ServerReadyResponse* response) override {
    return Answer(GrpcRoute::kServerReady, context, [&] {
      response->set_ready(parts_.repository->state() == ServerState::kReady);
      return OkStatus();
    });
  }

  // A probe needs yes or no: an unknown model is not ready, which is no error.
  ServerUnaryReactor* ModelReady(
      CallbackServerContext* context,
      const inference::ModelReadyRequest* request,
      inference::ModelReadyResponse* response) override {
    return Answer(GrpcRoute::kModelReady, context, [&] {
      const auto model =
          parts_.repository->Borrow(request->name(), request->version());
      response->set_ready(model.ok() && ReadyOf(**model).ok());
      return OkStatus();
    });
  }

  ServerUnaryReactor* ServerMetadata(
      CallbackServerContext* context, const inference::ServerMetadataRequest*,
      inference::ServerMetadataResponse* response) override {
    return Answer(GrpcRoute::kServerMetadata, context, [&] {
      response->set_name("millrace");
      response->set_version(std::string(Version()));
      response->add_extensions("parameters");
      for (const char* extension :
           {"classification", "model_repository", "schedule_policy",
            "model_configuration", "system_shared_memory", "binary_tensor_data",
            "statistics", "logging"}) {
        response->add_extensions(extension);
      }
      return OkStatus();
    });
  }

  ServerUnaryReactor* ModelMetadata(
      CallbackServerContext* context,
      const inference::ModelMetadataRequest* request,
      inference::ModelMetadataResponse* response) override {
    return Answer(GrpcRoute::kModelMetadata, context, [&]() -> Status {
      ASSIGN_OR_RETURN(
          ModelHandle model,
          parts_.repository->Borrow(request->name(), request->version()));
      response->set_name(model->id());
      for (const std::string& version :
           parts_.repository->VersionsOf(request->name())) {
        response->add_versions(version);
      }
      response->set_platform(model->facts().platform);
      if (const auto handler = model->ForTensors(); handler.ok()) {
        DescribeTensors(**handler, response);
      } else {
        DescribeTensors(response);
      }
      return OkStatus();
    });
  }

  ServerUnaryReactor* ModelConfig(
      CallbackServerContext* context,
      const inference::ModelConfigRequest* request,
      inference::ModelConfigResponse* response) override {
    return Answer(GrpcRoute::kModelConfig, context, [&]() -> Status {
      ASSIGN_OR_RETURN(
          const std::shared_ptr<Servable> model,
          parts_.repository->Find(request->name(), request->version()));
      return DescribeConfig(*model, response);
    });
  }

  ServerUnaryReactor* ModelStatistics(
      CallbackServerContext* context,
      const inference::ModelStatisticsRequest* request,
      inference::ModelStatisticsResponse* response) override {
    return Answer(GrpcRoute::kModelStatistics, context, [&] {
      return DescribeStatistics(*parts_.repository, *request, response);
    });
  }

  ServerUnaryReactor* RepositoryIndex(
      CallbackServerContext* context,
      const inference::RepositoryIndexRequest* request,
      inference::RepositoryIndexResponse* response) override {
    return Answer(GrpcRoute::kRepositoryIndex, context, [&] {
      DescribeIndex(*parts_.repository, request->ready(), response);
      return OkStatus();
    });
  }

  ServerUnaryReactor* RepositoryModelLoad(
      CallbackServerContext* context,
      const inference::RepositoryModelLoadRequest* request,
      inference::RepositoryModelLoadResponse*) override {
    return AnswerLater(GrpcRoute::kRepositoryModelLoad, context,
                       request->model_name(), [&](Repository::Done done) {
                         StartLoad(parts_.repository, *request,
                                   std::move(done));
                       });
  }

  ServerUnaryReactor* RepositoryModelUnload(
      CallbackServerContext* context,
      const inference::RepositoryModelUnloadRequest* request,
      inference::RepositoryModelUnloadResponse*) override {
    return AnswerLater(GrpcRoute::kRepositoryModelUnload, context,
                       request->model_name(), [&](Repository::Done done) {
                         StartUnload(parts_.repository, *request,
                                     std::move(done));
                       });
  }

  ServerUnaryReactor* SystemSharedMemoryStatus(
      CallbackServerContext* context,
      const inference::SystemSharedMemoryStatusRequest* request,
      inference::SystemSharedMemoryStatusResponse* response) override {
    return Answer(GrpcRoute::kSharedMemory, context, [&] {
      return DescribeRegions(*request, parts_.state->regions, response);
    });
  }

  ServerUnaryReactor* SystemSharedMemoryRegister(
      CallbackServerContext* context,
      const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse*) override {
    return Answer(GrpcRoute::kSharedMemory, context, [&] {
      return RegisterRegion(*request, parts_.state->regions);
    });
  }

  ServerUnaryReactor* SystemSharedMemoryUnregister(
      CallbackServerContext* context,
      const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse*) override {
    return Answer(GrpcRoute::kSharedMemory, context, [&] {
      parts_.state->regions.Unregister(request->name());
      return OkStatus();
    });
  }

  // There is no CUDA memory: none is registered, and none can be.
  ServerUnaryReactor* CudaSharedMemoryStatus(
      CallbackServerContext* context,
      const inference::CudaSharedMemoryStatusRequest*,
      inference::CudaSharedMemoryStatusResponse*) override {
    return Answer(GrpcRoute::kSharedMemory, context, [] { return OkStatus(); });
  }

  ServerUnaryReactor* CudaSharedMemoryRegister(
      CallbackServerContext* context,
      const inference::CudaSharedMemoryRegisterRequest*,
      inference::CudaSharedMemoryRegisterResponse*) override {
    return Answer(GrpcRoute::kSharedMemory, context, [] {
      return InvalidArgument(
          "CUDA shared memory cannot be registered: this server computes on "
          "CPUs; use system shared memory");
    });
  }

  ServerUnaryReactor* CudaSharedMemoryUnregister(
      CallbackServerContext* context,
      const inference::CudaSharedMemoryUnregisterRequest*,
      inference::CudaSharedMemoryUnregisterResponse*) override {
    return Answer(GrpcRoute::kSharedMemory, context, [] { return OkStatus(); });
  }

  ServerUnaryReactor* TraceSetting(
      CallbackServerContext* context,
      const inference::TraceSettingRequest* request,
      inference::TraceSettingResponse* response) override {
    return Answer(GrpcRoute::kTraceSetting, context,
                  !request->settings().empty(),
                  [&] { return ChangeTraceSettings(*request, response); });
  }

  ServerUnaryReactor* LogSettings(
      CallbackServerContext* context,
      const inference::LogSettingsRequest* request,
      inference::LogSettingsResponse* response) override {
    return Answer(
        GrpcRoute::kLogSettings, context, !request->settings().empty(), [&] {
          return ChangeLogSettings(*request, parts_.state->log, response);
        });
  }

  ServerUnaryReactor* ModelInfer(
      CallbackServerContext* context,
      const inference::ModelInferRequest* request,
      inference::ModelInferResponse* response) override {
    CallerPtr caller;
    StatusOr<CallInfo> info =
        reader_->Admit(*context, GrpcRoute::kModelInfer, &caller);
    if (info.ok()) {
      if (Status permitted = TakePermit(*info); !permitted.ok()) {
        info = std::move(permitted);
      }
    }
    if (!info.ok()) {
      return FinishWith(GrpcRoute::kModelInfer, context, info.status());
    }
    return StartUnaryInfer(context, parts_, *std::move(info), request,
                           response);
  }

  ::grpc::ServerBidiReactor<inference::ModelInferRequest,
                            inference::ModelStreamInferResponse>*
  ModelStreamInfer(CallbackServerContext* context) override {
    CallerPtr caller;
    StatusOr<CallInfo> info =
        reader_->Admit(*context, GrpcRoute::kModelStreamInfer, &caller);
    if (!info.ok()) {
      parts_.recorder->Count(GrpcRoute::kModelStreamInfer, info.status(),
                             context->peer());
      return new RefusedStream(info.status());  // deletes itself when done
    }
    return StartStreamInfer(parts_, *std::move(info), streams_);
  }

 private:
  template <typename Work>
  ServerUnaryReactor* Answer(GrpcRoute route, CallbackServerContext* context,
                             Work work) {
    return Answer(route, context, /*changes=*/false, std::move(work));
  }

  // `changes`: the call is written to the audit log.
  template <typename Work>
  ServerUnaryReactor* Answer(GrpcRoute route, CallbackServerContext* context,
                             bool changes, Work work) {
    CallerPtr caller;
    const StatusOr<CallInfo> info = reader_->Admit(*context, route, &caller);
    const Status status = info.ok() ? work() : info.status();
    if (changes) {
      WriteAudit({route, std::move(caller), context->peer(), "",
                  info.ok() ? info->request_id : ""},
                 status);
    }
    return FinishWith(route, context, status);
  }

  // The call ends when `start`'s argument is called, on any thread.
  template <typename Start>
  ServerUnaryReactor* AnswerLater(GrpcRoute route,
                                  CallbackServerContext* context,
                                  const std::string& model, Start start) {
    Audited audited{route, nullptr, context->peer(), model, ""};
    const StatusOr<CallInfo> info =
        reader_->Admit(*context, route, &audited.caller);
    if (!info.ok()) {
      WriteAudit(audited, info.status());
      return FinishWith(route, context, info.status());
    }
    audited.request_id = info->request_id;
    ServerUnaryReactor* reactor = context->DefaultReactor();
    // Loads end before the server goes, so `this` is safe.
    start([this, reactor, audited](const Status& status) {
      parts_.recorder->Count(audited.route, status, audited.peer);
      WriteAudit(audited, status);
      reactor->Finish(ToGrpc(status));
    });
    return reactor;
  }

  // A call as the audit log writes it.
  struct Audited {
    GrpcRoute route;
    CallerPtr caller;
    std::string peer;
    std::string model;
    std::string request_id;  // empty where the call was refused
  };

  void WriteAudit(const Audited& call, const Status& status) const {
    if (parts_.audit == nullptr) return;
    parts_.audit->Write({.caller = call.caller.get(),
                         .peer = call.peer,
                         .action = GrpcRouteName(call.route),
                         .model = call.model,
                         .result = StatusCodeName(status.code()),
                         .request_id = call.request_id,
                         .error = status.message()});
  }

  ServerUnaryReactor* FinishWith(GrpcRoute route,
                                 CallbackServerContext* context,
                                 const Status& status) {
    parts_.recorder->Count(route, status, context->peer());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  const InferParts parts_;
  CallReader* const reader_;
  InferStreams* const streams_;
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeOipService(const InferParts& parts,
                                                CallReader* reader,
                                                InferStreams* streams) {
  return std::make_unique<OipService>(parts, reader, streams);
}

}  // namespace millrace::server
