// One run is one request: a table of tensors and a count of what each step
// still waits for. The table is changed under a short lock; steps are started
// and the ending is given outside of it.
#include "handlers/ensemble/ensemble.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "handlers/ensemble/condition.h"
#include "handlers/named_tensors.h"

namespace millrace::handlers {

struct EnsembleHandler::Books {
  mutable Mutex mu;
  EnsembleCounts counts GUARDED_BY(mu);
  int64_t in_flight GUARDED_BY(mu) = 0;
};

class EnsembleHandler::Run : public std::enable_shared_from_this<Run> {
 public:
  Run(std::shared_ptr<const EnsemblePlan> plan, std::shared_ptr<Books> books,
      const EnsembleParts& parts, Done done)
      : plan_(std::move(plan)),
        books_(std::move(books)),
        model_(parts.model),
        clock_(parts.clock),
        begun_(parts.clock->Now()),
        done_(std::move(done)),
        values_(plan_->tensors.size()),
        missing_(plan_->steps.size()) {
    for (size_t i = 0; i < missing_.size(); ++i) {
      missing_[i] = plan_->steps[i].num_needed;
    }
    for (size_t t = 0; t < values_.size(); ++t) {
      values_[t].makers_left = plan_->tensors[t].num_makers;
      values_[t].takers_left = plan_->tensors[t].takers.size();
    }
    for (const size_t t : plan_->outputs) ++values_[t].takers_left;
    steps_left_ = plan_->steps.size();
  }

  // The models of the steps, held until the run ends: one that is unloaded
  // meanwhile stays that long.
  std::vector<LentModel> models;
  std::vector<size_t> wanted;  // of the outputs
  SequencePlace place;         // of the request, and so of every step's
  int32_t priority = 0;
  Clock::Time deadline = kNever;
  std::shared_ptr<Trace> trace;

  void Begin(std::vector<models::Tensor> inputs, std::stop_token stop) {
    client_left_.emplace(std::move(stop), Stop{stop_});
    std::vector<Launch> launches;
    {
      MutexLock lock(mu_);
      if (!inputs.empty() && inputs[0].shape().rank() > 0) {
        rows_ = inputs[0].shape()[0];
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        Make(plan_->inputs[i], std::move(inputs[i]));
      }
      launches = Wake();
    }
    Go(std::move(launches));
  }

 private:
  struct Stop {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  struct Value {
    std::optional<models::Tensor> tensor = {};
    bool resolved = false;  // made, or never will be
    size_t makers_left = 0;
    size_t takers_left = 0;  // the tensor goes when it is 0
  };
  struct Launch {
    size_t step;
    TensorRequest request;
  };

  void Make(size_t t, models::Tensor tensor) REQUIRES(mu_) {
    values_[t].tensor = std::move(tensor);
    Resolve(t);
  }

  void Resolve(size_t t) REQUIRES(mu_) {
    values_[t].resolved = true;
    resolved_.push_back(t);
  }

  // A handle for one taker; the last one gets the tensor itself.
  models::Tensor Take(size_t t) REQUIRES(mu_) {
    Value& value = values_[t];
    if (--value.takers_left > 0) return value.tensor->Share();
    models::Tensor tensor = *std::move(value.tensor);
    value.tensor.reset();
    return tensor;
  }

  // What can start now. A step that is left out may leave out others.
  std::vector<Launch> Wake() REQUIRES(mu_) {
    std::vector<Launch> launches;
    while (!resolved_.empty()) {
      const size_t t = resolved_.back();
      resolved_.pop_back();
      for (const size_t step : plan_->tensors[t].takers) {
        if (--missing_[step] > 0) continue;
        if (Holds(step)) {
          launches.push_back({step, RequestOf(step)});
          ++running_;
        } else {
          LeaveOut(step);
        }
      }
    }
    return launches;
  }

  bool Holds(size_t i) REQUIRES(mu_) {
    const EnsemblePlan::Step& step = plan_->steps[i];
    for (const EnsemblePlan::Port& port : step.inputs) {
      if (!values_[port.tensor].tensor.has_value()) return false;
    }
    if (!step.conditional) return true;
    const auto& tested = values_[step.condition_tensor].tensor;
    return tested.has_value() && AnyCompares(*tested, step.compare, step.value);
  }

  TensorRequest RequestOf(size_t i) REQUIRES(mu_) {
    TensorRequest request;
    const EnsemblePlan::Step& step = plan_->steps[i];
    std::vector<size_t> taken;  // one tensor may go to two inputs
    for (const EnsemblePlan::Port& port : step.inputs) {
      request.inputs.push_back(
          {port.name, values_[port.tensor].tensor->Share()});
      taken.push_back(port.tensor);
    }
    if (step.conditional) taken.push_back(step.condition_tensor);
    LetGo(std::move(taken));
    for (const EnsemblePlan::Port& port : step.outputs) {
      request.outputs.push_back(port.name);
    }
    request.priority = priority;
    request.deadline = deadline;
    request.trace = std::make_shared<Trace>();
    return request;
  }

