// Each call is one object: gRPC's reactor and the holder of what it needs. Its
// two users end in either order of their last touches: gRPC with OnDone, the
// prediction with its callback.
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/torchserve_services.h"
#include "server/torchserve/predict.h"
#include "torchserve_inference.grpc.pb.h"

namespace millrace::server {
namespace {

namespace proto = org::pytorch::serve::grpc::inference;

using ::grpc::CallbackServerContext;
using ::grpc::ServerUnaryReactor;
using proto::PredictionResponse;
using proto::PredictionsRequest;
using torchserve::PredictionBody;

struct Parts {
  InferParts infer;
  const torchserve::Registry* registry;
};

// One request, until its one ending.
class Call {
 public:
  Call(const Parts& parts, const CallInfo& info, GrpcRoute route)
      : parts_(parts),
        info_(info),
        route_(route),
        trace_(std::make_shared<Trace>()) {
    trace_->request_id = info_.request_id;
    trace_->context = info_.trace;
    trace_->Stamp(Stage::kAccepted, parts_.infer.clock->Now());
  }

  using OnPart = std::function<void(std::string)>;

  // On a thread of the pool. `done` is called once, maybe before this returns.
  // `on_part` takes parts of the answer before it; null: there are none.
  void Start(const PredictionsRequest& request, std::stop_token stop,
             torchserve::PredictionDone done, OnPart on_part = {}) {
    const Status status = NoThrow([&] {
      return TryStart(request, std::move(stop), done, std::move(on_part));
    });
    if (!status.ok()) done(status);
  }

  // Counts and logs it.
  void Record(const std::string& model, const Status& status) {
    if (info_.permit != nullptr) {
      info_.permit->Spend(0);
      info_.permit.reset();  // who has the answer may send the next request
    }
    const auto now = parts_.infer.clock->Now();
    trace_->Stamp(Stage::kFirstByte, now);
    trace_->Stamp(Stage::kEnded, now);
    parts_.infer.recorder->Record({.route = route_,
                                   .status = status,
                                   .model = model,
                                   .peer = info_.peer,
                                   .caller = info_.caller,
                                   .trace = trace_.get(),
                                   .usage = {}});
  }

  const CallInfo& info() const { return info_; }

 private:
  Status TryStart(const PredictionsRequest& request, std::stop_token stop,
                  const torchserve::PredictionDone& done, OnPart on_part) {
    if (request.model_name().empty()) {
      return InvalidArgument("Parameter model_name is required.")
          .At("model_name");
    }
    ASSIGN_OR_RETURN(
        torchserve::Prediction prediction,
        torchserve::FindPrediction(
            *parts_.registry, request.model_name(), request.model_version(),
            [&](const std::string& name, const std::string& version) {
              return BorrowFor(info_, *parts_.infer.repository, name, version);
            }));
    std::vector<handlers::TaskPart> inputs;
    std::string start, end;
    for (const auto& [name, bytes] : request.input()) {
      if (name == torchserve::kSequenceStart) {
        start = bytes;
      } else if (name == torchserve::kSequenceEnd) {
        end = bytes;
      } else {
        inputs.push_back({.name = name, .bytes = bytes});
      }
    }
    return torchserve::StartPrediction(
        std::move(prediction), std::move(inputs),
        {.clock = parts_.infer.clock,
         .deadline = info_.deadline,
         .priority = PriorityOf(info_, 0),
         .trace = trace_,
         .stop = std::move(stop),
         .on_part = std::move(on_part),
         .sequence = torchserve::PlaceIn(request.sequenceid(), start, end)},
        done);
  }

