// The thread's loop: start the process, wait for READY, then one request after
// the other. Everything that is said to the process is said from here; what
// other models answer comes in through ModelCalls.
#include "handlers/external/instance.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "config/base/log.h"
#include "config/topology.h"
#include "handler.pb.h"
#include "handlers/external/calls.h"
#include "handlers/external/frames.h"
#include "handlers/external/process.h"
#include "handlers/external/shared_space.h"
#include "models/tensor/travel_bytes.h"

namespace millrace::handlers {
namespace {

using handler::Message;
using std::chrono::milliseconds;

// How often memory, deadlines and the process's life are looked at.
constexpr auto kTick = milliseconds(50);
constexpr auto kFirstPause = milliseconds(100);
constexpr auto kLongestPause = milliseconds(10'000);
// Requests wait for a process that comes back so soon; else they are refused.
constexpr auto kWaitedPause = milliseconds(1'000);
// A process that lived so long failed for another reason than its start.
constexpr auto kHealthy = std::chrono::seconds(10);
constexpr size_t kInlineBytes = 16 << 10;
constexpr size_t kKeptOutput = 2000;
// All parts of one answer: a client may read slower than the handler writes.
constexpr int64_t kMaxPartBytes = int64_t{64} << 20;

class Instance final : public ExternalInstance {
 public:
  Instance(const InstanceParts& parts, int number)
      : parts_(parts),
        number_(number),
        calls_(parts.model, parts.lender),
        thread_([this] { Loop(); }) {}

  ~Instance() override {
    stop_.request_stop();
    thread_.join();
  }

  StatusOr<HandlerPorts> AwaitReady() override {
    MutexLock lock(mu_);
    while (!first_.has_value()) changed_.Wait(mu_);
    return *first_;
  }

  Status Ready() const override {
    MutexLock lock(mu_);
    return state_;
  }

 private:
  Clock::Time Now() const { return parts_.clock->Now(); }

  void Loop() {
    // Only a name for top -H: naming a thread cannot fail.
    static_cast<void>(config::PinThisThread({}, "external"));
    auto pause = kFirstPause;
    while (!stop_.stop_requested()) {
      const Clock::Time begun = Now();
      const Status ended = RunProcess();
      calls_.Forget();
      if (stop_.stop_requested()) return;
      if (Now() - begun > kHealthy) pause = kFirstPause;
      const Status down =
          Unavailable("the handler of the model '" + parts_.model + "' " +
                      std::string(ended.message()))
              .Because("handler_down")
              .RetryAfterMs(pause.count());
      if (!Ready().ok() || pause > kWaitedPause) {
        parts_.queue->Leave(number_, down);
      }
      Tell(down);
      parts_.restarts.Add();
      LogError("external handler ended", {{"model", parts_.model},
                                          {"instance", number_},
                                          {"error", ended.message()},
                                          {"restart_ms", pause.count()}});
      const Clock::Time again = Now() + pause;
      while (!stop_.stop_requested() && Now() < again) {
        parts_.queue->EndStale(Now());
        calls_.LetGoOfResults();
        std::this_thread::sleep_for(milliseconds(10));
      }
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // The state for Ready, and the result of the first start.
  void Tell(const Status& status, std::optional<HandlerPorts> ports = {}) {
    MutexLock lock(mu_);
    state_ = status;
    if (first_.has_value()) return;
    first_ = ports.has_value() ? StatusOr<HandlerPorts>(*std::move(ports))
                               : StatusOr<HandlerPorts>(status);
    changed_.NotifyAll();
  }

  // One life of the process; returns why it ended.
  Status RunProcess() {
    ASSIGN_OR_RETURN(SharedSpace space,
                     SharedSpace::Create(static_cast<size_t>(
                         parts_.settings->shared_memory_bytes)));
    ProcessOptions options{.command = parts_.settings->command,
                           .environment = parts_.settings->environment,
                           .folder = parts_.folder,
                           .memory_fd = space.fd()};
    options.environment["MILLRACE_MODEL"] = parts_.model;
    options.environment["MILLRACE_VERSION"] = parts_.version;
    // The version's folder stays as it was: a change of it is a new version.
    options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
    const char* path = ::getenv("PYTHONPATH");
    options.environment["PYTHONPATH"] =
        parts_.handlers_path + (path == nullptr ? "" : ":" + std::string(path));
    ASSIGN_OR_RETURN(HandlerProcess process, HandlerProcess::Start(options));
    process_ = &process;
    space_ = &space;
    reader_ = FrameReader();
    said_.clear();
    is_silent_ = false;
    const Status ended = Serve();
    process_ = nullptr;
    space_ = nullptr;
    parts_.resident_bytes.Set(0);
    if (said_.empty()) return ended;
    return Status(ended.code(),
                  std::string(ended.message()) + "; it wrote: " + said_);
  }

  Status Serve() {
    const auto starts = milliseconds(parts_.settings->startup_timeout_ms);
    Message ready;
    RETURN_IF_ERROR(Await(
        Now() + starts,
        "did not become ready within " + std::to_string(starts.count()) + " ms",
        [&](Message& message) {
          ready = std::move(message);
          return StatusOr<bool>(true);
        }));
    if (ready.kind() != Message::READY) {
      return Unavailable("sent another message before READY");
    }
    if (!ready.error().empty()) {
      return Unavailable("could not start: " + ready.error());
    }
    HandlerPorts ports;
    for (const auto& input : ready.inputs()) {
      ASSIGN_OR_RETURN(models::TensorSpec spec, SpecFrom(input));
      ports.inputs.push_back(std::move(spec));
    }
    for (const auto& output : ready.tensors()) {
      ASSIGN_OR_RETURN(models::TensorSpec spec, SpecFrom(output));
      ports.outputs.push_back(std::move(spec));
    }
    parts_.queue->Join(number_);
    Tell(OkStatus(), std::move(ports));
    LogInfo("external handler ready", {{"model", parts_.model},
                                       {"instance", number_},
                                       {"pid", process_->pid()}});
    while (!stop_.stop_requested()) {
      RETURN_IF_ERROR(CheckHealth());
      calls_.LetGoOfResults();
      ExternalJob job;
      if (!parts_.queue->Pop(Now() + kTick, &job)) continue;
      if (job.stop.stop_requested()) {
        job.done(Cancelled("the client is gone"));
        continue;
      }
      if (job.deadline <= Now()) {
        job.done(DeadlineExceeded(
            "the deadline passed before a process of the handler was free"));
        continue;
      }
      RETURN_IF_ERROR(RunJob(std::move(job)));
    }
    return OkStatus();
  }

  // An error ends the process; the job has had its ending.
  Status RunJob(ExternalJob job) {
    const Clock::Time begun = Now();
    std::vector<uint64_t> taken;
    Message request;
    request.set_kind(Message::REQUEST);
    request.set_id(++last_id_);
    for (NamedTensor& input : job.inputs) {
      Put(input, request.add_tensors(), &taken);
    }
    for (const std::string& name : job.outputs) request.add_outputs(name);
    request.set_parameters(job.parameters);
    // Half of what is free: outputs that are larger come inline.
    std::optional<uint64_t> place;
    size_t bytes = space_->size();
    while (!place.has_value() && bytes > kInlineBytes) {
      bytes /= 2;
      place = space_->Take(bytes);
    }
    if (place.has_value()) {
      taken.push_back(*place);
      request.set_space_offset(*place);
      request.set_space_bytes(bytes);
    }
    StatusOr<std::string> frame = Framed(request);
    if (!frame.ok()) {  // the request's fault, not that of the process
      for (const uint64_t offset : taken) space_->GiveBack(offset);
      job.done(frame.status());
      return OkStatus();
    }
    StatusOr<TensorResponse> response = Internal("no response");
    bool answered = false;
    Status parts;  // why its parts cannot be given on
    int64_t part_bytes = 0;
    const auto answer = [&](StatusOr<TensorResponse> with) {
      if (std::exchange(answered, true)) return;
      job.done(std::move(with));
    };
    const auto limit = milliseconds(parts_.settings->response_timeout_ms);
    Status failed = Send(*frame, begun + limit);
    if (failed.ok()) {
      failed = Await(
          begun + limit,
          "did not answer within " + std::to_string(limit.count()) + " ms",
          [&](Message& message) -> StatusOr<bool> {
            if (message.kind() == Message::CALL) {
              RETURN_IF_ERROR(calls_.Start(message, job.deadline));
              return false;
            }
            if (message.kind() == Message::PART &&
                message.id() == request.id()) {
              part_bytes += static_cast<int64_t>(message.ByteSizeLong());
              if (answered || !parts.ok()) return false;
              parts = GivePart(message, part_bytes, job);
              return false;
            }
            if (message.kind() != Message::RESPONSE ||
                message.id() != request.id()) {
              return Unavailable("sent a message that answers nothing");
            }
            response = ResponseOf(message, place, bytes);
            if (response.ok() && !parts.ok()) response = parts;
            return true;
          },
          [&] {
            if (answered) return;
            if (job.stop.stop_requested()) {
              answer(Cancelled("the client is gone"));
            } else if (job.deadline <= Now()) {
              answer(DeadlineExceeded(
                  "the deadline passed while the handler computed"));
            }
          });
    }
    for (const uint64_t offset : taken) space_->GiveBack(offset);
    calls_.Forget();
    if (!failed.ok()) {
      const bool hung = failed.code() == StatusCode::kDeadlineExceeded;
      answer(Status(hung ? StatusCode::kDeadlineExceeded
                         : StatusCode::kUnavailable,
                    "the handler of the model '" + parts_.model + "' " +
                        std::string(failed.message()))
                 .Because("handler_failed"));
      return failed;
    }
    if (response.ok()) {
      response->batch.queue = begun - job.submitted;
      response->batch.compute_infer = Now() - begun;
    }
    answer(std::move(response));
    return OkStatus();
  }

  Status GivePart(const Message& message, int64_t bytes,
                  const ExternalJob& job) {
    if (!job.part) {
      return Unimplemented("the handler of the model '" + parts_.model +
                           "' answers in parts, which this call does not take");
    }
    if (bytes > kMaxPartBytes) {
      return ResourceExhausted(
          "the handler of the model '" + parts_.model + "' sent more than " +
          std::to_string(kMaxPartBytes) + " bytes in parts of one answer");
    }
    ASSIGN_OR_RETURN(TensorResponse part, ResponseOf(message, {}, 0));
    job.part(std::move(part));
    return OkStatus();
  }

  StatusOr<TensorResponse> ResponseOf(const Message& message,
                                      std::optional<uint64_t> place,
                                      size_t bytes) {
    if (!message.error().empty()) {
      return InvalidArgument("the handler of the model '" + parts_.model +
                             "' refused the request: " + message.error())
          .Because("handler_error");
    }
    TensorResponse response;
    for (const handler::Tensor& tensor : message.tensors()) {
      StatusOr<NamedTensor> read =
          TensorFrom(tensor,
                     place.has_value() ? space_->At(*place, bytes)
                                       : std::span<std::byte>(),
                     place.value_or(0));
      if (!read.ok()) {
        return Internal("the handler of the model '" + parts_.model +
                        "': " + std::string(read.status().message()))
            .Because("handler_error");
      }
      response.outputs.push_back(*std::move(read));
    }
    return response;
  }

  // Large ones go through shared memory, where there is room.
  void Put(const NamedTensor& input, handler::Tensor* tensor,
           std::vector<uint64_t>* taken) {
    SetHead(input.name, input.tensor, tensor);
    const models::TravelBytes travel(input.tensor);
    const std::string_view bytes = travel.view();
    if (bytes.size() > kInlineBytes) {
      if (const auto offset = space_->Take(bytes.size())) {
        taken->push_back(*offset);
        std::memcpy(space_->At(*offset, bytes.size()).data(), bytes.data(),
                    bytes.size());
        tensor->set_shared_offset(*offset);
        tensor->set_shared_bytes(bytes.size());
        return;
      }
    }
    tensor->set_data(bytes.data(), bytes.size());
  }

  // ---- the socket ----

  // Reads meanwhile: a process may write before it reads on.
  Status Send(std::string_view bytes, Clock::Time until) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t size =
          ::send(process_->socket(), bytes.data() + sent, bytes.size() - sent,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size > 0) {
        sent += static_cast<size_t>(size);
        continue;
      }
      if (size < 0 && errno != EAGAIN && errno != EINTR) return Gone();
      if (Now() >= until) {
        return DeadlineExceeded("did not read its requests in time");
      }
      const bool reads = reader_.size() < kMaxFrameBytes;
      const int events = reads ? POLLOUT | POLLIN : POLLOUT;
      pollfd waits = {.fd = process_->socket(),
                      .events = static_cast<short>(events),
                      .revents = 0};
      ::poll(&waits, 1, static_cast<int>(kTick.count()));
      if (reads) RETURN_IF_ERROR(Read());
      RETURN_IF_ERROR(CheckHealth());
    }
    return OkStatus();
  }

  // Gives messages to `take` until it returns true.
  template <typename Take>
  Status Await(
      Clock::Time until, const std::string& late, Take take,
      const std::function<void()>& tick = [] {}) {
    while (true) {
      Message message;
      ASSIGN_OR_RETURN(const bool complete, reader_.Next(&message));
      if (complete) {
        ASSIGN_OR_RETURN(const bool over, take(message));
        if (over) return OkStatus();
        continue;
      }
      if (stop_.stop_requested()) return Unavailable("is being ended");
      if (Now() >= until) return DeadlineExceeded(late);
      pollfd waits[] = {
          {.fd = process_->socket(), .events = POLLIN, .revents = 0},
          {.fd = calls_.wake(), .events = POLLIN, .revents = 0},
          // Closed: it would be ready all the time.
          {.fd = is_silent_ ? -1 : process_->output(),
           .events = POLLIN,
           .revents = 0}};
      ::poll(waits, 3, static_cast<int>(kTick.count()));
      tick();
      parts_.queue->EndStale(Now());
      for (const Message& result : calls_.TakeResults()) {
        ASSIGN_OR_RETURN(const std::string frame, Framed(result));
        RETURN_IF_ERROR(Send(frame, until));
      }
      RETURN_IF_ERROR(Read());
      RETURN_IF_ERROR(CheckHealth());
    }
  }

  Status Read() {
    char buffer[64 << 10];
    const ssize_t size =
        ::recv(process_->socket(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (size > 0) {
      reader_.Add({buffer, static_cast<size_t>(size)});
      return OkStatus();
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    return Gone();
  }

  // The socket is closed: the process has ended or is about to.
  Status Gone() {
    ReadOutput();
    for (int i = 0; i < 100 && process_->HowEnded().empty(); ++i) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    ReadOutput();
    const std::string how = process_->HowEnded();
    return Unavailable(how.empty() ? "closed its socket" : how);
  }

  Status CheckHealth() {
    ReadOutput();
    const std::string how = process_->HowEnded();
    if (!how.empty()) return Unavailable(how);
    const int64_t resident = process_->ResidentBytes();
    parts_.resident_bytes.Set(static_cast<double>(resident));
    const int64_t limit = parts_.settings->memory_limit_bytes;
    if (limit > 0 && resident > limit) {
      process_->Kill();
      return Unavailable("was ended, for it has " + std::to_string(resident) +
                         " bytes in memory and memory_limit is " +
                         std::to_string(limit));
    }
    return OkStatus();
  }

  // What it prints goes to the log; the end of it to messages.
  void ReadOutput() {
    char buffer[4096];
    ssize_t size = 0;
    // The rest at the next tick: a process may print faster than the log takes.
    for (int i = 0; i < 16; ++i) {
      size = ::read(process_->output(), buffer, sizeof buffer);
      if (size <= 0) break;
      const std::string text(buffer, static_cast<size_t>(size));
      LogInfo("external handler wrote",
              {{"model", parts_.model}, {"instance", number_}, {"text", text}});
      said_ += text;
      if (said_.size() > kKeptOutput) {
        said_.erase(0, said_.size() - kKeptOutput);
      }
    }
    is_silent_ = size == 0;
  }

  const InstanceParts parts_;
  const int64_t number_;
  std::stop_source stop_;

  mutable Mutex mu_;
  CondVar changed_;
  std::optional<StatusOr<HandlerPorts>> first_ GUARDED_BY(mu_);
  Status state_ GUARDED_BY(mu_) = Unavailable("the handler is starting");

  // ---- owned by the thread ----
  HandlerProcess* process_ = nullptr;  // while it runs
  SharedSpace* space_ = nullptr;       // the same
  FrameReader reader_;
  std::string said_;        // the last of what it printed
  bool is_silent_ = false;  // it has closed its output
  uint64_t last_id_ = 0;
  ModelCalls calls_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<ExternalInstance> ExternalInstance::Start(
    const InstanceParts& parts, int number) {
  return std::make_unique<Instance>(parts, number);
}

}  // namespace millrace::handlers