  void LetGo(std::vector<size_t> tensors) REQUIRES(mu_) {
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    for (const size_t t : tensors) {
      if (--values_[t].takers_left == 0) values_[t].tensor.reset();
    }
  }

  void LeaveOut(size_t i) REQUIRES(mu_) {
    const EnsemblePlan::Step& step = plan_->steps[i];
    std::vector<size_t> tensors;
    for (const auto& port : step.inputs) tensors.push_back(port.tensor);
    if (step.conditional) tensors.push_back(step.condition_tensor);
    LetGo(std::move(tensors));
    for (const EnsemblePlan::Port& port : step.outputs) {
      Value& value = values_[port.tensor];
      if (--value.makers_left == 0 && !value.resolved) Resolve(port.tensor);
    }
    --steps_left_;
  }

  // The models are let go of on this thread, a handler's, when no step runs.
  void LetModelsGo() EXCLUDES(mu_) {
    std::vector<LentModel> leaving;
    MutexLock lock(mu_);
    if (ended_ && running_ == 0) leaving.swap(models);
  }

  void Go(std::vector<Launch> launches) EXCLUDES(mu_) {
    for (Launch& launch : launches) {
      StartInSequence(
          models[launch.step].handler, place, std::move(launch.request),
          [self = shared_from_this(),
           step = launch.step](StatusOr<TensorResponse> response) {
            self->OnStep(step, std::move(response));
            {
              MutexLock lock(self->mu_);
              --self->running_;
            }
            self->LetModelsGo();
          },
          stop_.get_token());
    }
    if (launches.empty()) EndIfOver();
  }

  void OnStep(size_t i, StatusOr<TensorResponse> response) EXCLUDES(mu_) {
    if (!response.ok()) return Fail(i, response.status());
    const EnsemblePlan::Step& step = plan_->steps[i];
    std::vector<Launch> launches;
    Status failed;
    {
      MutexLock lock(mu_);
      if (ended_) return;
      times_.queue += response->batch.queue;
      times_.compute_input += response->batch.compute_input;
      times_.compute_infer += response->batch.compute_infer;
      times_.compute_output += response->batch.compute_output;
      for (NamedTensor& output : response->outputs) {
        const auto port = std::find_if(
            step.outputs.begin(), step.outputs.end(),
            [&](const auto& each) { return each.name == output.name; });
        if (port == step.outputs.end()) continue;
        Value& value = values_[port->tensor];
        if (value.resolved) {
          failed = FailedPrecondition(
              "two steps made tensor '" + plan_->tensors[port->tensor].name +
              "'; their conditions must exclude each other");
          break;
        }
        if (value.takers_left == 0) {
          Resolve(port->tensor);
        } else {
          Make(port->tensor, std::move(output.tensor));
        }
      }
      // An ensemble as a step may leave outputs out.
      for (const EnsemblePlan::Port& port : step.outputs) {
        Value& value = values_[port.tensor];
        if (--value.makers_left == 0 && !value.resolved) Resolve(port.tensor);
      }
      --steps_left_;
      if (failed.ok()) launches = Wake();
    }
    if (!failed.ok()) return Fail(i, failed);
    Go(std::move(launches));
  }

  void Fail(size_t i, const Status& status) EXCLUDES(mu_) {
    const std::string where = "in ensemble '" + model_ + "', step " +
                              std::to_string(i + 1) + " (model '" +
                              plan_->steps[i].model + "')";
    End(status.Prefixed(where));
  }

  void EndIfOver() EXCLUDES(mu_) {
    TensorResponse response;
    {
      MutexLock lock(mu_);
      if (ended_ || steps_left_ > 0) return;
      for (const size_t at : wanted) {
        const size_t t = plan_->outputs[at];
        if (!values_[t].tensor.has_value()) continue;
        response.outputs.push_back({plan_->tensors[t].name, Take(t)});
      }
      response.batch.rows = static_cast<int32_t>(rows_);
      response.batch.queue = times_.queue;
      response.batch.compute_input = times_.compute_input;
      response.batch.compute_infer = times_.compute_infer;
      response.batch.compute_output = times_.compute_output;
    }
    End(std::move(response));
  }

  void End(StatusOr<TensorResponse> answer) EXCLUDES(mu_) {
    Done done;
    EnsembleCounts times;
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
      done = std::move(done_);
      times = times_;
      for (Value& value : values_) value.tensor.reset();
    }
    stop_.request_stop();  // the other steps, if there are any
    const Clock::Duration took = clock_->Now() - begun_;
    {
      MutexLock lock(books_->mu);
      EnsembleCounts& counts = books_->counts;
      --books_->in_flight;
      if (answer.ok()) {
        counts.last_inference_ms =
            std::chrono::duration_cast<std::chrono::milliseconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count();
        counts.inferences += rows_;
        ++counts.num_success;
        counts.success_time += took;
        counts.queue += times.queue;
        counts.compute_input += times.compute_input;
        counts.compute_infer += times.compute_infer;
        counts.compute_output += times.compute_output;
      } else {
        ++counts.num_failure;
        counts.failure_time += took;
      }
    }
    done(std::move(answer));
  }

