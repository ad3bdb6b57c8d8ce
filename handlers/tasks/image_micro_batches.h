// The handler of picture tasks with micro_batching: pictures are read, computed
// and answered by micro-batches, which overlap within a request and between
// requests. The answers have the same bits as without.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/task.h"
#include "handlers/tasks/image_task.h"

namespace millrace::handlers {

// `parts.micro_batching` is not null.
StatusOr<std::unique_ptr<TaskHandler>> MakeMicroBatchedImageTask(
    const TaskParts& parts, std::unique_ptr<ImageAnswer> answer);

}  // namespace millrace::handlers
