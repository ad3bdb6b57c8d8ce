#include "handlers/tasks/detect_output.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "handlers/tasks/class_scores.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::TensorSpec;

constexpr int64_t kBoxNumbers = 4;

bool IsReal(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64;
}

bool IsWhole(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32;
}

std::string FoundIn(const std::vector<TensorSpec>& outputs) {
  std::string found;
  for (const TensorSpec& spec : outputs) {
    found += (found.empty() ? "'" : ", '") + spec.name + "' " + spec.text;
  }
  return found;
}

Status Unfit(const std::string& wanted, const std::vector<TensorSpec>& found) {
  return InvalidArgument("task 'detect' needs " + wanted +
                         "; the graph has the outputs " + FoundIn(found))
      .At("task_options.output_format");
}

// Whether numbers of an anchor stand in the first of two dimensions; none where
// sizes that vary (-1) leave it open. The error begins with "has".
StatusOr<std::optional<bool>> ChannelsFirst(int64_t first, int64_t last,
                                            int64_t num_labels) {
  using Open = std::optional<bool>;
  const int64_t wanted = kBoxNumbers + num_labels;
  if (num_labels > 0) {
    if (first == wanted) return Open(true);
    if (last == wanted) return Open(false);
    if (first < 0 || last < 0) return Open();
    return InvalidArgument("has no dimension of 4 + " +
                           std::to_string(num_labels) +
                           ", for there are so many labels");
  }
  if (first >= 0 && last >= 0) {
    if (first == last) {
      return InvalidArgument(
          "has two equal sizes, which do not tell where classes stand; name "
          "the classes by labels");
    }
    if (std::min(first, last) <= kBoxNumbers) {
      return InvalidArgument(
          "has no dimension of 4 numbers and the scores of classes");
    }
    return Open(first < last);
  }
  if (first < 0 && last < 0) return Open();
  return Open(first > kBoxNumbers);
}

// The output of that name, else the only one that fits, else null.
const TensorSpec* Pick(const std::vector<TensorSpec>& outputs,
                       std::string_view name, bool (*fits)(const TensorSpec&)) {
  const TensorSpec* only = nullptr;
  int num_fit = 0;
  for (const TensorSpec& spec : outputs) {
    if (!fits(spec)) continue;
    if (spec.name == name) return &spec;
    only = &spec;
    ++num_fit;
  }
  return num_fit == 1 ? only : nullptr;
}

// [n] or [1, n].
bool IsList(const TensorSpec& spec) {
  return !spec.rank_known || spec.dims.size() == 1 ||
         (spec.dims.size() == 2 && spec.dims[0] <= 1);
}

const models::Tensor* Find(const TensorResponse& outputs,
                           const std::string& name) {
  for (const NamedTensor& output : outputs.outputs) {
    if (output.name == name) return &output.tensor;
  }
  return nullptr;
}

Status NoNumber(const std::string& name) {
  return Internal("the model's output '" + name +
                  "' has values that are no numbers");
}

}  // namespace

StatusOr<DetectOutput> DetectOutput::Create(const TaskParts& parts,
                                            int64_t num_labels) {
  const std::vector<TensorSpec>& outputs = parts.tensors->outputs();
  DetectOutput out;
  out.num_labels_ = num_labels;
  const std::string& format = parts.answer.detection.output_format;
  if (format != "yolo" && out.FindBoxes(outputs)) return out;
  if (format == "boxes") {
    return Unfit(
        "boxes FP32 [n, 4], scores FP32 [n] and labels INT64 [n] "
        "(output_format boxes), by these names or alone of their kind",
        outputs);
  }
  out.is_yolo_ = true;
  const TensorSpec& spec = outputs.front();
  const bool fits =
      IsReal(spec.dtype) &&
      (!spec.rank_known || (spec.dims.size() == 3 && spec.dims[0] <= 1));
  if (!fits) {
    return Unfit(
        "FP32 [1, 4 + classes, anchors] or [1, anchors, 4 + classes] as the "
        "first output (output_format yolo), or boxes FP32 [n, 4], scores FP32 "
        "[n] and labels INT64 [n] (output_format boxes)",
        outputs);
  }
  out.first_ = spec.name;
  if (!spec.rank_known) return out;
  auto channels_first = ChannelsFirst(spec.dims[1], spec.dims[2], num_labels);
  if (!channels_first.ok()) {
    return channels_first.status()
        .Prefixed("output '" + spec.name + "' (" + spec.text + ")")
        .At("task_options.labels");
  }
  out.channels_first_ = *channels_first;
  return out;
}

