#include "handlers/tasks/boxes.h"

#include <algorithm>

namespace millrace::handlers {
namespace {

double AreaOf(const Detection& box) {
  return std::max(box.x2 - box.x1, 0.0) * std::max(box.y2 - box.y1, 0.0);
}

}  // namespace

double IntersectionOverUnion(const Detection& a, const Detection& b) {
  const Detection both{.x1 = std::max(a.x1, b.x1),
                       .y1 = std::max(a.y1, b.y1),
                       .x2 = std::min(a.x2, b.x2),
                       .y2 = std::min(a.y2, b.y2)};
  const double shared = AreaOf(both);
  const double together = AreaOf(a) + AreaOf(b) - shared;
  return together > 0 ? shared / together : 0;
}

void SortByScore(std::vector<Detection>& boxes) {
  std::stable_sort(
      boxes.begin(), boxes.end(),
      [](const Detection& a, const Detection& b) { return a.score > b.score; });
}

std::vector<Detection> Suppress(std::vector<Detection> boxes,
                                const SuppressionOptions& options) {
  SortByScore(boxes);
  std::vector<Detection> kept;
  for (const Detection& box : boxes) {
    if (static_cast<int64_t>(kept.size()) >= options.max_detections) break;
    const bool is_hidden =
        std::any_of(kept.begin(), kept.end(), [&](const Detection& better) {
          return (options.class_agnostic ||
                  better.class_idx == box.class_idx) &&
                 IntersectionOverUnion(better, box) > options.iou_threshold;
        });
    if (!is_hidden) kept.push_back(box);
  }
  return kept;
}

Detection InPicture(const Detection& box,
                    const models::ImagePlacement& placement) {
  const auto across = [&](double x) {
    return std::clamp((x + placement.left) / placement.scale_x, 0.0,
                      static_cast<double>(placement.picture.width));
  };
  const auto down = [&](double y) {
    return std::clamp((y + placement.top) / placement.scale_y, 0.0,
                      static_cast<double>(placement.picture.height));
  };
  Detection out = box;
  out.x1 = across(box.x1);
  out.y1 = down(box.y1);
  out.x2 = across(box.x2);
  out.y2 = down(box.y2);
  return out;
}

}  // namespace millrace::handlers
