// KServe v2 over gRPC: ModelInfer, asynchronous, on one completion queue a
// thread. Messages are serialized before the clock starts and replies are
// parsed only to see that they are replies.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "loadtest/server_stages.h"
#include "loadtest/tensors.h"
#include "loadtest/worker.h"
#include "open_inference_grpc.grpc.pb.h"

namespace millrace::loadtest {
namespace {

constexpr auto kWake = std::chrono::milliseconds(20);
constexpr auto kMetadataTimeout = std::chrono::seconds(10);
constexpr auto kConnectPause = std::chrono::milliseconds(100);
constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const Url& url) {
  if (!url.is_tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  std::ifstream file(url.ca_file);
  options.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::Channel> MakeChannel(const Options& options,
                                           int64_t index) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(-1);
  args.SetMaxSendMessageSize(-1);
  // Each channel has its own connection.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt("millrace.channel", static_cast<int>(index));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(options.url.HostPort(),
                                   MakeCredentials(options.url), args);
}

void AddHeaders(const Options& options, grpc::ClientContext& context) {
  for (const auto& [name, value] : options.headers) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    context.AddMetadata(lower, value);
  }
}

Outcome OutcomeOf(const grpc::Status& status, bool aborted) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return Outcome::kOk;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Outcome::kTimeout;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Outcome::kRateLimited;
    case grpc::StatusCode::CANCELLED:
      return aborted ? Outcome::kUnfinished : Outcome::kHttpStatus;
    case grpc::StatusCode::UNAVAILABLE: {
      const bool never =
          status.error_message().find("connect") != std::string::npos;
      return never ? Outcome::kConnect : Outcome::kConnectionLost;
    }
    default:
      return Outcome::kHttpStatus;
  }
}

struct Call {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  RequestRecord record;
};

class GrpcWorker final : public Worker {
 public:
  explicit GrpcWorker(const WorkerSetup& setup)
      : setup_(setup),
        options_(*setup.options),
        channel_(MakeChannel(options_, setup.thread_index)),
        stub_(channel_) {
    const Requests& requests = *setup.requests;
    std::string scratch;
    for (int64_t i = 0; i < requests.size(); ++i) {
      const grpc::Slice slice{std::string(requests.Bytes(i, 0, {}, scratch))};
      messages_.emplace_back(&slice, 1);
    }
  }

  RunStats Run(const Phase& phase, Progress& progress) override;

 private:
  void Start(Ticket ticket);
  void Finish(Call& call, bool aborted);
  void CancelAll();
  void DropDue(std::optional<Ticket> next, ArrivalShare& share);

  const WorkerSetup setup_;
  const Options& options_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::vector<grpc::ByteBuffer> messages_;

  // Of the phase under way.
  Progress* progress_ = nullptr;
  std::optional<Recorder> recorder_;
  std::unique_ptr<grpc::CompletionQueue> queue_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call*> free_;
  int64_t under_way_ = 0;
};

void GrpcWorker::Start(Ticket ticket) {
  if (free_.empty()) {
    calls_.push_back(std::make_unique<Call>());
    free_.push_back(calls_.back().get());
  }
  Call& call = *free_.back();
  free_.pop_back();
  call.record = RequestRecord();
  call.record.intended = ticket.intended;
  call.context = std::make_unique<grpc::ClientContext>();
  const Time now = Clock::now();
  call.record.sent = now;
  call.context->set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          ticket.intended + options_.request_timeout - now));
  AddHeaders(options_, *call.context);
  const auto& message =
      messages_[static_cast<size_t>(ticket.index) % messages_.size()];
  call.reader = stub_.PrepareUnaryCall(call.context.get(), kMethod, message,
                                       queue_.get());
  call.reader->StartCall();
  call.reader->Finish(&call.reply, &call.status, &call);
  ++under_way_;
  progress_->in_flight.fetch_add(1, std::memory_order_relaxed);
}

void GrpcWorker::Finish(Call& call, bool aborted) {
  RequestRecord& record = call.record;
  record.end = Clock::now();
  record.outcome = OutcomeOf(call.status, aborted);
  record.status = static_cast<int>(call.status.error_code());
  record.error = call.status.error_message();
  if (record.outcome == Outcome::kOk) {
    inference::ModelInferResponse reply;
    const bool parsed =
        grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(
            &call.reply, &reply)
            .ok();
    if (!parsed || reply.outputs_size() == 0) {
      record.outcome = Outcome::kProtocol;
      record.error = "the reply is no ModelInferResponse with outputs";
    }
  }
  recorder_->Add(record);
  progress_->Count(record);
  progress_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  --under_way_;
  call.reader.reset();
  call.context.reset();
  call.reply.Clear();
  free_.push_back(&call);
}

void GrpcWorker::CancelAll() {
  for (const auto& call : calls_) {
    if (call->context != nullptr) call->context->TryCancel();
  }
}

// Records those that are due by now and were not sent: `next` and what follows.
void GrpcWorker::DropDue(std::optional<Ticket> next, ArrivalShare& share) {
  const Time now = Clock::now();
  for (; next && next->intended <= now; next = share.Next()) {
    RequestRecord record;
    record.intended = next->intended;
    record.end = now;
    record.outcome = Outcome::kUnfinished;
    record.error = "it was not sent, as the run was stopped";
    recorder_->Add(record);
    progress_->Count(record);
  }
}