bool DetectOutput::FindBoxes(const std::vector<TensorSpec>& outputs) {
  const TensorSpec* boxes = Pick(outputs, "boxes", [](const TensorSpec& spec) {
    const size_t rank = spec.dims.size();
    return IsReal(spec.dtype) &&
           (!spec.rank_known ||
            ((rank == 2 || (rank == 3 && spec.dims[0] <= 1)) &&
             (spec.dims[rank - 1] == kBoxNumbers || spec.dims[rank - 1] < 0)));
  });
  const TensorSpec* scores =
      Pick(outputs, "scores", [](const TensorSpec& spec) {
        return IsReal(spec.dtype) && IsList(spec);
      });
  const TensorSpec* labels =
      Pick(outputs, "labels", [](const TensorSpec& spec) {
        return IsWhole(spec.dtype) && IsList(spec);
      });
  if (boxes == nullptr || scores == nullptr || labels == nullptr ||
      boxes == scores) {
    return false;
  }
  first_ = boxes->name;
  scores_ = scores->name;
  labels_ = labels->name;
  return true;
}

StatusOr<std::vector<Detection>> DetectOutput::Read(
    const TensorResponse& outputs, double least_score) const {
  if (!is_yolo_) return ReadBoxes(outputs, least_score);
  const models::Tensor* tensor = Find(outputs, first_);
  if (tensor == nullptr) return Internal("no output '" + first_ + "' came");
  return ReadYolo(*tensor, least_score);
}

StatusOr<std::vector<Detection>> DetectOutput::ReadYolo(
    const models::Tensor& tensor, double least_score) const {
  const models::Shape& shape = tensor.shape();
  const std::string what = "the model's output '" + first_ + "' (" +
                           models::TypeText(tensor.dtype(), shape) + ")";
  if (shape.rank() != 3 || shape[0] != 1) {
    return Internal(what + " is no row of boxes and scores");
  }
  bool channels_first = channels_first_.value_or(false);
  if (!channels_first_.has_value()) {
    const auto told = ChannelsFirst(shape[1], shape[2], num_labels_);
    if (!told.ok())
      return Internal(what + ": " + std::string(told.status().message()));
    channels_first = told->value_or(true);
  }
  const int64_t channels = shape[channels_first ? 1 : 2];
  const int64_t anchors = shape[channels_first ? 2 : 1];
  if (channels <= kBoxNumbers) {
    return Internal(what + " has no scores of classes");
  }
  ASSIGN_OR_RETURN(const std::vector<double> values, Reals(tensor));
  const auto at = [&](int64_t anchor, int64_t channel) {
    return values[static_cast<size_t>(channels_first
                                          ? channel * anchors + anchor
                                          : anchor * channels + channel)];
  };
  std::vector<Detection> found;
  for (int64_t anchor = 0; anchor < anchors; ++anchor) {
    Detection box{.score = -1};
    for (int64_t c = kBoxNumbers; c < channels; ++c) {
      const double score = at(anchor, c);
      if (std::isnan(score)) return NoNumber(first_);
      if (score <= box.score) continue;
      box.score = score;
      box.class_idx = c - kBoxNumbers;
    }
    if (box.score < least_score) continue;
    const double width = at(anchor, 2);
    const double height = at(anchor, 3);
    box.x1 = at(anchor, 0) - width / 2;
    box.y1 = at(anchor, 1) - height / 2;
    box.x2 = box.x1 + width;
    box.y2 = box.y1 + height;
    found.push_back(box);
  }
  return found;
}

StatusOr<std::vector<Detection>> DetectOutput::ReadBoxes(
    const TensorResponse& outputs, double least_score) const {
  std::vector<double> values[3];
  const std::string* const names[] = {&first_, &scores_, &labels_};
  for (int i = 0; i < 3; ++i) {
    const models::Tensor* tensor = Find(outputs, *names[i]);
    if (tensor == nullptr)
      return Internal("no output '" + *names[i] + "' came");
    ASSIGN_OR_RETURN(values[i], Reals(*tensor));
  }
  const auto& [boxes, scores, labels] = values;
  if (boxes.size() != scores.size() * kBoxNumbers ||
      labels.size() != scores.size()) {
    return Internal("the model gives " + std::to_string(boxes.size()) +
                    " numbers of boxes, " + std::to_string(scores.size()) +
                    " scores and " + std::to_string(labels.size()) +
                    " labels; four numbers, a score and a label make a box");
  }
  std::vector<Detection> found;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) return NoNumber(scores_);
    if (scores[i] < least_score) continue;
    const double* box = boxes.data() + i * kBoxNumbers;
    found.push_back({.x1 = box[0],
                     .y1 = box[1],
                     .x2 = box[2],
                     .y2 = box[3],
                     .score = scores[i],
                     .class_idx = static_cast<int64_t>(labels[i])});
  }
  return found;
}

}  // namespace millrace::handlers
