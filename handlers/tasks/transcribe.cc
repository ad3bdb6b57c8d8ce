#include "handlers/tasks/transcribe.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/out_of_memory.h"
#include "config/task_settings.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/audio_input.h"
#include "handlers/tasks/ctc.h"
#include "handlers/tasks/item_gather.h"
#include "handlers/tasks/labels.h"
#include "handlers/tasks/transcript.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using models::TensorSpec;

constexpr size_t kMaxRecordings = 16;
// Of all recordings of a request, as tensors that wait for the graph.
constexpr int64_t kMaxInputBytes = int64_t{1} << 30;
constexpr std::string_view kBlanks[] = {"<blank>", "<blk>", "<pad>", "[PAD]"};

// What the graph gives, and what its numbers mean.
struct CtcOutput {
  size_t scores = 0;                 // which output
  std::optional<size_t> num_frames;  // likewise
  int64_t num_labels = -1;           // -1: differs
  int64_t blank = 0;
};

Status NoScores(const TaskParts& parts) {
  std::string has;
  for (const TensorSpec& spec : parts.tensors->outputs()) {
    has += (has.empty() ? "'" : ", '") + spec.name + "' " + spec.text;
  }
  return InvalidArgument(
             "task 'transcribe' needs an output FP32 [1, frames, labels], and "
             "the graph has " +
             has)
      .At("task");
}

StatusOr<CtcOutput> FindOutput(const TaskParts& parts) {
  CtcOutput found;
  std::optional<size_t> scores;
  const std::vector<TensorSpec>& outputs = parts.tensors->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = outputs[i];
    const bool can_be_scores =
        spec.dtype == DType::kF32 &&
        (!spec.rank_known || spec.dims.size() == 3 || spec.dims.size() == 2);
    if (!scores.has_value() && can_be_scores) {
      scores = i;
      if (spec.rank_known) found.num_labels = spec.dims.back();
    } else if ((spec.dtype == DType::kI64 || spec.dtype == DType::kI32) &&
               spec.name.find("len") != std::string::npos) {
      found.num_frames = i;
    }
  }
  if (!scores.has_value()) return NoScores(parts);
  found.scores = *scores;
  return found;
}

// The number of a label's name, or the number that the text is; -1 is the last.
std::optional<int64_t> LabelNumber(const Labels& labels,
                                   const std::string& text,
                                   int64_t num_labels) {
  for (int64_t i = 0; i < labels.size(); ++i) {
    if (labels.NameOf(i) == text) return i;
  }
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  if (number < 0) number += num_labels;
  if (number < 0 || number >= num_labels) return std::nullopt;
  return number;
}

// Labels are all that the scores have, or all but the blank, which is the last
// one then.
Status FitLabels(const TaskParts& parts, const Labels& labels,
                 CtcOutput* output) {
  if (labels.size() == 0) {
    return InvalidArgument(
               "labels is missing; task 'transcribe' needs the file with the "
               "texts of its labels")
        .At("task_options.labels");
  }
  const bool without_blank = output->num_labels == labels.size() + 1;
  if (output->num_labels < 0) output->num_labels = labels.size();
  if (!without_blank && output->num_labels != labels.size()) {
    const TensorSpec& spec = parts.tensors->outputs()[output->scores];
    return InvalidArgument("labels has " + std::to_string(labels.size()) +
                           " names but '" + spec.name + "' is " + spec.text)
        .At("task_options.labels");
  }
  const std::string& blank = parts.answer.transcript.blank;
  if (blank.empty()) {
    output->blank = without_blank ? labels.size() : 0;
    for (const std::string_view name : kBlanks) {
      const auto number =
          LabelNumber(labels, std::string(name), output->num_labels);
      if (without_blank || !number.has_value()) continue;
      output->blank = *number;
      break;
    }
    return OkStatus();
  }
  const auto number = LabelNumber(labels, blank, output->num_labels);
  if (!number.has_value()) {
    return InvalidArgument("blank is '" + blank.substr(0, 100) +
                           "' but must be one of the " +
                           std::to_string(output->num_labels) +
                           " labels or a number below that")
        .At("task_options.blank");
  }
  output->blank = *number;
  return OkStatus();
}

