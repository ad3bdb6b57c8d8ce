#include "handlers/external/calls.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "config/base/mutex.h"
#include "handler.pb.h"
#include "handlers/external/frames.h"
#include "models/tensor/strings.h"
#include "models/tensor/travel_bytes.h"

namespace millrace::handlers {
namespace {

using handler::Message;

constexpr size_t kMaxCalls = 64;

struct CallResult {
  uint64_t id;
  StatusOr<TensorResponse> response;
  std::optional<LentModel> lent;  // let go of by who takes the result
};

// Tensors of calls come inline.
StatusOr<TensorRequest> RequestOf(const Message& call, Clock::Time deadline) {
  TensorRequest request;
  for (const handler::Tensor& tensor : call.tensors()) {
    ASSIGN_OR_RETURN(NamedTensor input, TensorFrom(tensor, {}, 0));
    request.inputs.push_back(std::move(input));
  }
  request.outputs = {call.outputs().begin(), call.outputs().end()};
  request.deadline = deadline;
  request.trace = std::make_shared<Trace>();
  return request;
}

// What a message cannot carry is an error instead.
void Pack(const std::vector<NamedTensor>& outputs, Message* message) {
  size_t bytes = 0;
  for (const NamedTensor& output : outputs) {
    // More than enough for strings: a view is larger than a length.
    bytes += static_cast<size_t>(output.tensor.num_bytes() +
                                 models::NumCharacters(output.tensor));
  }
  if (bytes > kMaxFrameBytes / 2) {
    message->set_error("the outputs have " + std::to_string(bytes) +
                       " bytes together, but " +
                       std::to_string(kMaxFrameBytes / 2) +
                       " are what a call may give; ask for fewer outputs");
    return;
  }
  for (const NamedTensor& output : outputs) {
    handler::Tensor* tensor = message->add_tensors();
    SetHead(output.name, output.tensor, tensor);
    const models::TravelBytes travel(output.tensor);
    tensor->set_data(travel.view().data(), travel.view().size());
  }
}

}  // namespace

struct ModelCalls::Inbox {
  Inbox() : wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Inbox() {
    if (wake >= 0) ::close(wake);
  }
  void Put(CallResult result) {
    {
      MutexLock lock(mu);
      results.push_back(std::move(result));
    }
    const uint64_t one = 1;
    // A full counter wakes as well.
    [[maybe_unused]] const ssize_t size = ::write(wake, &one, sizeof one);
  }
  std::vector<CallResult> TakeAll() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake, &count, sizeof count);
    MutexLock lock(mu);
    return std::exchange(results, {});
  }

  const int wake;
  Mutex mu;
  std::vector<CallResult> results GUARDED_BY(mu);
};

ModelCalls::ModelCalls(std::string model, ModelLender* lender)
    : model_(std::move(model)),
      lender_(lender),
      inbox_(std::make_shared<Inbox>()) {}

ModelCalls::~ModelCalls() { stop_.request_stop(); }

void ModelCalls::LetGoOfResults() { static_cast<void>(TakeResults()); }

void ModelCalls::Forget() {
  if (under_way_.empty()) return;
  under_way_.clear();
  stop_.request_stop();
  stop_ = std::stop_source();
}

int ModelCalls::wake() const { return inbox_->wake; }

Status ModelCalls::Start(const Message& call, Clock::Time deadline) {
  if (under_way_.size() >= kMaxCalls || !under_way_.insert(call.id()).second) {
    return Unavailable("has more than " + std::to_string(kMaxCalls) +
                       " calls under way, or two of one id");
  }
  StatusOr<TensorRequest> request = RequestOf(call, deadline);
  StatusOr<LentModel> lent =
      request.ok()
          ? lender_->LendForRequest(model_, call.model(), call.version())
          : StatusOr<LentModel>(request.status());
  if (!lent.ok()) {
    inbox_->Put({call.id(), lent.status(), std::nullopt});
    return OkStatus();
  }
  TensorHandler* handler = lent->handler;
  // All copies of the closure share it: the last of them may die on the model's
  // own thread, and must not hold the model then.
  const auto held =
      std::make_shared<std::optional<LentModel>>(*std::move(lent));
  handler->Start(
      *std::move(request),
      [inbox = inbox_, id = call.id(),
       held](StatusOr<TensorResponse> response) {
        inbox->Put({id, std::move(response), std::exchange(*held, {})});
      },
      stop_.get_token());
  return OkStatus();
}

std::vector<Message> ModelCalls::TakeResults() {
  std::vector<Message> messages;
  for (CallResult& result : inbox_->TakeAll()) {
    if (under_way_.erase(result.id) == 0) continue;  // of an earlier request
    Message& message = messages.emplace_back();
    message.set_kind(Message::RESULT);
    message.set_id(result.id);
    if (!result.response.ok()) {
      message.set_error(std::string(result.response.status().message()));
      continue;
    }
    Pack(result.response->outputs, &message);
  }
  return messages;
}

}  // namespace millrace::handlers
