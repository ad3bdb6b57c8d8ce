// One object is gRPC's reactor and the handler's sink. It is shared because its
// two users end in either order of their last touches: gRPC's hold ends with
// OnDone, which comes only after Finish, and the sink's with OnEnd.
//
// gRPC calls OnDone of a reactor of ours on a thread of its executor, which it
// has to wake for that. A call that has ended when its method returns is
// therefore finished by gRPC's own reactor, whose OnDone needs no thread.
#include "server/grpc/infer_unary.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "config/base/out_of_memory.h"
#include "handlers/place_in_time.h"
#include "open_inference_grpc.pb.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/task_codec.h"
#include "server/grpc/tensor_codec.h"
#include "server/lifecycle/takes_parts.h"

namespace millrace::server {
namespace {

constexpr size_t kShortRequestBytes = 8 << 10;

class UnaryInfer final : public ::grpc::ServerUnaryReactor,
                         public handlers::GenerateSink,
                         public std::enable_shared_from_this<UnaryInfer> {
 public:
  UnaryInfer(const InferParts& parts, CallInfo info,
             const inference::ModelInferRequest* request,
             inference::ModelInferResponse* response)
      : parts_(parts),
        info_(std::move(info)),
        request_(request),
        response_(response),
        trace_(std::make_shared<Trace>()) {
    trace_->request_id = info_.request_id;
    trace_->context = info_.trace;
    trace_->Stamp(Stage::kAccepted, parts_.clock->Now());
  }

  // What the method returns.
  ::grpc::ServerUnaryReactor* Begin(::grpc::CallbackServerContext* context) {
    self_ = shared_from_this();
    is_beginning_ = true;
    Start();
    is_beginning_ = false;
    if (!ended_here_.has_value()) return this;
    ::grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(*ended_here_);
    self_.reset();
    return reactor;
  }

  // ---- handler ----
  void OnAccepted(const handlers::Usage&) override {}
  void OnDelta(handlers::OutputDelta chunk) override { text_ += chunk.text; }
  void OnEnd(handlers::GenerateEnd end) override {
    Status status = end.status;
    if (status.ok()) {
      BeginResponse(*request_, version_, response_);
      AddTextOutput(text_, raw_, response_);
      SetFinal(true, response_);
      AddUsage(end, response_);
    }
    End(std::move(status), end.usage);
  }

  // ---- gRPC ----
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { self_.reset(); }

 private:
  void Start() {
    // Read in less time than another thread takes to wake up; but a task reads
    // its parts before its handler returns: pictures are decoded.
    if (request_->ByteSizeLong() <= kShortRequestBytes &&
        !AsksTask(*request_) && !NamesSharedMemory()) {
      return Run();
    }
    auto self = self_;
    if (!parts_.pool->TryPost([self] { self->Run(); })) End(PoolIsFull(), {});
  }

  // Regions may be large.
  bool NamesSharedMemory() const {
    return std::any_of(
        request_->inputs().begin(), request_->inputs().end(),
        [](const auto& input) {
          return input.parameters().contains("shared_memory_region");
        });
  }

  void Run() {
    Status status = NoThrow([&] { return TryRun(); });
    if (!status.ok()) End(std::move(status), {});
  }

  Status TryRun() {
    ASSIGN_OR_RETURN(ModelHandle model, BorrowFor(info_, *parts_.repository,
                                                  request_->model_name(),
                                                  request_->model_version()));
    if (AsksTask(*request_) && TakesParts(*model)) {
      return RunTask(std::move(model));
    }
    if (model->kind() == ModelKind::kTensors) return Compute(std::move(model));
    ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
    ASSIGN_OR_RETURN(InferCall call, DecodeInfer(*request_));
    if (call.stream) {
      return InvalidArgument(
                 "stream is true but ModelInfer gives one answer; call "
                 "ModelStreamInfer or leave 'stream' out")
          .At("stream");
    }
    trace_->Stamp(Stage::kParsed, parts_.clock->Now());
    raw_ = call.raw;
    version_ = model->version();
    model_.emplace(std::move(model));
    handler->Start(MakeRequest(call, info_, trace_, *parts_.clock),
                   shared_from_this(), stop_.get_token());
    return OkStatus();
  }

  Status Compute(ModelHandle model) {
    ASSIGN_OR_RETURN(handlers::TensorHandler * handler, model->ForTensors());
    RETURN_IF_ERROR(handlers::IsInTime(*handler, info_.deadline));
    ASSIGN_OR_RETURN(TensorCall call,
                     DecodeTensors(*request_, parts_.state->regions));
    trace_->Stamp(Stage::kParsed, parts_.clock->Now());
    raw_ = call.raw;
    version_ = model->version();
    call.request.deadline = info_.deadline;
    call.request.priority = PriorityOf(info_, call.request.priority);
    call.request.trace = trace_;
    call.request.short_done = true;
    // The last one to hold a model unloads it, so it is let go of neither
    // within Start nor on the model's own thread.
    const auto held =
        std::make_shared<std::optional<ModelHandle>>(std::move(model));
    handlers::StartInSequence(
        handler, std::move(call.sequence), std::move(call.request),
        [self = shared_from_this(), held, starter = std::this_thread::get_id(),
         batch_statistics = call.batch_statistics,
         forms =
             std::move(call.forms)](StatusOr<handlers::TensorResponse> answer) {
          if (std::this_thread::get_id() == starter) {
            return self->EndTensors(answer, batch_statistics, forms);
          }
          // Shared because tasks of the pool can be copied.
          const auto kept =
              std::make_shared<StatusOr<handlers::TensorResponse>>(
                  std::move(answer));
          self->parts_.pool->Continue(
              [self, held, kept, batch_statistics, forms] {
                held->reset();
                self->EndTensors(*kept, batch_statistics, forms);
              });
        },
        stop_.get_token());
    return OkStatus();
  }

  void EndTensors(const StatusOr<handlers::TensorResponse>& answer,
                  bool batch_statistics, const OutputForms& forms) {
    Status status = answer.status();
    if (answer.ok()) {
      BeginResponse(*request_, version_, response_);
      if (batch_statistics) EncodeBatch(answer->batch, response_);
      status = CatchOutOfMemory([&] {
        return EncodeTensors(*answer, raw_, forms, parts_.state->regions,
                             response_);
      });
    }
    End(std::move(status), {});
  }

  Status RunTask(ModelHandle model) {
    ASSIGN_OR_RETURN(handlers::TaskHandler * handler, model->ForTask());
    ASSIGN_OR_RETURN(TaskCall call, DecodeTask(*request_));
    trace_->Stamp(Stage::kParsed, parts_.clock->Now());
    version_ = model->version();
    model_.emplace(std::move(model));
    call.request.deadline = info_.deadline;
    call.request.priority = PriorityOf(info_, call.request.priority);
    call.request.trace = trace_;
    handler->Start(
        std::move(call.request),
        [self = shared_from_this(),
         raw = call.raw](const StatusOr<handlers::TaskResponse>& answer) {
          self->End(CatchOutOfMemory([&]() -> Status {
                      RETURN_IF_ERROR(answer.status());
                      BeginResponse(*self->request_, self->version_,
                                    self->response_);
                      EncodeTask(*answer, raw, self->response_);
                      return OkStatus();
                    }),
                    {});
        },
        stop_.get_token());
    return OkStatus();
  }

  // Called once. Nothing of gRPC's is touched after Finish.
  void End(Status status, const handlers::Usage& usage) {
    if (stop_.stop_requested()) status = WhyCancelled(info_, *parts_.clock);
    if (info_.permit != nullptr) {
      info_.permit->Spend(usage.prompt_tokens + usage.completion_tokens);
      info_.permit.reset();  // who has the answer may send the next request
    }
    const auto now = parts_.clock->Now();
    trace_->Stamp(Stage::kFirstByte, now);
    trace_->Stamp(Stage::kEnded, now);
    parts_.recorder->Record({.route = GrpcRoute::kModelInfer,
                             .status = status,
                             .model = request_->model_name(),
                             .peer = info_.peer,
                             .caller = info_.caller,
                             .trace = trace_.get(),
                             .usage = usage});
    model_.reset();
    if (std::this_thread::get_id() == method_thread_ && is_beginning_) {
      ended_here_ = ToGrpc(status);
    } else {
      Finish(ToGrpc(status));
    }
  }

  const InferParts parts_;
  CallInfo info_;
  const inference::ModelInferRequest* const request_;
  inference::ModelInferResponse* const response_;
  const std::shared_ptr<Trace> trace_;
  std::stop_source stop_;
  std::shared_ptr<UnaryInfer> self_;  // gRPC's hold, until OnDone
  const std::thread::id method_thread_ = std::this_thread::get_id();

  // Thread of the method only.
  bool is_beginning_ = false;
  std::optional<::grpc::Status> ended_here_;

  // One thread at a time.
  std::optional<ModelHandle> model_;
  std::string version_;
  bool raw_ = true;
  std::string text_;
};

}  // namespace

::grpc::ServerUnaryReactor* StartUnaryInfer(
    ::grpc::CallbackServerContext* context, const InferParts& parts,
    CallInfo info, const inference::ModelInferRequest* request,
    inference::ModelInferResponse* response) {
  const auto call =
      std::make_shared<UnaryInfer>(parts, std::move(info), request, response);
  return call->Begin(context);
}

}  // namespace millrace::server
