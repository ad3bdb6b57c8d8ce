// The graph gets a micro-batch as one request of several rows where it takes
// rows and the pictures have one size, else a request for each picture. Its
// outputs are parted by rows again: the answer of a picture is made from what
// belongs to it alone.
#include "handlers/tasks/image_micro_batches.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/out_of_memory.h"
#include "handlers/place_in_time.h"
#include "handlers/stage_pipeline.h"
#include "handlers/tasks/image_input.h"
#include "handlers/tasks/item_gather.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::Tensor;

// What all micro-batches of a handler share; outlives them.
struct Model {
  TaskParts parts;
  ImageInput input;
  std::unique_ptr<ImageAnswer> answer;
};

// One request. Each micro-batch touches its own parts alone.
struct Work {
  explicit Work(int64_t max_input_bytes) : bytes(max_input_bytes) {}
  TaskRequest request;
  InputBytes bytes;
  std::shared_ptr<ItemGather> gather;
};

bool HaveOneSize(const std::vector<ImageRow>& rows) {
  return std::ranges::all_of(rows, [&](const ImageRow& row) {
    return row.tensor.shape() == rows.front().tensor.shape();
  });
}

// Rows of the same type and sizes, one behind the other.
Tensor Join(const std::vector<ImageRow>& rows) {
  const Tensor& first = rows.front().tensor;
  models::Shape shape = first.shape();
  shape[0] = static_cast<int64_t>(rows.size());
  Tensor joined = Tensor::Make(first.dtype(), shape);
  std::byte* to = joined.bytes();
  for (const ImageRow& row : rows) {
    CHECK(row.tensor.shape() == first.shape(),
          "rows of a tensor have one size");
    std::memcpy(to, row.tensor.bytes(),
                static_cast<size_t>(row.tensor.num_bytes()));
    to += row.tensor.num_bytes();
  }
  return joined;
}

// Row `row_idx` of outputs that have `num_rows` each; the bytes are shared.
StatusOr<TensorResponse> RowOf(const TensorResponse& outputs, size_t row_idx,
                               size_t num_rows) {
  TensorResponse row;
  for (const NamedTensor& output : outputs.outputs) {
    models::Shape shape = output.tensor.shape();
    if (shape.rank() == 0 || shape[0] != static_cast<int64_t>(num_rows)) {
      return Internal("the output '" + output.name + "' is " +
                      models::TypeText(output.tensor.dtype(), shape) +
                      ", which is no row for each of " +
                      std::to_string(num_rows) + " pictures");
    }
    shape[0] = 1;
    const int64_t row_bytes =
        output.tensor.num_bytes() / static_cast<int64_t>(num_rows);
    const auto kept = std::make_shared<Tensor>(output.tensor.Share());
    row.outputs.push_back(
        {output.name,
         Tensor::Borrow(
             output.tensor.dtype(), shape,
             kept->bytes() + static_cast<int64_t>(row_idx) * row_bytes, kept)});
  }
  row.batch = outputs.batch;
  return row;
}

class ImageMicroBatch final : public MicroBatch {
 public:
  ImageMicroBatch(const Model& model, std::shared_ptr<Work> work, size_t first,
                  size_t count)
      : model_(model), work_(std::move(work)), first_(first), count_(count) {}

  bool Preprocess() override {
    const Status status = CatchOutOfMemory([this]() -> Status {
      RETURN_IF_ERROR(ReadAll());
      left_ = joined_ ? 1 : count_;
      for (size_t i = 0; i < left_; ++i) {
        answers_.emplace_back(Internal("not computed"));
      }
      return OkStatus();
    });
    if (status.ok()) return true;
    rows_.clear();
    EndWith(status);
    return false;
  }

