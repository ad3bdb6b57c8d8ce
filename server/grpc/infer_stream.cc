// One stream is a small machine behind one mutex:
//
//   read      outstanding, or a message is being taken in by a task of the pool
//             (which starts the next read itself, so a stream holds one
//             undecoded message at a time, however fast a client is), or put
//             off while kMaxOpen requests are open (a client that reads no
//             answers), or closed
//   open      requests not yet answered in full
//   ready     those of them with something to say, in turn; text that arrives
//             while another answer is being written joins the text that waits,
//             so a slow reader gets larger chunks and nothing grows per token
//   writing   an answer is being written
//   in_order  requests whose answers leave in the order of the requests, as
//             Triton's do: those of graphs, and those that no model takes
//
// What to do next is decided under the mutex and done outside it, because gRPC
// may call back from inside StartRead, StartWrite and Finish. Finish comes when
// the read side is closed (or waits, and the server drains), every request is
// settled and no other call into gRPC is under way: after Finish gRPC's side of
// the stream may be gone.
#include "server/grpc/infer_stream.h"

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "config/base/out_of_memory.h"
#include "open_inference_grpc.pb.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/tensor_codec.h"

namespace millrace::server {
namespace {

using Request = inference::ModelInferRequest;
using Response = inference::ModelStreamInferResponse;

class InferStream;

// One request of a stream. The fields under "stream's mutex" are what its
// answer has come to so far.
class StreamedCall final : public handlers::GenerateSink {
 public:
  // `context` is the call's; each request is a span of its own in that trace.
  StreamedCall(std::shared_ptr<InferStream> stream, std::string request_id,
               const TraceContext& context)
      : stream_(std::move(stream)), trace(std::make_shared<Trace>()) {
    trace->request_id = std::move(request_id);
    trace->context = context;
    if (context.valid()) trace->context.span_id = NewSpanId();
  }
  void OnAccepted(const handlers::Usage&) override {}
  void OnDelta(handlers::OutputDelta chunk) override;
  void OnEnd(handlers::GenerateEnd end) override;

 private:
  const std::shared_ptr<InferStream> stream_;

 public:
  const std::shared_ptr<Trace> trace;
  // Set while the request is taken in, constant after its handler started.
  Request head;  // name, version and id of the request only
  std::string version;
  bool stream = false;
  bool raw = true;
  bool empty_final_response = false;
  std::stop_source stop;

