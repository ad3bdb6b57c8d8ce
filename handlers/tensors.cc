// Names are checked here, types and sizes where the request is submitted. The
// batcher's thread hands its result to the pool, or to a caller that needs no
// pool, and goes on with the next batch.
#include "handlers/tensors.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

using models::TensorSpec;

constexpr size_t kMostShown = 16;

// "x FP32 [batch, 3], mask BOOL [batch]", for messages.
std::string ListText(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (size_t i = 0; i < specs.size() && i < kMostShown; ++i) {
    text += (i > 0 ? ", " : "") + specs[i].name + " " + specs[i].text;
  }
  if (specs.size() > kMostShown) {
    text += " and " + std::to_string(specs.size() - kMostShown) + " more";
  }
  return specs.empty() ? "none" : text;
}

std::optional<size_t> Find(const std::vector<TensorSpec>& specs,
                           std::string_view name) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  return std::nullopt;
}

class GraphHandler final : public TensorHandler {
 public:
  explicit GraphHandler(TensorParts parts) : parts_(std::move(parts)) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Status status = TryStart(request, done, std::move(stop));
    if (!status.ok()) done(status);
  }

  // The place is given back at once: held, it would let clients that send
  // slowly keep others out.
  Status HasPlace() const override {
    return parts_.batcher->Reserve().status();
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
    scheduler::BatchTask task;
    ASSIGN_OR_RETURN(task.inputs, InOrder(std::move(request.inputs)));
    ASSIGN_OR_RETURN(std::vector<size_t> wanted, Wanted(request.outputs));
    task.deadline = deadline;
    if (TimeoutIsOfQueue()) {
      task.queue_timeout =
          request.timeout.value_or(std::chrono::microseconds(0));
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

  StatusOr<std::vector<models::Tensor>> InOrder(
      std::vector<NamedTensor> given) const {
    const std::vector<TensorSpec>& specs = inputs();
    std::vector<models::Tensor> ordered(specs.size());
    std::vector<bool> filled(specs.size());
    for (NamedTensor& input : given) {
      const std::optional<size_t> at = Find(specs, input.name);
      if (!at) {
        return InvalidArgument("input '" + input.name +
                               "' is not one of model '" + parts_.model +
                               "', which takes " + ListText(specs))
            .At(input.name);
      }
      if (filled[*at]) {
        return InvalidArgument("input '" + input.name +
                               "' is given twice; give it once")
            .At(input.name);
      }
      filled[*at] = true;
      ordered[*at] = std::move(input.tensor);
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      if (filled[i]) continue;
      return InvalidArgument("input '" + specs[i].name +
                             "' is missing; model '" + parts_.model +
                             "' takes " + ListText(specs))
          .At(specs[i].name);
    }
    return ordered;
  }

  // Ports of the outputs asked for, in the order of the request.
  StatusOr<std::vector<size_t>> Wanted(
      const std::vector<std::string>& names) const {
    const std::vector<TensorSpec>& specs = outputs();
    std::vector<size_t> wanted;
    std::vector<bool> taken(specs.size());
    for (const std::string& name : names) {
      const std::optional<size_t> at = Find(specs, name);
      if (!at) {
        return InvalidArgument("output '" + name + "' is not one of model '" +
                               parts_.model + "', which gives " +
                               ListText(specs))
            .At(name);
      }
      if (taken[*at]) {
        return InvalidArgument("output '" + name +
                               "' is asked for twice; ask once")
            .At(name);
      }
      taken[*at] = true;
      wanted.push_back(*at);
    }
    for (size_t i = 0; names.empty() && i < specs.size(); ++i) {
      wanted.push_back(i);
    }
    return wanted;
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
    // A timeout beyond a year is none: the sum must not overflow.
    constexpr auto kYear = std::chrono::hours(24 * 365);
    if (!request.timeout || *request.timeout >= kYear || TimeoutIsOfQueue()) {
      return request.deadline;
    }
    return std::min(request.deadline,
                    parts_.clock->Now() + Clock::Duration(*request.timeout));
  }

  const TensorParts parts_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeTensorHandler(TensorParts parts) {
  return std::make_unique<GraphHandler>(std::move(parts));
}

}  // namespace millrace::handlers
