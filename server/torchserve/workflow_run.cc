// Source: TorchServe 0.12 names parts and answers so (DagExecutor).
#include "server/torchserve/workflow_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/mutex.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

// A later attempt may do better.
bool IsWorthRetrying(const Status& status) {
  return status.code() == StatusCode::kInternal ||
         status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kResourceExhausted;
}

// Thread-safe. Shared by the predictions that run.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const WorkflowParts& parts, std::shared_ptr<const Workflow> workflow,
      PredictionCall call, PredictionDone done)
      : parts_(parts),
        workflow_(std::move(workflow)),
        nodes_(workflow_->spec.nodes),
        call_(std::move(call)),
        states_(nodes_.size()),
        done_(std::move(done)) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      states_[i].inputs.resize(nodes_[i].inputs.size());
      states_[i].num_missing = nodes_[i].inputs.size();
      if (nodes_[i].outputs.empty()) ++num_answers_missing_;
    }
  }

  void Start(std::vector<handlers::TaskPart> request) {
    client_.emplace(call_.stop, [weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->stop_.request_stop();
    });
    {
      MutexLock lock(mu_);
      states_[0].inputs = std::move(request);
    }
    call_.trace->Stamp(Stage::kParsed, call_.clock->Now());
    StartNode(0, 1);
  }

 private:
  struct NodeState {
    std::vector<handlers::TaskPart> inputs;  // until its last attempt
    size_t num_missing = 0;
    std::optional<PredictionBody> answer;  // of a last node
  };

  // On the pool.
  void StartNode(size_t idx, int64_t attempt) {
    const WorkflowNode& node = nodes_[idx];
    std::vector<handlers::TaskPart> inputs;
    {
      MutexLock lock(mu_);
      if (!done_) return;
      if (attempt < node.limits.retry_attempts) {
        inputs = states_[idx].inputs;
      } else {
        inputs = std::move(states_[idx].inputs);
      }
    }
    const Status status = TryNode(idx, attempt, std::move(inputs));
    if (!status.ok()) Ended(idx, attempt, status);
  }

  Status TryNode(size_t idx, int64_t attempt,
                 std::vector<handlers::TaskPart> inputs) {
    const WorkflowNode& node = nodes_[idx];
    ASSIGN_OR_RETURN(
        Prediction prediction,
        FindPrediction(
            *parts_.registry, workflow_->ModelOf(node), "",
            [&](const std::string& name, const std::string& version) {
              return parts_.repository->Borrow(name, version);
            }));
    auto trace = std::make_shared<Trace>();  // of its own: nodes run together
    trace->request_id = call_.trace->request_id;
    return StartPrediction(
        std::move(prediction), std::move(inputs),
        {.clock = call_.clock,
         .deadline = std::min(call_.deadline,
                              call_.clock->Now() + std::chrono::milliseconds(
                                                       node.limits.timeout_ms)),
         .priority = call_.priority,
         .trace = std::move(trace),
         .stop = stop_.get_token()},
        [self = shared_from_this(), idx,
         attempt](StatusOr<PredictionBody> body) {
          self->Ended(idx, attempt, std::move(body));
        });
  }

  void Ended(size_t idx, int64_t attempt, StatusOr<PredictionBody> body) {
    const WorkflowNode& node = nodes_[idx];
    if (!body.ok()) return Failed(idx, attempt, body.status());
    std::vector<size_t> ready;
    PredictionDone done;
    {
      MutexLock lock(mu_);
      if (!done_) return;
      for (const size_t next : node.outputs) {
        GiveTo(next, idx, *body);
        if (--states_[next].num_missing == 0) ready.push_back(next);
      }
      if (node.outputs.empty()) {
        states_[idx].answer = *std::move(body);
        if (--num_answers_missing_ == 0) done = std::exchange(done_, nullptr);
      }
    }
    for (const size_t next : ready) Post(next, 1);
    if (done) done(Answer());
  }

  void Failed(size_t idx, int64_t attempt, const Status& status) {
    const WorkflowNode& node = nodes_[idx];
    const bool again = attempt < node.limits.retry_attempts &&
                       IsWorthRetrying(status) && !stop_.stop_requested() &&
                       call_.clock->Now() < call_.deadline;
    if (again) return Post(idx, attempt + 1);
    PredictionDone done;
    {
      MutexLock lock(mu_);
      done = std::exchange(done_, nullptr);
    }
    stop_.request_stop();
    if (!done) return;
    // The client's own deadline has a status of its own, a node's has none.
    const bool too_slow = status.code() == StatusCode::kDeadlineExceeded &&
                          call_.clock->Now() < call_.deadline;
    done((too_slow ? Internal(status.message()) : status)
             .Prefixed("Error executing " + node.name));
  }

  void Post(size_t idx, int64_t attempt) {
    parts_.pool->Continue([self = shared_from_this(), idx, attempt] {
      self->StartNode(idx, attempt);
    });
  }

  // The inputs of a node stand in its own order, whichever came first.
  void GiveTo(size_t to, size_t from, const PredictionBody& body)
      REQUIRES(mu_) {
    const std::vector<size_t>& inputs = nodes_[to].inputs;
    const auto at = std::find(inputs.begin(), inputs.end(), from);
    states_[to].inputs[static_cast<size_t>(at - inputs.begin())] = {
        .name = inputs.size() == 1 ? "body" : nodes_[from].name,
        .content_type = body.content_type,
        .bytes = body.text};
  }

  // All nodes have ended.
  PredictionBody Answer() {
    MutexLock lock(mu_);
    std::vector<size_t> last;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].outputs.empty()) last.push_back(i);
    }
    if (last.size() == 1) return *std::move(states_[last[0]].answer);
    Json all = Json::object();
    for (const size_t i : last) {
      std::string& text = states_[i].answer->text;
      StatusOr<Json> value = ParseJson(text);
      all[nodes_[i].name] =
          value.ok() ? *std::move(value) : Json(std::move(text));
    }
    return {.text = DumpJson(all)};
  }

  const WorkflowParts parts_;
  const std::shared_ptr<const Workflow> workflow_;
  const std::vector<WorkflowNode>& nodes_;  // of the workflow
  const PredictionCall call_;
  std::stop_source stop_;  // of all nodes
  Mutex mu_;
  std::vector<NodeState> states_ GUARDED_BY(mu_);
  size_t num_answers_missing_ GUARDED_BY(mu_) = 0;
  PredictionDone done_ GUARDED_BY(mu_);  // null: the request has its answer
  std::optional<std::stop_callback<std::function<void()>>> client_;
};

}  // namespace

void RunWorkflow(const WorkflowParts& parts,
                 std::shared_ptr<const Workflow> workflow,
                 std::vector<handlers::TaskPart> request, PredictionCall call,
                 PredictionDone done) {
  std::make_shared<Run>(parts, std::move(workflow), std::move(call),
                        std::move(done))
      ->Start(std::move(request));
}

}  // namespace millrace::server::torchserve
