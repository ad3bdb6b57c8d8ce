// What a request for transcripts asks for: its parameters response_format
// (json, verbose_json, text, srt, vtt), timestamp_granularities (word,
// segment), language and temperature (0); and a transcript in the form that it
// asks for.
#pragma once

#include <cstddef>
#include <string>

#include "config/base/status.h"
#include "handlers/task.h"
#include "handlers/tasks/transcript.h"

namespace millrace::handlers {

inline constexpr size_t kMaxRecordings = 16;  // of a request

enum class TranscriptFormat { kJson, kText, kSrt, kVtt };

struct TranscriptRequest {
  TranscriptFormat format = TranscriptFormat::kJson;
  TranscriptForm form;  // of kJson
};

// `language` is the model's, empty where it is not told. INVALID_ARGUMENT names
// the parameter, or says that the request has no recordings, or too many.
StatusOr<TranscriptRequest> ReadTranscriptRequest(const TaskRequest& request,
                                                  const std::string& model,
                                                  const std::string& language);

// `seconds`: of the recording.
std::string WriteTranscript(const Transcript& transcript, double seconds,
                            const TranscriptRequest& asked);
std::string ContentTypeOf(TranscriptFormat format);

}  // namespace millrace::handlers
