// What a request for transcripts asks for: its parameters response_format
// (json, verbose_json, text), timestamp_granularities (word, segment), language
// and temperature (0).
#pragma once

#include <cstddef>
#include <string>

#include "config/base/status.h"
#include "handlers/task.h"
#include "handlers/tasks/transcript.h"

namespace millrace::handlers {

inline constexpr size_t kMaxRecordings = 16;  // of a request

struct TranscriptRequest {
  TranscriptForm form;
  bool as_text = false;
};

// `language` is the model's, empty where it is not told. INVALID_ARGUMENT names
// the parameter, or says that the request has no recordings, or too many.
StatusOr<TranscriptRequest> ReadTranscriptRequest(const TaskRequest& request,
                                                  const std::string& model,
                                                  const std::string& language);

}  // namespace millrace::handlers