  const std::shared_ptr<const EnsemblePlan> plan_;
  const std::shared_ptr<Books> books_;
  const std::string model_;
  const Clock* const clock_;
  const Clock::Time begun_;
  std::stop_source stop_;
  std::optional<std::stop_callback<Stop>> client_left_;
  int64_t rows_ = 1;  // before the first step starts

  Mutex mu_;
  bool ended_ GUARDED_BY(mu_) = false;
  Done done_ GUARDED_BY(mu_);
  std::vector<Value> values_ GUARDED_BY(mu_);    // by tensor
  std::vector<size_t> missing_ GUARDED_BY(mu_);  // tensors, by step
  std::vector<size_t> resolved_ GUARDED_BY(mu_);
  size_t steps_left_ GUARDED_BY(mu_);
  int64_t running_ GUARDED_BY(mu_) = 0;  // steps
  EnsembleCounts times_ GUARDED_BY(mu_);
};

EnsembleHandler::EnsembleHandler(EnsembleParts parts, EnsemblePlan plan)
    : parts_(std::move(parts)),
      plan_(std::make_shared<const EnsemblePlan>(std::move(plan))),
      books_(std::make_shared<Books>()) {}

EnsembleHandler::~EnsembleHandler() = default;

void EnsembleHandler::StartAt(SequencePlace place, TensorRequest request,
                              Done done, std::stop_token stop) {
  const Status status =
      TryStart(std::move(place), request, done, std::move(stop));
  if (!status.ok()) done(status);
}

Status EnsembleHandler::TryStart(SequencePlace place, TensorRequest& request,
                                 const Done& done, std::stop_token stop) {
  auto run = std::make_shared<Run>(plan_, books_, parts_, done);
  ASSIGN_OR_RETURN(
      std::vector<models::Tensor> inputs,
      InputsInOrder(std::move(request.inputs), this->inputs(), parts_.model));
  for (size_t i = 0; i < inputs.size(); ++i) {
    RETURN_IF_ERROR(CheckFits(this->inputs()[i], inputs[i], parts_.model));
  }
  ASSIGN_OR_RETURN(run->wanted,
                   OutputsWanted(request.outputs, outputs(), parts_.model));
  for (const EnsemblePlan::Step& step : plan_->steps) {
    StatusOr<LentModel> lent =
        parts_.lender->LendForRequest(parts_.model, step.model, step.version);
    if (!lent.ok()) return NotReady(lent.status());
    run->models.push_back(*std::move(lent));
  }
  run->place = std::move(place);
  run->priority = request.priority;
  run->deadline =
      EarlierDeadline(request.deadline, request.timeout, *parts_.clock);
  run->trace = std::move(request.trace);
  {
    MutexLock lock(books_->mu);
    if (books_->in_flight >= parts_.max_in_flight) {
      return ResourceExhausted(
                 "the ensemble '" + parts_.model + "' has " +
                 std::to_string(books_->in_flight) +
                 " requests under way, as many as max_queue_size allows; try "
                 "again later")
          .RetryAfterMs(1000);
    }
    ++books_->in_flight;
  }
  run->Begin(std::move(inputs), std::move(stop));
  return OkStatus();
}

Status EnsembleHandler::NotReady(const Status& member) const {
  return Unavailable("the ensemble '" + parts_.model +
                     "' is not ready: " + std::string(member.message()))
      .At("model")
      .Because("not_ready")
      .RetryAfterMs(1000);
}

Status EnsembleHandler::HasPlace() const {
  for (const EnsemblePlan::Step& step : plan_->steps) {
    const StatusOr<LentModel> lent =
        parts_.lender->Lend(parts_.model, step.model, step.version);
    if (!lent.ok()) return NotReady(lent.status());
    RETURN_IF_ERROR(lent->handler->HasPlace());
  }
  return OkStatus();
}

Status EnsembleHandler::Takes() const {
  for (const EnsemblePlan::Step& step : plan_->steps) {
    const Status lent =
        parts_.lender->Lend(parts_.model, step.model, step.version).status();
    if (!lent.ok()) return NotReady(lent);
  }
  return OkStatus();
}

Status EnsembleHandler::Ready() const {
  for (const EnsemblePlan::Step& step : plan_->steps) {
    const Status ready =
        parts_.lender->Ready(parts_.model, step.model, step.version);
    if (!ready.ok()) return NotReady(ready);
  }
  return OkStatus();
}

EnsembleCounts EnsembleHandler::counts() const {
  MutexLock lock(books_->mu);
  return books_->counts;
}

int64_t EnsembleHandler::in_flight() const {
  MutexLock lock(books_->mu);
  return books_->in_flight;
}

}  // namespace millrace::handlers
