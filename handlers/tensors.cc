// Names are checked here, types and sizes where the request is submitted. The
// batcher's thread hands its result to the pool, or to a caller that needs no
// pool, and goes on with the next batch.
#include "handlers/tensors.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "handlers/named_tensors.h"
#include "handlers/place_in_time.h"

namespace millrace::handlers {
namespace {

using models::TensorSpec;

// As torchrec's KeyedJaggedTensor calls its parts.
constexpr std::string_view kKeyedValues = "keyed_values";
constexpr std::string_view kKeyedLengths = "keyed_lengths";
constexpr std::string_view kKeyedWeights = "keyed_weights";

bool IsKeyed(std::string_view name) {
  return name == kKeyedValues || name == kKeyedLengths || name == kKeyedWeights;
}

// 0: none. The sum with the time of day must not overflow.
Clock::Duration QueueTimeout(std::optional<std::chrono::microseconds> timeout) {
  if (!timeout || *timeout >= kEndlessTimeout) return Clock::Duration(0);
  return Clock::Duration(*timeout);
}

class GraphHandler final : public TimedHandler {
 public:
  explicit GraphHandler(TensorParts parts) : parts_(std::move(parts)) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Status status = TryStart(request, done, std::move(stop));
    if (!status.ok()) done(status);
  }

  // The place is given back at once: held, it would let clients that send
  // slowly keep others out.
  Status HasPlaceBy(Clock::Time deadline) const override {
    return parts_.batcher->Reserve(deadline).status();
  }

  const std::vector<TensorSpec>& inputs() const override {
    return parts_.batcher->inputs();
  }
  const std::vector<TensorSpec>& outputs() const override {
    return parts_.batcher->outputs();
  }

 private:
  Status TryStart(TensorRequest& request, const Done& done,
                  std::stop_token stop) {
    const Clock::Time deadline = DeadlineOf(request);
    ASSIGN_OR_RETURN(scheduler::Reservation place,
                     parts_.batcher->Reserve(deadline));
    AddMadeInputs(request.inputs);
    scheduler::BatchTask task;
    ASSIGN_OR_RETURN(task.keyed, TakeKeyed(request.inputs));
    task.lengths = TakeLengths(request.inputs);
    ASSIGN_OR_RETURN(task.inputs, InputsInOrder(std::move(request.inputs),
                                                inputs(), parts_.model));
    ASSIGN_OR_RETURN(std::vector<size_t> wanted,
                     OutputsWanted(request.outputs, outputs(), parts_.model));
    task.deadline = deadline;
    if (TimeoutIsOfQueue()) {
      task.queue_timeout = QueueTimeout(request.timeout);
    }
    task.priority = request.priority;
    task.stop = std::move(stop);
    task.trace = std::move(request.trace);
    task.may_run_here = request.short_done;
    task.done = [this, wanted = std::move(wanted), done = done,
                 short_done = request.short_done](
                    StatusOr<scheduler::BatchResult> result) mutable {
      if (short_done) {
        const Done last = std::move(done);
        if (!result.ok()) return last(result.status());
        return last(ResponseOf(*result, wanted));
      }
      // Shared because tasks of the pool can be copied.
      const auto held =
          std::make_shared<StatusOr<scheduler::BatchResult>>(std::move(result));
      parts_.pool->Continue([this, wanted, done, held] {
        if (!held->ok()) return done(held->status());
        done(ResponseOf(**held, wanted));
      });
    };
    return parts_.batcher->Submit(std::move(place), std::move(task));
  }

  // Default tensors for what the batcher makes where it is left out.
  void AddMadeInputs(std::vector<NamedTensor>& given) const {
    for (size_t i = 0; i < inputs().size(); ++i) {
      if (!parts_.batcher->MakesInput(i)) continue;
      const std::string& name = inputs()[i].name;
      const bool is_given =
          std::any_of(given.begin(), given.end(),
                      [&](const NamedTensor& t) { return t.name == name; });
      if (!is_given) given.push_back({name, models::Tensor()});
    }
  }

