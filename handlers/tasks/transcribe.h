// The handler of `task: transcribe`: each part is a recording, whose text is
// answered in OpenAI's shapes (transcript.h). The graph gives scores FP32
// [1, frames, labels], logits or log-probabilities, of a CTC model; a second
// output whose name has "len" in it is the number of frames that count.
//
// Parameters of a request: response_format (json, verbose_json, text),
// timestamp_granularities (word, segment), language, temperature (0).
#pragma once

#include <memory>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/task.h"

namespace millrace::handlers {

StatusOr<std::unique_ptr<TaskHandler>> MakeTranscribeTask(
    const TaskParts& parts);

}  // namespace millrace::handlers
