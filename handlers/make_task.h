// The handler of a model's task, by what its configuration says.
#pragma once

#include <memory>
#include <string>

#include "config/answer_settings.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/micro_batching_settings.h"
#include "config/schema.h"
#include "config/task_settings.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "handlers/task.h"

namespace millrace::handlers {

// All outlive the handler and its requests.
struct TaskParts {
  std::string model;  // for messages
  // The graph's file. What a task reads (labels, a tokenizer) stands beside it
  // or in the folder above, which all versions of a model share.
  std::string path;
  std::shared_ptr<const config::TaskSettings> settings;  // never null
  config::AnswerSettings answer = {};
  TensorHandler* tensors = nullptr;  // the graph
  Pool* pool = nullptr;
  int64_t max_rows = 1;  // of one request to the graph
  // Of all pictures of a request, as tensors that wait for the graph.
  int64_t max_input_bytes = int64_t{1} << 30;
  // Stages that overlap; null: none. Of tasks over pictures.
  std::shared_ptr<const config::MicroBatchingSettings> micro_batching = {};
  int64_t max_queue_size = config::CommonSettings::kMaxQueueSize;
  MetricRegistry* registry = nullptr;  // may be null
};

// INVALID_ARGUMENT when the task does not fit the graph's inputs and outputs,
// or a file it needs is missing or wrong.
StatusOr<std::unique_ptr<TaskHandler>> MakeTaskHandler(TaskParts parts);

// The file of that name beside the graph or in the folder above; NOT_FOUND
// says where it was looked for, INVALID_ARGUMENT that the name leads elsewhere
// ("../x").
StatusOr<std::string> FindTaskFile(const TaskParts& parts,
                                   const std::string& option,
                                   const std::string& name);

}  // namespace millrace::handlers
