// Calls run on the handler pool, for archives are unpacked; changes go to the
// audit log.
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/grpc/grpc_status.h"
#include "server/grpc/torchserve_services.h"
#include "server/torchserve/description.h"
#include "torchserve_management.grpc.pb.h"

namespace millrace::server {
namespace {

namespace proto = org::pytorch::serve::grpc::management;

using ::grpc::CallbackServerContext;
using ::grpc::ServerUnaryReactor;
using proto::ManagementResponse;
using torchserve::Change;
using torchserve::Management;

// A number that was given.
std::optional<int64_t> Given(int32_t value) {
  return value == 0 ? std::nullopt : std::optional<int64_t>(value);
}

class ManagementService final
    : public proto::ManagementAPIsService::CallbackService {
 public:
  ManagementService(const InferParts& parts,
                    const torchserve::Registry* registry,
                    Management* management, CallReader* reader)
      : parts_(parts),
        registry_(*registry),
        management_(*management),
        reader_(reader) {}

  ServerUnaryReactor* DescribeModel(CallbackServerContext* context,
                                    const proto::DescribeModelRequest* request,
                                    ManagementResponse* response) override {
    return Answer(
        context, request->model_name(), response, /*changes=*/false,
        [this, request](const Finish& finish) { Describe(*request, finish); });
  }

  ServerUnaryReactor* ListModels(CallbackServerContext* context,
                                 const proto::ListModelsRequest* request,
                                 ManagementResponse* response) override {
    return Answer(context, "", response, /*changes=*/false,
                  [this, request](const Finish& finish) {
                    Tell(management_.List(Given(request->limit()).value_or(-1),
                                          request->next_page_token(),
                                          [&](const std::string& name) {
                                            return finish.MayUse(name).ok();
                                          }),
                         finish);
                  });
  }

  ServerUnaryReactor* RegisterModel(CallbackServerContext* context,
                                    const proto::RegisterModelRequest* request,
                                    ManagementResponse* response) override {
    return Answer(
        context, request->model_name(), response, /*changes=*/true,
        [this, request](const Finish& finish) { Register(*request, finish); });
  }

  ServerUnaryReactor* ScaleWorker(CallbackServerContext* context,
                                  const proto::ScaleWorkerRequest* request,
                                  ManagementResponse* response) override {
    return Answer(
        context, request->model_name(), response, /*changes=*/true,
        [this, request](const Finish& finish) {
          const int64_t least = Given(request->min_worker()).value_or(1);
          management_.Scale(request->model_name(), request->model_version(),
                            least, Given(request->max_worker()).value_or(least),
                            request->synchronous(), finish);
        });
  }

  ServerUnaryReactor* SetDefault(CallbackServerContext* context,
                                 const proto::SetDefaultRequest* request,
                                 ManagementResponse* response) override {
    return Answer(context, request->model_name(), response, /*changes=*/true,
                  [this, request](const Finish& finish) {
                    finish(management_.SetDefault(request->model_name(),
                                                  request->model_version()));
                  });
  }

  ServerUnaryReactor* UnregisterModel(
      CallbackServerContext* context,
      const proto::UnregisterModelRequest* request,
      ManagementResponse* response) override {
    return Answer(context, request->model_name(), response, /*changes=*/true,
                  [this, request](const Finish& finish) {
                    management_.Unregister(request->model_name(),
                                           request->model_version(), finish);
                  });
  }

 private:
  // Ends the call with what a change came to. Copyable; called once.
  struct Finish {
    const ManagementService* service;
    ServerUnaryReactor* reactor;
    ManagementResponse* response;
    std::string model;
    bool changes;
    CallInfo info = {};

    Status MayUse(const std::string& name) const {
      return info.caller == nullptr ? OkStatus()
                                    : info.caller->tenant->MayUse(name);
    }
    void operator()(const StatusOr<Change>& change) const {
      const Status status = change.status();
      if (status.ok()) response->set_msg(change->text);
      service->parts_.recorder->Count(GrpcRoute::kTorchServeManage, status,
                                      info.peer);
      if (changes && service->parts_.audit != nullptr) {
        service->parts_.audit->Write(
            {.caller = info.caller.get(),
             .peer = info.peer,
             .action = GrpcRouteName(GrpcRoute::kTorchServeManage),
             .model = model,
             .result = StatusCodeName(status.code()),
             .request_id = info.request_id,
             .error = status.message()});
      }
      reactor->Finish(ToTorchServeGrpc(status));
    }
  };

  static void Tell(StatusOr<std::string> text, const Finish& finish) {
    finish(text.ok() ? StatusOr<Change>(Change{.text = *std::move(text)})
                     : StatusOr<Change>(text.status()));
  }

  // A handler in Python may be asked, until the call's deadline.
  void Describe(const proto::DescribeModelRequest& request,
                const Finish& finish) {
    auto trace = std::make_shared<Trace>();
    trace->request_id = finish.info.request_id;
    trace->context = finish.info.trace;
    trace->Stamp(Stage::kAccepted, parts_.clock->Now());
    const Status started = torchserve::StartDescription(
        management_, registry_,
        {.name = request.model_name(),
         .version = request.model_version(),
         .customized = request.customized()},
        [&](const std::string& name, const std::string& version) {
          return BorrowFor(finish.info, *parts_.repository, name, version);
        },
        {.clock = parts_.clock,
         .deadline = finish.info.deadline,
         .trace = std::move(trace),
         .stop = {}},
        [finish](StatusOr<std::string> text) {
          Tell(std::move(text), finish);
        });
    if (!started.ok()) finish(started);
  }

  void Register(const proto::RegisterModelRequest& request,
                const Finish& finish) {
    if (request.url().empty()) {
      return finish(InvalidArgument("Parameter url is required.").At("url"));
    }
    if (!request.runtime().empty()) {
      if (Status known = torchserve::CheckRuntime(request.runtime());
          !known.ok()) {
        return finish(std::move(known));
      }
    }
    management_.Register(
        {.url = request.url(),
         .model_name = request.model_name(),
         .handler = request.handler(),
         .batch_size = Given(request.batch_size()),
         .max_batch_delay_ms = Given(request.max_batch_delay()),
         .initial_workers = Given(request.initial_workers()),
         .response_timeout_s = Given(request.response_timeout()),
         .sign_for_s3 = request.s3_sse_kms(),
         .may_use =
             [finish](const std::string& name) {
               return finish.MayUse(name).ok()
                          ? OkStatus()
                          : NotFound("Model not found: " + name);
             }},
        request.synchronous(), finish);
  }

  template <typename Work>
  ServerUnaryReactor* Answer(CallbackServerContext* context,
                             const std::string& model,
                             ManagementResponse* response, bool changes,
                             Work work) {
    Finish finish{.service = this,
                  .reactor = context->DefaultReactor(),
                  .response = response,
                  .model = model,
                  .changes = changes};
    CallerPtr caller;
    StatusOr<CallInfo> info =
        reader_->Admit(*context, GrpcRoute::kTorchServeManage, &caller);
    Status status = info.status();
    if (status.ok()) {
      finish.info = *std::move(info);
    } else {
      finish.info.peer = context->peer();
      finish.info.caller = std::move(caller);
    }
    // What a caller may not use, it does not see either.
    if (status.ok() && !model.empty() && !finish.MayUse(model).ok()) {
      status = NotFound("Model not found: " + model);
    }
    if (status.ok()) {
      const bool posted = parts_.pool->TryPost([finish, work] {
        const Status thrown = NoThrow([&] {
          work(finish);
          return OkStatus();
        });
        if (!thrown.ok()) finish(thrown);
      });
      if (posted) return finish.reactor;
      status = PoolIsFull();
    }
    finish(status);
    return finish.reactor;
  }

  const InferParts parts_;
  const torchserve::Registry& registry_;
  Management& management_;
  CallReader* const reader_;
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeTorchServeManagement(
    const InferParts& parts, const torchserve::Registry* registry,
    Management* management, CallReader* reader) {
  return std::make_unique<ManagementService>(parts, registry, management,
                                             reader);
}

}  // namespace millrace::server