  const Parts parts_;
  CallInfo info_;
  const GrpcRoute route_;
  const std::shared_ptr<Trace> trace_;
};

// A call that its client left ends as such, whatever else went wrong.
Status EndOf(const StatusOr<PredictionBody>& body, const std::stop_source& stop,
             const CallInfo& info, const Clock& clock) {
  return stop.stop_requested() ? WhyCancelled(info, clock) : body.status();
}

class UnaryPrediction final
    : public ServerUnaryReactor,
      public std::enable_shared_from_this<UnaryPrediction> {
 public:
  UnaryPrediction(const Parts& parts, CallInfo info,
                  const PredictionsRequest* request,
                  PredictionResponse* response)
      : parts_(parts),
        request_(*request),
        response_(*response),
        call_(parts, std::move(info), GrpcRoute::kTorchServePredict) {}

  void Begin() {
    self_ = shared_from_this();
    auto self = self_;
    const bool posted = parts_.infer.pool->TryPost([self] {
      self->call_.Start(
          self->request_, self->stop_.get_token(),
          [self](const StatusOr<PredictionBody>& body) { self->End(body); });
    });
    if (!posted) End(PoolIsFull());
  }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { self_.reset(); }

 private:
  // Nothing of gRPC's is touched after Finish.
  void End(const StatusOr<PredictionBody>& body) {
    const Status status = EndOf(body, stop_, call_.info(), *parts_.infer.clock);
    call_.Record(request_.model_name(), status);
    if (status.ok()) response_.set_prediction(body->text);
    Finish(ToTorchServeGrpc(status));
  }

  const Parts parts_;
  const PredictionsRequest& request_;  // gRPC's, until Finish
  PredictionResponse& response_;
  Call call_;
  std::stop_source stop_;
  std::shared_ptr<UnaryPrediction> self_;  // gRPC's hold, until OnDone
};

// StreamPredictions: a message for each part of the answer; graphs have one.
class StreamedPrediction final
    : public ::grpc::ServerWriteReactor<PredictionResponse>,
      public std::enable_shared_from_this<StreamedPrediction> {
 public:
  StreamedPrediction(const Parts& parts, CallInfo info,
                     const PredictionsRequest* request)
      : parts_(parts),
        request_(*request),
        call_(parts, std::move(info), GrpcRoute::kTorchServePredict) {}

  void Begin() {
    self_ = shared_from_this();
    auto self = self_;
    const bool posted = parts_.infer.pool->TryPost([self] {
      self->call_.Start(
          self->request_, self->stop_.get_token(),
          [self](const StatusOr<PredictionBody>& body) { self->End(body); },
          [self](std::string part) { self->Add(std::move(part)); });
    });
    if (!posted) End(PoolIsFull());
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mu_);
      is_writing_ = false;
      if (!ok) waiting_.clear();
    }
    WriteNext();
  }
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { self_.reset(); }

 private:
  void Add(std::string text) {
    {
      MutexLock lock(mu_);
      waiting_.push_back(std::move(text));
    }
    WriteNext();
  }

  void End(const StatusOr<PredictionBody>& body) {
    const Status status = EndOf(body, stop_, call_.info(), *parts_.infer.clock);
    call_.Record(request_.model_name(), status);
    {
      MutexLock lock(mu_);
      if (status.ok()) waiting_.push_back(body->text);
      end_ = status;
    }
    WriteNext();
  }

  // One message at a time; the end behind the last one. gRPC may call back from
  // inside StartWrite, so the lock is not held there.
  void WriteNext() {
    std::optional<Status> end;
    {
      MutexLock lock(mu_);
      if (is_writing_ || ended_) return;
      if (!waiting_.empty()) {
        response_.set_prediction(std::move(waiting_.front()));
        waiting_.pop_front();
        is_writing_ = true;
      } else if (end_.has_value()) {
        ended_ = true;
        end = end_;
      } else {
        return;
      }
    }
    if (end.has_value()) return Finish(ToTorchServeGrpc(*end));
    StartWrite(&response_);
  }

  const Parts parts_;
  const PredictionsRequest& request_;  // gRPC's, until Finish
  PredictionResponse response_;        // while it is written
  Call call_;
  std::stop_source stop_;
  Mutex mu_;
  std::deque<std::string> waiting_ GUARDED_BY(mu_);  // parts are bounded
  bool is_writing_ GUARDED_BY(mu_) = false;
  std::optional<Status> end_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false;
  std::shared_ptr<StreamedPrediction> self_;  // gRPC's hold, until OnDone
};

