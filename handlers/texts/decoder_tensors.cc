#include "handlers/texts/decoder_tensors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "config/base/deadline.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using models::TensorSpec;
using scheduler::EmbeddingTask;

constexpr char kIds[] = "input_ids";
constexpr char kMask[] = "attention_mask";
constexpr char kVectors[] = "sentence_embedding";

class DecoderTensors final : public TensorHandler {
 public:
  explicit DecoderTensors(DecoderTensorParts parts)
      : parts_(std::move(parts)),
        inputs_{{.name = kIds,
                 .dtype = DType::kI64,
                 .dims = {-1, -1},
                 .text = "INT64 [texts, tokens]"},
                {.name = kMask,
                 .dtype = DType::kI64,
                 .dims = {-1, -1},
                 .text = "INT64 [texts, tokens]"}},
        outputs_{{.name = kVectors,
                  .dims = {-1, parts_.engine->size()},
                  .text = "FP32 [texts, " +
                          std::to_string(parts_.engine->size()) + "]"}} {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Status status = TryStart(request, done, std::move(stop));
    if (!status.ok()) done(status);
  }

  Status HasPlace() const override { return parts_.engine->Reserve().status(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

 private:
  Status TryStart(TensorRequest& request, const Done& done,
                  std::stop_token stop) {
    request.deadline =
        EarlierDeadline(request.deadline, request.timeout, Clock::Real());
    ASSIGN_OR_RETURN(scheduler::Reservation place,
                     parts_.engine->Reserve(request.deadline));
    const Tensor* ids = nullptr;
    const Tensor* mask = nullptr;
    for (const NamedTensor& input : request.inputs) {
      const Tensor*& at = input.name == kMask ? mask : ids;
      if (input.name != kIds && input.name != kMask) {
        return InvalidArgument("input '" + input.name +
                               "' is not one of model '" + parts_.model +
                               "', which takes input_ids and attention_mask")
            .At(input.name);
      }
      if (at != nullptr || input.tensor.dtype() != DType::kI64 ||
          input.tensor.shape().rank() != 2) {
        return InvalidArgument("input '" + input.name +
                               "' must be given once, as INT64 [texts, tokens]")
            .At(input.name);
      }
      at = &input.tensor;
    }
    if (ids == nullptr || (mask != nullptr && mask->shape() != ids->shape())) {
      return InvalidArgument(
          "expected input_ids, and attention_mask of its shape");
    }
    for (const std::string& name : request.outputs) {
      if (name == kVectors) continue;
      return InvalidArgument("output '" + name + "' is not one of model '" +
                             parts_.model + "', which gives sentence_embedding")
          .At(name);
    }
    EmbeddingTask task;
    ASSIGN_OR_RETURN(task.texts, TextsOf(*ids, mask));
    task.deadline = request.deadline;
    task.stop = std::move(stop);
    task.trace = std::move(request.trace);
    task.done = [this, done](StatusOr<EmbeddingTask::Vectors> result) {
      // Shared because tasks of the pool can be copied.
      const auto held =
          std::make_shared<StatusOr<EmbeddingTask::Vectors>>(std::move(result));
      parts_.pool->Continue([this, done, held] {
        if (!held->ok()) return done(held->status());
        done(ResponseOf(**held));
      });
    };
    return parts_.engine->Submit(std::move(place), std::move(task));
  }

  static StatusOr<std::vector<std::vector<int32_t>>> TextsOf(
      const Tensor& ids, const Tensor* mask) {
    const int64_t length = ids.shape()[1];
    std::vector<std::vector<int32_t>> texts;
    for (int64_t r = 0; r < ids.shape()[0]; ++r) {
      std::vector<int32_t>& text = texts.emplace_back();
      bool ended = false;
      for (int64_t i = r * length; i < (r + 1) * length; ++i) {
        const bool is_token = mask == nullptr || mask->data<int64_t>()[i] != 0;
        if (is_token && ended) {
          return InvalidArgument(
                     "attention_mask has a token behind padding; put padding "
                     "behind each text")
              .At(kMask);
        }
        ended = !is_token;
        const int64_t id = ids.data<int64_t>()[i];
        if (is_token) {
          text.push_back(id < 0 || id > INT32_MAX ? -1
                                                  : static_cast<int32_t>(id));
        }
      }
    }
    return texts;
  }

  TensorResponse ResponseOf(const EmbeddingTask::Vectors& vectors) const {
    const auto rows = static_cast<int64_t>(vectors.size());
    Tensor tensor =
        Tensor::Make(DType::kF32, {rows, int64_t{parts_.engine->size()}});
    float* to = tensor.data<float>();
    for (const std::vector<float>& vector : vectors) {
      to = std::copy(vector.begin(), vector.end(), to);
    }
    TensorResponse response;
    response.outputs.push_back({kVectors, std::move(tensor)});
    response.batch.rows = static_cast<int32_t>(rows);
    return response;
  }

  const DecoderTensorParts parts_;
  const std::vector<TensorSpec> inputs_;
  const std::vector<TensorSpec> outputs_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeDecoderTensors(DecoderTensorParts parts) {
  return std::make_unique<DecoderTensors>(std::move(parts));
}

}  // namespace millrace::handlers
