#include "handlers/tasks/transcribe.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/out_of_memory.h"
#include "config/task_settings.h"
#include "handlers/place_in_time.h"
#include "handlers/tasks/audio_input.h"
#include "handlers/tasks/blank.h"
#include "handlers/tasks/ctc.h"
#include "handlers/tasks/item_gather.h"
#include "handlers/tasks/labels.h"
#include "handlers/tasks/transcript.h"
#include "handlers/tasks/transcript_request.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::TensorSpec;

// Of all recordings of a request, as tensors that wait for the graph.
constexpr int64_t kMaxInputBytes = int64_t{1} << 30;

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

class TranscribeTask final : public TaskHandler {
 public:
  TranscribeTask(TaskParts parts, AudioInput input, Labels labels,
                 CtcOutput output)
      : parts_(std::move(parts)),
        input_(std::move(input)),
        labels_(std::move(labels)),
        output_(output) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    StatusOr<TranscriptRequest> asked = ReadTranscriptRequest(
        request, parts_.model, parts_.answer.transcript.language);
    if (!asked.ok()) return done(asked.status());
    const size_t count = request.parts.size();
    const auto gather =
        std::make_shared<ItemGather>(count, std::move(done), stop);
    gather->SetContentType(ContentTypeOf(asked->format));
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
  // What fails here is the recording's fault, or there is no place.
  Status StartOne(TaskRequest& request, size_t item_idx,
                  const TranscriptRequest& asked,
                  const std::shared_ptr<ItemGather>& gather,
                  int64_t& bytes_left) const {
    // Before the work of decoding, which a response cache needs.
    RETURN_IF_ERROR(HasPlaceBy(*parts_.tensors, request.deadline));
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
                               const TranscriptRequest& asked, double seconds,
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
    return WriteTranscript(transcript, seconds, asked);
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
  ASSIGN_OR_RETURN(
      output.blank,
      FindBlank(parts, labels, parts.tensors->outputs()[output.scores],
                &output.num_labels));
  return std::make_unique<TranscribeTask>(parts, std::move(input),
                                          std::move(labels), output);
}

}  // namespace millrace::handlers
