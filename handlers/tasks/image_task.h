// The handler of tasks whose items are pictures. Each part is a picture: it is
// read on the calling thread, given to the graph as one row, and while that is
// computed the next one is read. The batcher joins rows as it likes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/messages.h"
#include "handlers/task.h"
#include "models/image/preprocess.h"

namespace millrace::handlers {

// What a task makes of the graph's outputs. Immutable.
class ImageAnswer {
 public:
  virtual ~ImageAnswer() = default;
  // Before any work: whether the request's parameters make sense.
  virtual Status Check(const nlohmann::ordered_json& parameters) const = 0;
  // JSON of one picture, which lay so in the graph's input.
  virtual StatusOr<std::string> Make(
      const TensorResponse& outputs, const models::ImagePlacement& placement,
      const nlohmann::ordered_json& parameters) const = 0;
};

// Counts what the pictures of a request become. Thread-safe.
class InputBytes {
 public:
  explicit InputBytes(int64_t most) : most_(most), left_(most) {}
  // INVALID_ARGUMENT when they are more than `most` together.
  Status Take(int64_t bytes);

 private:
  const int64_t most_;
  std::atomic<int64_t> left_;
};

// Before any work: the number of pictures, the parameters.
Status CheckImages(const TaskRequest& request, const ImageAnswer& answer);

// As the parts say: this one, or with micro-batches (image_micro_batches.h).
StatusOr<std::unique_ptr<TaskHandler>> MakeImageTask(
    const TaskParts& parts, std::unique_ptr<ImageAnswer> answer);

// {"tabby": 0.46, "tiger cat": 0.38}, best first, as TorchServe answers.
StatusOr<std::unique_ptr<ImageAnswer>> MakeClassifyAnswer(
    const TaskParts& parts);

// [{"cat": [x1, y1, x2, y2], "score": 0.9}], best first, in pixels of the
// picture, as TorchServe's object_detector answers.
StatusOr<std::unique_ptr<ImageAnswer>> MakeDetectAnswer(const TaskParts& parts);

// {"size": [height, width], "classes": [{"label": "cat", "class": 1, "pixels":
// 80}], "mask": "…"}: a PNG of class numbers, in base64. Or runs: each class
// has "size" and "counts" as COCO has them, and there is no "mask".
StatusOr<std::unique_ptr<ImageAnswer>> MakeSegmentAnswer(
    const TaskParts& parts);

}  // namespace millrace::handlers