// StreamPredictions2: one request at a time, so that answers stand in the order
// of the requests. A message is read, then computed, then its answer is
// written. Only while one is being read may Drain end the stream; `ended_` is
// set by who does.
class PredictionStream final
    : public ::grpc::ServerBidiReactor<PredictionsRequest, PredictionResponse>,
      public InferStreams::Stream,
      public std::enable_shared_from_this<PredictionStream> {
 public:
  PredictionStream(const Parts& parts, CallInfo info)
      : parts_(parts), info_(std::move(info)) {}

  void Begin(InferStreams* streams) {
    self_ = shared_from_this();
    streams->Add(self_);
    Read();
  }

  void OnReadDone(bool ok) override {
    {
      MutexLock lock(mu_);
      ++reads_done_;
      is_reading_ = false;
      if (ended_) return;
      ended_ = !ok;
    }
    if (!ok) return Finish(::grpc::Status::OK);
    auto self = shared_from_this();
    if (parts_.infer.pool->TryPost([self] { self->Compute(); })) return;
    Answer(PoolIsFull());
  }

  void OnWriteDone(bool ok) override {
    if (ok) return Read();
    Finish(ToTorchServeGrpc(Cancelled("the client left the stream")));
  }

  void Drain() override {
    {
      MutexLock lock(mu_);
      draining_ = true;
      if (!is_reading_ || ended_) return;  // the next Read ends it
      ended_ = true;
    }
    Finish(ToTorchServeGrpc(Draining()));
  }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { self_.reset(); }

 private:
  static Status Draining() {
    return Unavailable("the server is shutting down; open a stream elsewhere");
  }

  // gRPC may call back from inside StartRead, so the lock is not held there:
  // that a read is under way is noted once StartRead has returned.
  void Read() {
    int64_t number = 0;
    {
      MutexLock lock(mu_);
      number = reads_done_ + 1;
    }
    StartRead(&request_);
    {
      MutexLock lock(mu_);
      if (reads_done_ >= number || ended_) return;
      is_reading_ = true;
      if (!draining_) return;
      ended_ = true;
    }
    Finish(ToTorchServeGrpc(Draining()));
  }

  void Compute() {
    // Each message is a request to the limits of its tenant.
    CallInfo info = info_;
    Status allowed = info.caller == nullptr
                         ? OkStatus()
                         : parts_.infer.auth->CheckStillValid(*info.caller);
    if (allowed.ok()) allowed = TakePermit(info);
    call_ = std::make_shared<Call>(parts_, std::move(info),
                                   GrpcRoute::kTorchServePredict);
    if (!allowed.ok()) return Answer(allowed);
    if (request_.sequenceid().empty()) {
      return Answer(InvalidArgument("Parameter sequenceId is required.")
                        .At("sequenceId"));
    }
    auto self = shared_from_this();
    call_->Start(
        request_, stop_.get_token(),
        [self](const StatusOr<PredictionBody>& body) { self->Answer(body); });
  }

  void Answer(const StatusOr<PredictionBody>& body) {
    if (call_ != nullptr) {
      call_->Record(request_.model_name(),
                    EndOf(body, stop_, info_, *parts_.infer.clock));
    }
    call_.reset();
    response_.Clear();
    response_.set_sequenceid(request_.sequenceid());
    if (body.ok()) {
      response_.set_prediction(body->text);
    } else {
      const ::grpc::Status status = ToTorchServeGrpc(body.status());
      response_.mutable_status()->set_code(status.error_code());
      response_.mutable_status()->set_message(status.error_message());
    }
    StartWrite(&response_);
  }

  const Parts parts_;
  const CallInfo info_;
  std::stop_source stop_;
  std::shared_ptr<PredictionStream> self_;  // gRPC's hold, until OnDone

  // Of the state that has them, see above.
  PredictionsRequest request_;
  PredictionResponse response_;
  std::shared_ptr<Call> call_;

  Mutex mu_;
  int64_t reads_done_ GUARDED_BY(mu_) = 0;
  bool is_reading_ GUARDED_BY(mu_) = false;
  bool draining_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
};

