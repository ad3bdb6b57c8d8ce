#include "handlers/tasks/image_task.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/out_of_memory.h"
#include "handlers/place_in_time.h"
#include "handlers/tasks/image_input.h"
#include "handlers/tasks/image_micro_batches.h"
#include "handlers/tasks/item_gather.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxImages = 64;

const Json& ParametersOf(const Json* parameters) {
  static const Json kNone = Json::object();
  return parameters == nullptr ? kNone : *parameters;
}

class ImageTask final : public TaskHandler {
 public:
  ImageTask(TaskParts parts, ImageInput input,
            std::unique_ptr<ImageAnswer> answer)
      : parts_(std::move(parts)),
        input_(std::move(input)),
        answer_(std::move(answer)) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    if (const Status status = CheckImages(request, *answer_); !status.ok()) {
      return done(status);
    }
    const size_t num_images = request.parts.size();
    const auto gather =
        std::make_shared<ItemGather>(num_images, std::move(done), stop);
    InputBytes bytes(parts_.max_input_bytes);
    for (size_t i = 0; i < num_images; ++i) {
      Status status = stop.stop_requested()
                          ? Cancelled("the client left")
                          : CatchOutOfMemory([&] {
                              return StartOne(request, i, gather, bytes);
                            });
      if (status.ok()) continue;
      if (num_images > 1) {
        status = status.Prefixed("picture " + std::to_string(i));
      }
      // The rest is not begun.
      return gather->Finish(i, status, num_images - i);
    }
  }

  Status HasPlace() const override { return parts_.tensors->HasPlace(); }

 private:
  // What fails here is the picture's fault, or there is no place.
  Status StartOne(TaskRequest& request, size_t image_idx,
                  const std::shared_ptr<ItemGather>& gather,
                  InputBytes& bytes) const {
    // Before the work of decoding, which a response cache needs.
    RETURN_IF_ERROR(HasPlaceBy(*parts_.tensors, request.deadline));
    ASSIGN_OR_RETURN(ImageRow row, input_.Read(request.parts[image_idx]));
    RETURN_IF_ERROR(bytes.Take(row.tensor.num_bytes()));
    request.parts[image_idx].bytes = {};
    TensorRequest one;
    one.inputs.push_back({input_.name(), std::move(row.tensor)});
    one.priority = request.priority;
    one.deadline = request.deadline;
    one.trace = request.trace;
    parts_.tensors->Start(
        std::move(one),
        [this, gather, image_idx, placement = row.placement,
         parameters =
             request.parameters](const StatusOr<TensorResponse>& outputs) {
          gather->FinishWith(image_idx, outputs, [&](const auto& found) {
            return answer_->Make(found, placement,
                                 ParametersOf(parameters.get()));
          });
        },
        gather->stop_token());
    return OkStatus();
  }

  const TaskParts parts_;
  const ImageInput input_;
  const std::unique_ptr<ImageAnswer> answer_;
};

}  // namespace

Status InputBytes::Take(int64_t bytes) {
  // Only the sum counts.
  const int64_t left =
      left_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  if (left >= 0) return OkStatus();
  return InvalidArgument("the pictures of the request become more than " +
                         std::to_string(most_) +
                         " bytes of input; send them in several requests")
      .At("inputs");
}

Status CheckImages(const TaskRequest& request, const ImageAnswer& answer) {
  if (request.parts.empty() || request.parts.size() > kMaxImages) {
    return InvalidArgument("the request has " +
                           std::to_string(request.parts.size()) +
                           " pictures but 1 to " + std::to_string(kMaxImages) +
                           " are taken; send them in several requests")
        .At("inputs");
  }
  return answer.Check(ParametersOf(request.parameters.get()));
}

StatusOr<std::unique_ptr<TaskHandler>> MakeImageTask(
    const TaskParts& parts, std::unique_ptr<ImageAnswer> answer) {
  if (parts.micro_batching != nullptr) {
    return MakeMicroBatchedImageTask(parts, std::move(answer));
  }
  ASSIGN_OR_RETURN(ImageInput input, ImageInput::Create(parts));
  return std::make_unique<ImageTask>(parts, std::move(input),
                                     std::move(answer));
}

}  // namespace millrace::handlers
