// From an encoded request to the engine's task: how many tokens it may have,
// and every sampling parameter filled in from the request, the model's defaults
// or the task's. Thread-safe, no side effects but for the seed it may draw.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"
#include "handlers/generate.h"
#include "handlers/messages.h"
#include "handlers/output_processor.h"
#include "scheduler/request.h"

namespace millrace::handlers {

// `prompt` is what EncodePrompt gave. INVALID_ARGUMENT when the request asks
// for more tokens than the context has left. Token ids are checked by the
// engine.
StatusOr<scheduler::GenerateTask> MakeTask(const GenerateParts& parts,
                                           const GenerateRequest& request,
                                           std::vector<int32_t> prompt);

// How the output of that task is turned into text. The parts' tokenizer is
// borrowed.
OutputProcessor::Options OutputOptionsOf(const GenerateParts& parts,
                                         const GenerateRequest& request,
                                         const scheduler::GenerateTask& task);

}  // namespace millrace::handlers
