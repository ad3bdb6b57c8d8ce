// Recordings to texts by a recogniser: the task of a model whose sessions stand
// in transducer_handler.h, asked as transcribe.h says.
#pragma once

#include <memory>

#include "handlers/task.h"
#include "handlers/transducer/transducer_recogniser.h"

namespace millrace::handlers {

// The recogniser outlives the handler and its requests.
std::unique_ptr<TaskHandler> MakeTransducerTask(
    const TransducerRecogniser* recogniser);

}  // namespace millrace::handlers
