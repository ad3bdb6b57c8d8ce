#include "handlers/task_tensors.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "config/base/out_of_memory.h"
#include "handlers/forwarding_handler.h"
#include "handlers/task_forms.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

constexpr const char* kOutput = "output";

class TaskTensors final : public ForwardingHandler, public HasTaskForms {
 public:
  TaskTensors(std::unique_ptr<TensorHandler> graph, TaskHandler* task,
              Pool* pool)
      : ForwardingHandler(std::move(graph)), task_(task), pool_(pool) {}

  std::vector<TaskForm> task_forms() const override {
    return {{.inputs = {{.name = "",
                         .dtype = models::kString,
                         .dims = {},
                         .rank_known = false,
                         .text = "BYTES"}},
             .outputs = {{.name = kOutput,
                          .dtype = models::kString,
                          .dims = {-1},
                          .text = "BYTES [-1]"}}}};
  }

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    if (request.inputs.size() != 1 ||
        request.inputs[0].tensor.dtype() != models::kString) {
      return inner().Start(std::move(request), std::move(done),
                           std::move(stop));
    }
    for (const std::string& name : request.outputs) {
      if (name == kOutput) continue;
      return done(InvalidArgument("output '" + name +
                                  "' is not what a task over BYTES gives: '" +
                                  kOutput + "'")
                      .At(name));
    }
    auto read = CatchOutOfMemory(
        [&]() -> StatusOr<TaskRequest> { return Read(request); });
    if (!read.ok()) return done(read.status());
    // Items are decoded on the pool. Shared because its tasks can be copied.
    auto held = std::make_shared<TaskRequest>(*std::move(read));
    pool_->Continue(
        [this, held, done = std::move(done), stop = std::move(stop)] {
          task_->Start(
              std::move(*held),
              [done](const StatusOr<TaskResponse>& answer) {
                done(CatchOutOfMemory([&]() -> StatusOr<TensorResponse> {
                  RETURN_IF_ERROR(answer.status());
                  return ResponseOf(*answer);
                }));
              },
              stop);
        });
  }

 private:
  static TaskRequest Read(const TensorRequest& request) {
    TaskRequest task;
    const NamedTensor& input = request.inputs[0];
    for (const std::string_view item : models::StringsIn(input.tensor)) {
      task.parts.push_back({.name = input.name, .bytes = std::string(item)});
    }
    task.priority = request.priority;
    task.deadline =
        EarlierDeadline(request.deadline, request.timeout, Clock::Real());
    task.trace = request.trace;
    return task;
  }

  static TensorResponse ResponseOf(const TaskResponse& answer) {
    const std::vector<std::string_view> results(answer.results.begin(),
                                                answer.results.end());
    const auto num_items = static_cast<int64_t>(results.size());
    TensorResponse response;
    response.outputs.push_back(
        {kOutput, models::MakeStrings({num_items}, results)});
    response.batch.rows = static_cast<int32_t>(num_items);
    return response;
  }

  TaskHandler* const task_;
  Pool* const pool_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeTaskTensors(
    std::unique_ptr<TensorHandler> graph, TaskHandler* task, Pool* pool) {
  return std::make_unique<TaskTensors>(std::move(graph), task, pool);
}

}  // namespace millrace::handlers