  // All jagged features as three tensors; none: they come one by one.
  StatusOr<std::optional<scheduler::KeyedJagged>> TakeKeyed(
      std::vector<NamedTensor>& given) const {
    std::optional<scheduler::KeyedJagged> none;
    std::vector<std::string> jagged;
    for (size_t i = 0; i < inputs().size(); ++i) {
      if (IsKeyed(inputs()[i].name)) return none;  // the model's own
      if (parts_.batcher->IsJagged(i)) jagged.push_back(inputs()[i].name);
    }
    if (jagged.empty()) return none;
    std::optional<models::Tensor> values, lengths, weights;
    for (NamedTensor& input : given) {
      if (input.name == kKeyedValues) values = std::move(input.tensor);
      if (input.name == kKeyedLengths) lengths = std::move(input.tensor);
      if (input.name == kKeyedWeights) weights = std::move(input.tensor);
    }
    const size_t num_taken = std::erase_if(
        given, [](const NamedTensor& t) { return IsKeyed(t.name); });
    if (num_taken == 0) return none;
    const size_t num_kept = size_t{values.has_value()} +
                            size_t{lengths.has_value()} +
                            size_t{weights.has_value()};
    if (num_taken != num_kept) {
      return InvalidArgument(
          "one of keyed_values, keyed_lengths and keyed_weights is given "
          "twice");
    }
    if (!values.has_value() || !lengths.has_value()) {
      const std::string missing(values.has_value() ? kKeyedLengths
                                                   : kKeyedValues);
      return InvalidArgument("'" + missing +
                             "' is missing: all features together are "
                             "keyed_values and keyed_lengths")
          .At(missing);
    }
    for (const std::string& name : jagged) {
      for (const NamedTensor& input : given) {
        if (input.name != name) continue;
        return InvalidArgument("input '" + name +
                               "' is given beside keyed_values, which has all "
                               "features; leave one of them out")
            .At(name);
      }
      given.push_back({name, models::Tensor()});
    }
    return std::optional<scheduler::KeyedJagged>(
        {*std::move(values), *std::move(lengths), std::move(weights)});
  }

  // Lengths stand for the offsets that they make; the places of these.
  std::vector<size_t> TakeLengths(std::vector<NamedTensor>& given) const {
    std::vector<size_t> places;
    for (size_t i = 0; i < inputs().size(); ++i) {
      const std::string& name = parts_.batcher->LengthsName(i);
      if (name.empty()) continue;
      for (NamedTensor& input : given) {
        if (input.name != name) continue;
        input.name = inputs()[i].name;
        places.push_back(i);
      }
    }
    return places;
  }

  TensorResponse ResponseOf(scheduler::BatchResult& result,
                            const std::vector<size_t>& wanted) const {
    TensorResponse response;
    for (const size_t at : wanted) {
      response.outputs.push_back(
          {outputs()[at].name, std::move(result.outputs[at])});
    }
    response.batch = {.rows = result.batch_rows,
                      .requests = result.batch_requests,
                      .closed = std::string(BatchClosedName(result.closed)),
                      .queue = result.times.queue,
                      .compute_input = result.times.compute_input,
                      .compute_infer = result.times.compute_infer,
                      .compute_output = result.times.compute_output};
    return response;
  }

  bool TimeoutIsOfQueue() const {
    return parts_.batcher->batching()
        .default_queue_policy.allow_timeout_override;
  }

  Clock::Time DeadlineOf(const TensorRequest& request) const {
    if (TimeoutIsOfQueue()) return request.deadline;
    return EarlierDeadline(request.deadline, request.timeout, *parts_.clock);
  }

  const TensorParts parts_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeTensorHandler(TensorParts parts) {
  return std::make_unique<GraphHandler>(std::move(parts));
}

}  // namespace millrace::handlers
