#include "handlers/transducer/transducer_task.h"

#include <string>
#include <utility>

#include "config/base/out_of_memory.h"
#include "config/task_settings.h"
#include "handlers/tasks/audio_input.h"
#include "handlers/tasks/item_gather.h"
#include "handlers/tasks/transcript_request.h"

namespace millrace::handlers {
namespace {

class TransducerTask final : public TaskHandler {
 public:
  explicit TransducerTask(const TransducerRecogniser* recogniser)
      : recogniser_(*recogniser) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    const TaskParts& parts = recogniser_.parts();
    StatusOr<TranscriptRequest> asked = ReadTranscriptRequest(
        request, parts.model, parts.answer.transcript.language);
    if (!asked.ok()) return done(asked.status());
    const size_t count = request.parts.size();
    const auto gather =
        std::make_shared<ItemGather>(count, std::move(done), stop);
    gather->SetContentType(ContentTypeOf(asked->format));
    for (size_t i = 0; i < count; ++i) {
      Status status = stop.stop_requested()
                          ? Cancelled("the client left")
                          : CatchOutOfMemory([&] {
                              return StartOne(request, i, *asked, gather);
                            });
      if (status.ok()) continue;
      if (count > 1) {
        status = status.Prefixed("recording " + std::to_string(i));
      }
      // The rest is not begun.
      return gather->Finish(i, status, count - i);
    }
  }

  Status HasPlace() const override { return recogniser_.HasPlace(); }

 private:
  Status StartOne(TaskRequest& request, size_t item_idx,
                  const TranscriptRequest& asked,
                  const std::shared_ptr<ItemGather>& gather) const {
    TransducerRecogniser::Request run;
    // Before the work of decoding.
    ASSIGN_OR_RETURN(run.place, recogniser_.Reserve());
    ASSIGN_OR_RETURN(
        run.samples,
        ReadRecording(request.parts[item_idx],
                      WaveformOptionsOf(recogniser_.parts().settings->audio)));
    request.parts[item_idx].bytes = {};
    run.is_last = true;
    run.priority = request.priority;
    run.deadline = request.deadline;
    run.request_id = request.trace->request_id;
    recogniser_.Run(
        std::move(run),
        [this, gather, item_idx, asked](auto result) {
          gather->Finish(item_idx,
                         CatchOutOfMemory([&]() -> StatusOr<std::string> {
                           RETURN_IF_ERROR(result.status());
                           return Answer(result->state, asked);
                         }));
        },
        gather->stop_token());
    return OkStatus();
  }

  std::string Answer(const TransducerState& state,
                     const TranscriptRequest& asked) const {
    return WriteTranscript(recogniser_.TranscriptOf(state),
                           recogniser_.SecondsOf(state.num_samples), asked);
  }

  const TransducerRecogniser& recogniser_;
};

}  // namespace

std::unique_ptr<TaskHandler> MakeTransducerTask(
    const TransducerRecogniser* recogniser) {
  return std::make_unique<TransducerTask>(recogniser);
}

}  // namespace millrace::handlers
