// Which of a speech model's labels is the blank, and whether the file of labels
// fits the model's scores.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/tasks/labels.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

// The blank's number: what task_options say, else the label that is usually
// called so, else 0. Labels are all that `scores` have, or all but the blank,
// which is the last one then. `num_labels` is how many the scores have; -1
// becomes the number of labels.
StatusOr<int64_t> FindBlank(const TaskParts& parts, const Labels& labels,
                            const models::TensorSpec& scores,
                            int64_t* num_labels);

}  // namespace millrace::handlers
