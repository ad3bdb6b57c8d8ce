#include "handlers/tasks/transcript_request.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/subtitles.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

struct FormatName {
  std::string_view name;
  TranscriptFormat format;
};
constexpr FormatName kFormats[] = {
    {"json", TranscriptFormat::kJson},
    {"text", TranscriptFormat::kText},
    {"srt", TranscriptFormat::kSrt},
    {"verbose_json", TranscriptFormat::kJson},
    {"vtt", TranscriptFormat::kVtt},
};

Status ReadFormat(const Json& parameters, size_t num_recordings,
                  TranscriptRequest* asked) {
  ASSIGN_OR_RETURN(const auto given, ReadString(parameters, "response_format"));
  const std::string name = given.value_or("json");
  const auto* const found =
      std::ranges::find(kFormats, name, &FormatName::name);
  if (found == std::end(kFormats)) {
    return InvalidArgument(
               "response_format is '" + Shortened(name, 60) +
               "' but must be one of: json, text, srt, verbose_json, vtt")
        .At("response_format");
  }
  asked->format = found->format;
  asked->form.verbose = name == "verbose_json";
  if (asked->format == TranscriptFormat::kJson || num_recordings == 1) {
    return OkStatus();
  }
  return InvalidArgument("response_format is " + name +
                         ", which is for one recording, and the request has " +
                         std::to_string(num_recordings))
      .At("response_format");
}

Status BadGranularity(const std::string& name) {
  return InvalidArgument("timestamp_granularities has '" + Shortened(name, 60) +
                         "' but may have word and segment")
      .At("timestamp_granularities");
}

Status ReadGranularities(const Json& parameters, TranscriptForm* form) {
  const Json* given = FindField(parameters, "timestamp_granularities");
  if (given == nullptr) return OkStatus();
  const Json list = given->is_array() ? *given : Json::array({*given});
  if (list.empty()) return OkStatus();
  form->has_segments = false;
  for (const Json& each : list) {
    ASSIGN_OR_RETURN(const std::string name,
                     AsString(each, "timestamp_granularities"));
    if (name == "word") {
      form->has_words = true;
    } else if (name == "segment") {
      form->has_segments = true;
    } else {
      return BadGranularity(name);
    }
  }
  if (form->verbose) return OkStatus();
  return InvalidArgument(
             "timestamp_granularities needs response_format verbose_json")
      .At("timestamp_granularities");
}

Status ReadLanguage(const Json& parameters, const std::string& model,
                    const std::string& own, TranscriptForm* form) {
  ASSIGN_OR_RETURN(const auto asked, ReadString(parameters, "language"));
  form->language = own.empty() ? asked.value_or("") : own;
  if (own.empty() || !asked.has_value() || asked->empty() || *asked == own) {
    return OkStatus();
  }
  return InvalidArgument("language is '" + Shortened(*asked, 60) +
                         "' but model '" + model + "' transcribes '" + own +
                         "'; leave it out, or ask another model")
      .At("language");
}

}  // namespace

StatusOr<TranscriptRequest> ReadTranscriptRequest(const TaskRequest& request,
                                                  const std::string& model,
                                                  const std::string& language) {
  if (request.parts.empty() || request.parts.size() > kMaxRecordings) {
    return InvalidArgument(
               "the request has " + std::to_string(request.parts.size()) +
               " recordings but 1 to " + std::to_string(kMaxRecordings) +
               " are taken; send them in several requests")
        .At("inputs");
  }
  static const Json kNone = Json::object();
  const Json& parameters =
      request.parameters == nullptr ? kNone : *request.parameters;
  TranscriptRequest asked;
  RETURN_IF_ERROR(ReadFormat(parameters, request.parts.size(), &asked));
  RETURN_IF_ERROR(ReadGranularities(parameters, &asked.form));
  RETURN_IF_ERROR(ReadLanguage(parameters, model, language, &asked.form));
  // Nothing is drawn here: 0 is what is done.
  RETURN_IF_ERROR(
      ReadNumber(parameters, "temperature", {.min = 0, .max = 0}).status());
  return asked;
}

std::string WriteTranscript(const Transcript& transcript, double seconds,
                            const TranscriptRequest& asked) {
  switch (asked.format) {
    case TranscriptFormat::kJson:
      return TranscriptJson(transcript, seconds, asked.form);
    case TranscriptFormat::kText:
      return transcript.text + "\n";
    case TranscriptFormat::kSrt:
      return SubRip(transcript.words);
    case TranscriptFormat::kVtt:
      return WebVtt(transcript.words);
  }
  return {};
}

std::string ContentTypeOf(TranscriptFormat format) {
  switch (format) {
    case TranscriptFormat::kJson:
      return "application/json";
    case TranscriptFormat::kText:
    case TranscriptFormat::kSrt:
      return "text/plain; charset=utf-8";
    case TranscriptFormat::kVtt:
      return "text/vtt; charset=utf-8";
  }
  return {};
}

}  // namespace millrace::handlers
