// The handler of task `token_classify`: each part of a request is a text, whose
// tokens the graph labels and whose entities are the answer, as transformers'
// TokenClassificationPipeline gives them:
//
//   [{"entity_group": "PER", "score": 0.99, "word": "Ada", "start": 0,
//     "end": 3}]
//
// `start` and `end` count characters of the text. Parameters of a request:
// aggregation_strategy, ignore_labels, truncate.
#pragma once

#include <memory>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/task.h"
#include "handlers/texts/text_task.h"

namespace millrace::handlers {

StatusOr<std::unique_ptr<TaskHandler>> MakeTokenTask(const TaskParts& parts);

// What scores the tokens of such a task's texts: a row has the scores of each
// of its tokens in turn. Null of another task; lives as long as `task`.
TextHandler* TokenScores(TaskHandler* task);

}  // namespace millrace::handlers