// The loop waits for the next end of a call or for the next request that is
// due, whichever comes first.
RunStats GrpcWorker::Run(const Phase& phase, Progress& progress) {
  progress_ = &progress;
  recorder_.emplace(options_.slo, phase.start);
  queue_ = std::make_unique<grpc::CompletionQueue>();
  ArrivalShare share(phase, setup_.thread_index, options_.threads);
  const int64_t limit = std::max<int64_t>(
      phase.open_loop ? 1 : 0,
      ShareOf(phase.open_loop ? phase.max_connections : phase.concurrency,
              setup_.thread_index, options_.threads));
  std::optional<Ticket> next;
  if (phase.open_loop) next = share.Next();
  bool more = phase.open_loop ? next.has_value() : limit > 0;
  bool aborted = false;
  Time pause_until = {};  // after a refused connection
  Time sending_ended = Time::max();
  while (more || under_way_ > 0) {
    const Time now = Clock::now();
    const StopLevel stop = progress.stop.load(std::memory_order_relaxed);
    if (more && stop != StopLevel::kNone) {
      more = false;
      if (phase.open_loop) DropDue(next, share);
    }
    while (more && under_way_ < limit) {
      if (phase.open_loop) {
        if (next->intended > Clock::now()) break;
        Start(*next);
        next = share.Next();
        more = next.has_value();
      } else {
        if (Clock::now() < pause_until) break;
        const auto ticket = NextTurnOf(phase, progress);
        more = ticket.has_value();
        if (more) Start(*ticket);
      }
    }
    if (!more) sending_ended = std::min(sending_ended, now);
    const Time ended = std::min(sending_ended, phase.stop);
    const bool bounded = phase.stop != Time::max() || stop != StopLevel::kNone;
    if (!aborted && (stop == StopLevel::kAbort ||
                     (bounded && now > ended && now - ended > phase.grace))) {
      aborted = true;
      progress.stop.store(StopLevel::kAbort, std::memory_order_relaxed);
      CancelAll();
    }
    Time wake = now + kWake;
    if (more && phase.open_loop && under_way_ < limit) {
      wake = std::min(wake, next->intended);
    }
    const auto wait = std::max(wake - Clock::now(), Clock::duration(0));
    void* tag = nullptr;
    bool ok = false;
    const auto event = queue_->AsyncNext(
        &tag, &ok,
        std::chrono::system_clock::now() +
            std::chrono::duration_cast<std::chrono::system_clock::duration>(
                wait));
    if (event != grpc::CompletionQueue::GOT_EVENT) continue;
    Call& call = *static_cast<Call*>(tag);
    Finish(call, aborted);
    const Outcome outcome = call.record.outcome;
    if (outcome == Outcome::kConnect ||
        (!phase.open_loop && outcome == Outcome::kRateLimited)) {
      pause_until = Clock::now() + kConnectPause;
    }
  }
  queue_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
  }
  return recorder_->Take();
}

StatusOr<std::vector<TensorSpec>> GrpcInputs(const Options& options) {
  const auto stub =
      inference::GRPCInferenceService::NewStub(MakeChannel(options, -1));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kMetadataTimeout);
  AddHeaders(options, context);
  inference::ModelMetadataRequest request;
  request.set_name(options.model);
  inference::ModelMetadataResponse reply;
  const grpc::Status status = stub->ModelMetadata(&context, request, &reply);
  if (!status.ok()) {
    return Unavailable("ModelMetadata of '" + options.model +
                       "' failed: " + status.error_message() +
                       "; are --url (the gRPC port) and --model right?");
  }
  std::vector<TensorSpec> specs;
  for (const auto& input : reply.inputs()) {
    specs.push_back({input.name(),
                     input.datatype(),
                     {input.shape().begin(), input.shape().end()}});
  }
  return specs;
}

void Add(const inference::StatisticDuration& counted, StageTotal& total) {
  total.count += static_cast<int64_t>(counted.count());
  total.ns += static_cast<int64_t>(counted.ns());
}

}  // namespace

ServerStages ReadGrpcStages(const Options& options, const std::string& model) {
  const auto stub =
      inference::GRPCInferenceService::NewStub(MakeChannel(options, -1));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kMetadataTimeout);
  AddHeaders(options, context);
  inference::ModelStatisticsRequest request;
  request.set_name(model);
  inference::ModelStatisticsResponse reply;
  if (!stub->ModelStatistics(&context, request, &reply).ok()) return {};
  ServerStages stages;
  for (const auto& version : reply.model_stats()) {
    const auto& counted = version.inference_stats();
    Add(counted.queue(), stages["queue"]);
    Add(counted.compute_input(), stages["compute_input"]);
    Add(counted.compute_infer(), stages["compute_infer"]);
    Add(counted.compute_output(), stages["compute_output"]);
  }
  return stages;
}

StatusOr<std::unique_ptr<Requests>> MakeGrpcRequests(const Options& options) {
  ASSIGN_OR_RETURN(const auto declared, GrpcInputs(options));
  const std::vector<TensorSpec> specs = SentInputs(options, declared);
  std::vector<std::string> messages;
  const int64_t count = NumTensorRequests(options, specs);
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(auto tensors, MakeTensors(options, specs, i));
    inference::ModelInferRequest request;
    request.set_model_name(options.model);
    for (Tensor& tensor : tensors) {
      auto* input = request.add_inputs();
      input->set_name(tensor.spec.name);
      input->set_datatype(tensor.spec.datatype);
      for (const int64_t size : tensor.spec.shape) input->add_shape(size);
      request.add_raw_input_contents(std::move(tensor.bytes));
    }
    messages.push_back(request.SerializeAsString());
  }
  return MakeFixedRequests(std::move(messages));
}

StatusOr<std::unique_ptr<Worker>> MakeGrpcWorker(const WorkerSetup& setup) {
  return std::make_unique<GrpcWorker>(setup);
}

}  // namespace millrace::loadtest