// A stream that is refused before its first message.
template <typename Reactor>
class Refused final : public Reactor {
 public:
  explicit Refused(const Status& status) {
    this->Finish(ToTorchServeGrpc(status));
  }
  void OnDone() override { delete this; }
};

class InferenceService final
    : public proto::InferenceAPIsService::CallbackService {
 public:
  InferenceService(const Parts& parts, CallReader* reader,
                   InferStreams* streams)
      : parts_(parts), reader_(reader), streams_(streams) {}

  ServerUnaryReactor* Ping(CallbackServerContext* context,
                           const google::protobuf::Empty*,
                           proto::TorchServeHealthResponse* response) override {
    const bool healthy =
        torchserve::IsHealthy(*parts_.registry, *parts_.infer.repository);
    response->set_health(healthy ? "{\"status\": \"Healthy\"}"
                                 : "{\"status\": \"Unhealthy\"}");
    parts_.infer.recorder->Count(GrpcRoute::kTorchServePing, OkStatus(),
                                 context->peer());
    ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(::grpc::Status::OK);
    return reactor;
  }

  ServerUnaryReactor* Predictions(CallbackServerContext* context,
                                  const PredictionsRequest* request,
                                  PredictionResponse* response) override {
    StatusOr<CallInfo> info = Admit(*context);
    if (!info.ok()) {
      ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(ToTorchServeGrpc(info.status()));
      return reactor;
    }
    auto call = std::make_shared<UnaryPrediction>(parts_, *std::move(info),
                                                  request, response);
    call->Begin();
    return call.get();
  }

  ::grpc::ServerWriteReactor<PredictionResponse>* StreamPredictions(
      CallbackServerContext* context,
      const PredictionsRequest* request) override {
    using Reactor = ::grpc::ServerWriteReactor<PredictionResponse>;
    StatusOr<CallInfo> info = Admit(*context);
    if (!info.ok()) return new Refused<Reactor>(info.status());
    auto call =
        std::make_shared<StreamedPrediction>(parts_, *std::move(info), request);
    call->Begin();
    return call.get();
  }

  ::grpc::ServerBidiReactor<PredictionsRequest, PredictionResponse>*
  StreamPredictions2(CallbackServerContext* context) override {
    using Reactor =
        ::grpc::ServerBidiReactor<PredictionsRequest, PredictionResponse>;
    StatusOr<CallInfo> info = Admit(*context, false);
    if (!info.ok()) return new Refused<Reactor>(info.status());
    auto stream = std::make_shared<PredictionStream>(parts_, *std::move(info));
    stream->Begin(streams_);
    return stream.get();
  }

 private:
  // A refusal is counted here. Messages of a stream take their own permits.
  StatusOr<CallInfo> Admit(CallbackServerContext& context,
                           bool takes_permit = true) {
    CallerPtr caller;
    StatusOr<CallInfo> info =
        reader_->Admit(context, GrpcRoute::kTorchServePredict, &caller);
    if (info.ok() && takes_permit) {
      if (Status permitted = TakePermit(*info); !permitted.ok()) {
        info = std::move(permitted);
      }
    }
    if (!info.ok()) {
      parts_.infer.recorder->Count(GrpcRoute::kTorchServePredict, info.status(),
                                   context.peer());
    }
    return info;
  }

  const Parts parts_;
  CallReader* const reader_;
  InferStreams* const streams_;
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeTorchServeInference(
    const InferParts& parts, const torchserve::Registry* registry,
    CallReader* reader, InferStreams* streams) {
  return std::make_unique<InferenceService>(Parts{parts, registry}, reader,
                                            streams);
}

}  // namespace millrace::server
