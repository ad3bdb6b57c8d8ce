// Boxes of detected things, and which of them hide others.
//
// Pure functions, in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "models/image/preprocess.h"

namespace millrace::handlers {

struct Detection {
  double x1 = 0;  // left, of the pixels that the function says
  double y1 = 0;
  double x2 = 0;
  double y2 = 0;
  double score = 0;
  int64_t class_idx = 0;
};

// What two boxes share, as a part of what they cover together; 0 where both
// are empty.
double IntersectionOverUnion(const Detection& a, const Detection& b);

// Best first, the earlier first among equals.
void SortByScore(std::vector<Detection>& boxes);

// Their defaults in a server: config/answer_settings.h.
struct SuppressionOptions {
  double iou_threshold = 0;
  int64_t max_detections = 0;
  bool class_agnostic = false;  // else a box hides those of its class alone
};

// Non-maximum suppression: the best box hides those that overlap with it by
// more than the threshold, then the best one left does. Best first.
std::vector<Detection> Suppress(std::vector<Detection> boxes,
                                const SuppressionOptions& options);

// From pixels of the graph's input to those of the picture, cut at its edges.
Detection InPicture(const Detection& box,
                    const models::ImagePlacement& placement);

}  // namespace millrace::handlers