  // Guarded by the stream's mutex.
  std::optional<ModelHandle> model;
  Permit permit;
  bool ordered = true;                                   // stands in `in_order`
  std::string text;                                      // not yet written
  std::optional<inference::ModelInferResponse> tensors;  // of a graph
  bool queued = false;                                   // stands in `ready`
  std::optional<handlers::GenerateEnd> end;
};

class InferStream final : public ::grpc::ServerBidiReactor<Request, Response>,
                          public InferStreams::Stream,
                          public std::enable_shared_from_this<InferStream> {
 public:
  InferStream(const InferParts& parts, CallInfo info)
      : parts_(parts), info_(std::move(info)) {}

  void Begin() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  // ---- gRPC ----
  void OnReadDone(bool ok) override {
    if (!ok) {
      Apply([this] { read_ = Read::kClosed; });
      return;
    }
    auto call = std::make_shared<StreamedCall>(shared_from_this(), NextId(),
                                               info_.trace);
    call->trace->Stamp(Stage::kAccepted, parts_.clock->Now());
    call->head.set_model_name(request_.model_name());
    call->head.set_model_version(request_.model_version());
    call->head.set_id(request_.id());
    {
      MutexLock lock(mu_);
      if (finished_) return;
      read_ = Read::kTakingIn;
      open_.insert(call);
      in_order_.push_back(call.get());
      ++num_unsettled_;
      if (cancelled_) call->stop.request_stop();
    }
    auto self = shared_from_this();
    if (parts_.pool->TryPost([self, call] { self->TakeIn(call); })) return;
    EndCall(*call, EndedBy(PoolIsFull()));
    ReadNext();
  }

  void OnWriteDone(bool ok) override {
    Apply([this, ok] {
      writing_ = false;
      broken_ = broken_ || !ok;
    });
  }

  void OnCancel() override {
    std::vector<std::stop_source> stops;
    {
      MutexLock lock(mu_);
      cancelled_ = true;
      for (const auto& call : open_) stops.push_back(call->stop);
    }
    for (std::stop_source& stop : stops) stop.request_stop();
  }

  void OnDone() override { self_.reset(); }

  // ---- shutdown ----
  void Drain() override {
    Apply([this] { draining_ = true; });
  }

  // ---- handler ----
  void AddText(StreamedCall& call, std::string text) {
    Apply([&] {
      call.text += text;
      if (call.stream && !call.text.empty()) Queue(call);
    });
  }

  void EndCall(StreamedCall& call, handlers::GenerateEnd end) {
    Apply([&] {
      if (call.stop.stop_requested()) {
        end.status = WhyCancelled(info_, *parts_.clock);
      }
      call.end = std::move(end);
      if (!call.ordered) return Queue(call);
      QueueInOrder();
    });
  }

 private:
  // kFull: as many requests are open as a stream may have.
  enum class Read { kOutstanding, kTakingIn, kFull, kClosed };
  static constexpr size_t kMaxOpen = 1024;

  // Runs on the pool; the message is ours until the next read starts.
  void TakeIn(const std::shared_ptr<StreamedCall>& call) {
    Status status = NoThrow([&] { return TryTakeIn(call); });
    if (!status.ok()) {
      EndCall(*call, EndedBy(std::move(status)));
    }
    ReadNext();
  }

  Status TryTakeIn(const std::shared_ptr<StreamedCall>& call) {
    if (info_.caller != nullptr) {
      RETURN_IF_ERROR(parts_.auth->CheckStillValid(*info_.caller));
      ASSIGN_OR_RETURN(Permit permit, info_.caller->tenant->Admit());
      MutexLock lock(mu_);
      call->permit = std::move(permit);
    }
    ASSIGN_OR_RETURN(ModelHandle model,
                     BorrowFor(info_, *parts_.repository, request_.model_name(),
                               request_.model_version()));
    if (model->kind() == ModelKind::kTensors) {
      return Compute(call, std::move(model));
    }
    Apply([&] {  // its text goes out as it comes
      call->ordered = false;
      std::erase(in_order_, call.get());
      QueueInOrder();
    });
    ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
    ASSIGN_OR_RETURN(InferCall infer, DecodeInfer(request_));
    call->trace->Stamp(Stage::kParsed, parts_.clock->Now());
    call->version = model->version();
    call->stream = infer.stream;
    call->raw = infer.raw;
    call->empty_final_response = infer.empty_final_response;
    {
      MutexLock lock(mu_);
      call->model.emplace(std::move(model));
    }
    handler->Start(MakeRequest(infer, info_, call->trace, *parts_.clock), call,
                   call->stop.get_token());
    return OkStatus();
  }

  Status Compute(const std::shared_ptr<StreamedCall>& call, ModelHandle model) {
    ASSIGN_OR_RETURN(handlers::TensorHandler * handler, model->ForTensors());
    ASSIGN_OR_RETURN(TensorCall tensors,
                     DecodeTensors(request_, parts_.state->regions));
    call->trace->Stamp(Stage::kParsed, parts_.clock->Now());
    call->version = model->version();
    call->raw = tensors.raw;
    {
      MutexLock lock(mu_);
      call->model.emplace(std::move(model));
    }
    tensors.request.deadline = info_.deadline;
    tensors.request.priority = PriorityOf(info_, tensors.request.priority);
    tensors.request.trace = call->trace;
    handlers::StartInSequence(
        handler, std::move(tensors.sequence), std::move(tensors.request),
        [self = shared_from_this(), call,
         batch_statistics = tensors.batch_statistics,
         forms = std::move(tensors.forms)](
            const StatusOr<handlers::TensorResponse>& answer) {
          self->EndTensors(*call, answer, batch_statistics, forms);
        },
        call->stop.get_token());
    return OkStatus();
  }

  void EndTensors(StreamedCall& call,
                  const StatusOr<handlers::TensorResponse>& answer,
                  bool batch_statistics, const OutputForms& forms) {
    Status status = answer.status();
    if (answer.ok()) {
      inference::ModelInferResponse& response = call.tensors.emplace();
      BeginResponse(call.head, call.version, &response);
      if (batch_statistics) EncodeBatch(answer->batch, &response);
      status = CatchOutOfMemory([&] {
        return EncodeTensors(*answer, call.raw, forms, parts_.state->regions,
                             &response);
      });
      SetFinal(true, &response);
    }
    EndCall(call, EndedBy(std::move(status)));
  }

  void ReadNext() {
    {
      MutexLock lock(mu_);
      read_ = open_.size() < kMaxOpen ? Read::kOutstanding : Read::kFull;
      if (read_ == Read::kFull) return;
      ++num_starting_reads_;
    }
    StartRead(&request_);
    Apply([this] { --num_starting_reads_; });
  }

  static handlers::GenerateEnd EndedBy(Status status) {
    handlers::GenerateEnd end;
    end.status = std::move(status);
    return end;
  }

  std::string NextId() {
    return info_.request_id + "/" + std::to_string(++num_requests_);
  }

  // What the state asks for, decided under the mutex.
  struct Next {
    bool write = false;
    bool finish = false;
    ::grpc::Status status;
    std::vector<std::shared_ptr<StreamedCall>> closed;
  };

  // Changes the state, then does what the new state asks for.
  template <typename Change>
  void Apply(Change change) EXCLUDES(mu_) {
    Next next;
    {
      MutexLock lock(mu_);
      change();
      next = Decide();
    }
    Act(std::move(next));
  }

  Next Decide() REQUIRES(mu_) {
    Next next;
    if (finished_) return next;
    if (broken_) Forget();
    if (!writing_) next.write = writing_ = FillResponse();
    next.closed.swap(closed_);
    next.finish = finished_ = MayFinish();
    if (next.finish) next.status = FinalStatus();
    return next;
  }

  void Act(Next next) EXCLUDES(mu_) {
    if (next.write) StartWrite(&response_);
    if (next.finish) Finish(next.status);
    if (next.closed.empty()) return;
    for (const auto& call : next.closed) Settle(*call);
    bool has_room = false;
    Apply([&] {
      num_unsettled_ -= static_cast<int64_t>(next.closed.size());
      has_room = read_ == Read::kFull && open_.size() < kMaxOpen;
      if (has_room) read_ = Read::kTakingIn;
    });
    if (has_room) ReadNext();
  }

  bool MayFinish() REQUIRES(mu_) {
    if (writing_ || num_unsettled_ > 0 || num_starting_reads_ > 0) return false;
    const bool waits = read_ == Read::kOutstanding || read_ == Read::kFull;
    return read_ == Read::kClosed || (waits && draining_);
  }

  ::grpc::Status FinalStatus() REQUIRES(mu_) {
    if (cancelled_) return ToGrpc(WhyCancelled(info_, *parts_.clock));
    if (read_ != Read::kClosed) {
      return ToGrpc(Unavailable("the server is shutting down"));
    }
    return ::grpc::Status::OK;
  }

  // Those at the front that have ended.
  void QueueInOrder() REQUIRES(mu_) {
    while (!in_order_.empty() && in_order_.front()->end) {
      Queue(*in_order_.front());
      in_order_.pop_front();
    }
  }

  void Queue(StreamedCall& call) REQUIRES(mu_) {
    if (call.queued) return;
    call.queued = true;
    ready_.push_back(&call);
  }

  // Nobody can be answered any more: what has ended leaves.
  void Forget() REQUIRES(mu_) {
    for (StreamedCall* call : ready_) {
      call->queued = false;
      call->text.clear();
      if (call->end) Close(*call);
    }
    ready_.clear();
  }

  // Puts the next answer into response_; false when there is none.
  bool FillResponse() REQUIRES(mu_) {
    if (ready_.empty()) return false;
    StreamedCall& call = *ready_.front();
    ready_.pop_front();
    call.queued = false;
    call.trace->Stamp(Stage::kFirstByte, parts_.clock->Now());

    response_.Clear();
    auto* infer = response_.mutable_infer_response();
    BeginResponse(call.head, call.version, infer);
    const bool failed = call.end && !call.end->status.ok();
    if (failed && (call.text.empty() || !call.stream)) {
      const Status& status = call.end->status;
      response_.set_error_message(MessageOf(status));
      (*infer->mutable_parameters())["status_code"].set_string_param(
          std::string(StatusCodeName(status.code())));
      SetFinal(true, infer);
      Close(call);
      return true;
    }
    if (call.tensors) {
      infer->Swap(&*call.tensors);
      Close(call);
      return true;
    }
    // A client that asked for it gets an end of its own, without tensors.
    const bool empty_final = call.end && call.stream && call.text.empty() &&
                             call.empty_final_response;
    if (!empty_final) AddTextOutput(call.text, call.raw, infer);
    const bool is_final =
        call.end && !failed &&
        (empty_final || !call.stream || !call.empty_final_response);
    call.text.clear();
    SetFinal(is_final, infer);
    if (is_final) {
      AddUsage(*call.end, infer);
      Close(call);
    } else if (call.end) {
      Queue(call);
    }
    return true;
  }

  void Close(StreamedCall& call) REQUIRES(mu_) {
    const auto held =
        std::find_if(open_.begin(), open_.end(),
                     [&](const auto& open) { return open.get() == &call; });
    // Before the answer is written: who has it may send the next request.
    const handlers::Usage& usage = call.end->usage;
    call.permit.Spend(usage.prompt_tokens + usage.completion_tokens);
    call.permit = Permit();
    closed_.push_back(*held);
    open_.erase(held);
  }

  // The rest of a request's ending, which may log and unload a model.
  void Settle(StreamedCall& call) EXCLUDES(mu_) {
    call.trace->Stamp(Stage::kEnded, parts_.clock->Now());
    parts_.recorder->Record({.route = GrpcRoute::kModelStreamInfer,
                             .status = call.end->status,
                             .model = call.head.model_name(),
                             .peer = info_.peer,
                             .caller = info_.caller,
                             .trace = call.trace.get(),
                             .usage = call.end->usage});
    std::optional<ModelHandle> model;
    {
      MutexLock lock(mu_);
      model.swap(call.model);
    }
  }

  const InferParts parts_;
  const CallInfo info_;
  std::shared_ptr<InferStream> self_;  // gRPC's hold, until OnDone

  // Owned by the outstanding read, then by whoever takes the message in.
  Request request_;
  int64_t num_requests_ = 0;

  Mutex mu_;
  // Written under the mutex while no write is outstanding, then gRPC's.
  Response response_;
  std::set<std::shared_ptr<StreamedCall>> open_ GUARDED_BY(mu_);
  // Each of both is in open_.
  std::deque<StreamedCall*> ready_ GUARDED_BY(mu_);
  std::deque<StreamedCall*> in_order_ GUARDED_BY(mu_);
  std::vector<std::shared_ptr<StreamedCall>> closed_ GUARDED_BY(mu_);
  int64_t num_unsettled_ GUARDED_BY(mu_) = 0;  // open or closed, not recorded
  Read read_ GUARDED_BY(mu_) = Read::kOutstanding;
  int num_starting_reads_ GUARDED_BY(mu_) = 0;
  bool writing_ GUARDED_BY(mu_) = false;
  bool broken_ GUARDED_BY(mu_) = false;  // a write failed
  bool cancelled_ GUARDED_BY(mu_) = false;
  bool draining_ GUARDED_BY(mu_) = false;
  bool finished_ GUARDED_BY(mu_) = false;
};

void StreamedCall::OnDelta(handlers::OutputDelta chunk) {
  stream_->AddText(*this, std::move(chunk.text));
}

void StreamedCall::OnEnd(handlers::GenerateEnd ended) {
  stream_->EndCall(*this, std::move(ended));
}

}  // namespace

::grpc::ServerBidiReactor<Request, Response>* StartStreamInfer(
    const InferParts& parts, CallInfo info, InferStreams* streams) {
  auto stream = std::make_shared<InferStream>(parts, std::move(info));
  stream->Begin();
  streams->Add(stream);
  return stream.get();
}

}  // namespace millrace::server