// What a request asks for.
struct Asked {
  TranscriptForm form;
  bool as_text = false;
};

Status BadGranularity(const std::string& name) {
  return InvalidArgument("timestamp_granularities has '" + name.substr(0, 60) +
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

class TranscribeTask final : public TaskHandler {
 public:
  TranscribeTask(TaskParts parts, AudioInput input, Labels labels,
                 CtcOutput output)
      : parts_(std::move(parts)),
        input_(std::move(input)),
        labels_(std::move(labels)),
        output_(output) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    StatusOr<Asked> asked = Check(request);
    if (!asked.ok()) return done(asked.status());
    const size_t count = request.parts.size();
    const auto gather =
        std::make_shared<ItemGather>(count, std::move(done), stop);
    if (asked->as_text) gather->SetContentType("text/plain; charset=utf-8");
    int64_t bytes_left = kMaxInputBytes;
    for (size_t i = 0; i < count; ++i) {
      Status status =
          stop.stop_requested()
              ? Cancelled("the client left")
              : CatchOutOfMemory([&] {
                  return StartOne(request, i, *asked, gather, bytes_left);
                });
      if (status.ok()) continue;
      if (count > 1) {
        status = status.Prefixed("recording " + std::to_string(i));
      }
      // The rest is not begun.
      return gather->Finish(i, status, count - i);
    }
  }

  Status HasPlace() const override { return parts_.tensors->HasPlace(); }

 private:
  StatusOr<Asked> Check(const TaskRequest& request) const {
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
    Asked asked;
    ASSIGN_OR_RETURN(const auto format,
                     ReadString(parameters, "response_format"));
    const std::string name = format.value_or("json");
    asked.as_text = name == "text";
    asked.form.verbose = name == "verbose_json";
    if (name != "json" && !asked.as_text && !asked.form.verbose) {
      return InvalidArgument("response_format is '" + name.substr(0, 60) +
                             "' but must be one of: json, text, verbose_json")
          .At("response_format");
    }
    if (asked.as_text && request.parts.size() > 1) {
      return InvalidArgument(
                 "response_format is text, which is for one recording, and "
                 "the request has " +
                 std::to_string(request.parts.size()))
          .At("response_format");
    }
    RETURN_IF_ERROR(ReadGranularities(parameters, &asked.form));
    RETURN_IF_ERROR(ReadLanguage(parameters, &asked.form));
    // Nothing is drawn here: 0 is what is done.
    RETURN_IF_ERROR(
        ReadNumber(parameters, "temperature", {.min = 0, .max = 0}).status());
    return asked;
  }

  Status ReadLanguage(const Json& parameters, TranscriptForm* form) const {
    const std::string& own = parts_.answer.transcript.language;
    ASSIGN_OR_RETURN(const auto asked, ReadString(parameters, "language"));
    form->language = own.empty() ? asked.value_or("") : own;
    if (own.empty() || !asked.has_value() || asked->empty() || *asked == own) {
      return OkStatus();
    }
    return InvalidArgument("language is '" + asked->substr(0, 60) +
                           "' but model '" + parts_.model + "' transcribes '" +
                           own + "'; leave it out, or ask another model")
        .At("language");
  }

  // What fails here is the recording's fault, or there is no place.
  Status StartOne(TaskRequest& request, size_t item_idx, const Asked& asked,
                  const std::shared_ptr<ItemGather>& gather,
                  int64_t& bytes_left) const {
    RETURN_IF_ERROR(HasPlace());  // before the work of decoding
    ASSIGN_OR_RETURN(AudioRow row, input_.Read(request.parts[item_idx]));
    request.parts[item_idx].bytes = {};
    TensorRequest one;
    for (NamedTensor& input : row.inputs) {
      bytes_left -= input.tensor.num_bytes();
      one.inputs.push_back(std::move(input));
    }
    if (bytes_left < 0) {
      return InvalidArgument("the recordings of the request become more than " +
                             std::to_string(kMaxInputBytes) +
                             " bytes of input; send them in several requests")
          .At("inputs");
    }
    one.priority = request.priority;
    one.deadline = request.deadline;
    one.trace = request.trace;
    parts_.tensors->Start(
        std::move(one),
        [this, gather, item_idx, asked, seconds = row.seconds,
         input_seconds =
             row.input_seconds](const StatusOr<TensorResponse>& outputs) {
          gather->FinishWith(item_idx, outputs, [&](const auto& found) {
            return Answer(found, asked, seconds, input_seconds);
          });
        },
        gather->stop_token());
    return OkStatus();
  }

  StatusOr<std::string> Answer(const TensorResponse& response,
                               const Asked& asked, double seconds,
                               double input_seconds) const {
    const models::Tensor& tensor = response.outputs[output_.scores].tensor;
    const models::Shape& shape = tensor.shape();
    const bool has_batch = shape.rank() == 3;
    if (tensor.dtype() != DType::kF32 || shape.rank() < 2 || shape.rank() > 3 ||
        (has_batch && shape[0] != 1) ||
        shape[shape.rank() - 1] != output_.num_labels) {
      return Internal("the model's scores are " + shape.ToString() +
                      ", which is not [1, frames, " +
                      std::to_string(output_.num_labels) + "]");
    }
    const int64_t num_frames = shape[shape.rank() - 2];
    const auto num_labels = static_cast<size_t>(output_.num_labels);
    const int64_t valid = std::min(num_frames, FramesThatCount(response));
    const CtcScores scores = {
        .values = {tensor.data<float>(),
                   static_cast<size_t>(valid) * num_labels},
        .num_labels = num_labels};
    const int64_t width = parts_.answer.transcript.beam_width;
    ASSIGN_OR_RETURN(const std::vector<CtcToken> tokens,
                     width == 1 ? GreedyCtc(scores, output_.blank)
                                : BeamCtc(scores, output_.blank,
                                          static_cast<size_t>(width)));
    const double per_frame =
        num_frames == 0 ? 0 : input_seconds / static_cast<double>(num_frames);
    const Transcript transcript = MakeTranscript(
        tokens, labels_, parts_.answer.transcript.word_delimiter, per_frame);
    if (asked.as_text) return transcript.text + "\n";
    return TranscriptJson(transcript, seconds, asked.form);
  }

  int64_t FramesThatCount(const TensorResponse& response) const {
    if (!output_.num_frames.has_value()) return INT64_MAX;
    const models::Tensor& tensor = response.outputs[*output_.num_frames].tensor;
    if (tensor.num_elements() != 1) return INT64_MAX;
    return std::max<int64_t>(0, tensor.dtype() == DType::kI64
                                    ? *tensor.data<int64_t>()
                                    : *tensor.data<int32_t>());
  }

  const TaskParts parts_;
  const AudioInput input_;
  const Labels labels_;
  const CtcOutput output_;
};

}  // namespace

StatusOr<std::unique_ptr<TaskHandler>> MakeTranscribeTask(
    const TaskParts& parts) {
  ASSIGN_OR_RETURN(AudioInput input, AudioInput::Create(parts));
  ASSIGN_OR_RETURN(Labels labels, Labels::Load(parts));
  ASSIGN_OR_RETURN(CtcOutput output, FindOutput(parts));
  RETURN_IF_ERROR(FitLabels(parts, labels, &output));
  return std::make_unique<TranscribeTask>(parts, std::move(input),
                                          std::move(labels), output);
}

}  // namespace millrace::handlers
