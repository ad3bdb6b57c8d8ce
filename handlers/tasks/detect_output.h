// From the outputs of a detector to boxes, in pixels of its input.
//
//   yolo    one output [1, 4 + classes, anchors], or [1, anchors, 4 + classes]:
//           of each anchor the centre, the size and a score of each class
//   boxes   boxes [n, 4], x1, y1, x2, y2; scores [n]; labels [n]; each with or
//           without a first dimension of 1
//
// Immutable after Create.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/messages.h"
#include "handlers/tasks/boxes.h"

namespace millrace::handlers {

class DetectOutput {
 public:
  // INVALID_ARGUMENT lists the outputs that were found. `num_labels`: names of
  // classes; 0: not known.
  static StatusOr<DetectOutput> Create(const TaskParts& parts,
                                       int64_t num_labels);

  // Boxes with at least that score. INTERNAL where the graph gives another
  // shape than it said, or what is no number.
  StatusOr<std::vector<Detection>> Read(const TensorResponse& outputs,
                                        double least_score) const;

  // Whether boxes of one thing come several times.
  bool repeats() const { return is_yolo_; }

 private:
  DetectOutput() = default;
  // Whether there are outputs of boxes, scores and labels.
  bool FindBoxes(const std::vector<models::TensorSpec>& outputs);
  StatusOr<std::vector<Detection>> ReadYolo(const models::Tensor& tensor,
                                            double least_score) const;
  StatusOr<std::vector<Detection>> ReadBoxes(const TensorResponse& outputs,
                                             double least_score) const;

  bool is_yolo_ = false;
  std::string first_;   // yolo: the output; boxes: that of the boxes
  std::string scores_;  // of boxes
  std::string labels_;
  int64_t num_labels_ = 0;
  // yolo: classes stand in the dimension before the last; none: seen from the
  // sizes of each result.
  std::optional<bool> channels_first_;
};

}  // namespace millrace::handlers