  void Infer(std::function<void()> done) override {
    const size_t num_requests = answers_.size();
    for (size_t i = 0; i < num_requests; ++i) {
      const auto answered = [this, i, done](StatusOr<TensorResponse> answer) {
        answers_[i] = std::move(answer);
        // The last one sees what the others wrote, and this may be gone then.
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) done();
      };
      const Status status = CatchOutOfMemory([&] {
        const TaskRequest& of = work_->request;
        TensorRequest request;
        request.inputs.push_back(
            {model_.input.name(), std::move(rows_[i].tensor)});
        request.priority = of.priority;
        request.deadline = of.deadline;
        request.trace = of.trace;
        model_.parts.tensors->Start(std::move(request), answered,
                                    work_->gather->stop_token());
        return OkStatus();
      });
      if (!status.ok()) answered(status);
    }
  }

  void Postprocess() override {
    for (const auto& answer : answers_) {
      if (!answer.ok()) return EndWith(answer.status());
    }
    const Json* parameters = work_->request.parameters.get();
    for (size_t i = 0; i < count_; ++i) {
      StatusOr<TensorResponse> outputs =
          joined_ ? RowOf(*answers_.front(), i, count_)
                  : std::move(answers_[i]);
      work_->gather->FinishWith(first_ + i, outputs, [&](const auto& found) {
        return model_.answer->Make(
            found, rows_[i].placement,
            parameters == nullptr ? Json::object() : *parameters);
      });
    }
  }

 private:
  // The pictures, as one tensor where the graph takes rows and they have one
  // size. Of those that have several the batcher joins what it can.
  Status ReadAll() {
    for (size_t i = 0; i < count_; ++i) {
      ASSIGN_OR_RETURN(ImageRow row, Read(first_ + i));
      rows_.push_back(std::move(row));
    }
    if (count_ > 1 && model_.parts.max_rows > 1 && HaveOneSize(rows_)) {
      joined_ = true;
      Tensor tensor = Join(rows_);
      for (ImageRow& row : rows_) row.tensor = {};
      rows_.front().tensor = std::move(tensor);
    }
    return OkStatus();
  }

  StatusOr<ImageRow> Read(size_t image_idx) const {
    TaskRequest& request = work_->request;
    if (work_->gather->stop_token().stop_requested()) {
      return Cancelled("the client left");
    }
    if (Clock::Real().Now() >= request.deadline) {
      return DeadlineExceeded(
          "the deadline passed before the pictures were read; give the request "
          "more time or send fewer");
    }
    StatusOr<ImageRow> row = model_.input.Read(request.parts[image_idx]);
    request.parts[image_idx].bytes = {};
    Status status = row.status();
    if (row.ok()) status = work_->bytes.Take(row->tensor.num_bytes());
    if (status.ok()) return row;
    if (request.parts.size() == 1) return status;
    return status.Prefixed("picture " + std::to_string(image_idx));
  }

  // The first failure of a request is its answer.
  void EndWith(const Status& status) {
    work_->gather->Finish(first_, status, count_);
  }

  const Model& model_;
  const std::shared_ptr<Work> work_;
  const size_t first_;
  const size_t count_;
  // One stage at a time.
  std::vector<ImageRow> rows_;
  bool joined_ = false;
  std::vector<StatusOr<TensorResponse>> answers_;
  std::atomic<size_t> left_ = 0;  // of these
};

class MicroBatchedImageTask final : public TaskHandler {
 public:
  explicit MicroBatchedImageTask(Model model)
      : model_(std::move(model)),
        pipeline_({.model = model_.parts.model,
                   .stages = *model_.parts.micro_batching,
                   .max_waiting = model_.parts.max_queue_size},
                  model_.parts.registry) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    Status status = CheckImages(request, *model_.answer);
    if (status.ok()) status = pipeline_.HasPlace();
    if (status.ok()) {
      status = HasPlaceBy(*model_.parts.tensors, request.deadline);
    }
    if (!status.ok()) return done(status);
    const size_t num_images = request.parts.size();
    auto work = std::make_shared<Work>(model_.parts.max_input_bytes);
    work->request = std::move(request);
    work->gather = std::make_shared<ItemGather>(num_images, OnPool(done), stop);
    const auto size = static_cast<size_t>(std::clamp<int64_t>(
        model_.parts.micro_batching->micro_batch_size, 1,
        model_.parts.max_rows > 1 ? model_.parts.max_rows
                                  : config::MicroBatchingSettings::kMaxSize));
    StagePipeline::Batches batches;
    for (size_t first = 0; first < num_images; first += size) {
      batches.push_back(std::make_shared<ImageMicroBatch>(
          model_, work, first, std::min(size, num_images - first)));
    }
    status = pipeline_.Submit(std::move(batches));
    if (!status.ok()) done(status);
  }

  Status HasPlace() const override {
    RETURN_IF_ERROR(pipeline_.HasPlace());
    return model_.parts.tensors->HasPlace();
  }

 private:
  // The ending lets go of the model, which no thread of its own may unload.
  Done OnPool(Done done) const {
    if (model_.parts.pool == nullptr) return done;
    return [pool = model_.parts.pool,
            done = std::move(done)](StatusOr<TaskResponse> answer) {
      const auto kept =
          std::make_shared<StatusOr<TaskResponse>>(std::move(answer));
      pool->Continue([done, kept] { done(std::move(*kept)); });
    };
  }

  const Model model_;
  StagePipeline pipeline_;
};

}  // namespace

StatusOr<std::unique_ptr<TaskHandler>> MakeMicroBatchedImageTask(
    const TaskParts& parts, std::unique_ptr<ImageAnswer> answer) {
  ASSIGN_OR_RETURN(ImageInput input, ImageInput::Create(parts));
  return std::make_unique<MicroBatchedImageTask>(
      Model{parts, std::move(input), std::move(answer)});
}

}  // namespace millrace::handlers
