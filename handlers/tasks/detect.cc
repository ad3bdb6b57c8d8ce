// Boxes are compared in pixels of the graph's input, as detectors are trained,
// and answered in those of the picture. A label of the answer is a key beside
// "score": a class of that name is told apart by its number.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/boxes.h"
#include "handlers/tasks/detect_output.h"
#include "handlers/tasks/image_task.h"
#include "handlers/tasks/labels.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

// Boxes that are compared with each other, the best ones.
constexpr size_t kMaxCandidates = 30'000;

struct Asked {
  double score_threshold = 0;
  SuppressionOptions suppression;
};

class DetectAnswer final : public ImageAnswer {
 public:
  DetectAnswer(Labels labels, DetectOutput output, Asked defaults,
               bool is_relative)
      : labels_(std::move(labels)),
        output_(std::move(output)),
        defaults_(defaults),
        is_relative_(is_relative) {}

  Status Check(const Json& parameters) const override {
    return Read(parameters).status();
  }

  StatusOr<std::string> Make(const TensorResponse& outputs,
                             const models::ImagePlacement& placement,
                             const Json& parameters) const override {
    ASSIGN_OR_RETURN(const Asked asked, Read(parameters));
    ASSIGN_OR_RETURN(std::vector<Detection> boxes,
                     output_.Read(outputs, asked.score_threshold));
    for (Detection& box : boxes) {
      if (is_relative_) Scale(placement.input, box);
      if (std::isfinite(box.x1 + box.y1 + box.x2 + box.y2)) continue;
      return Internal("the model gives a box whose corners are no numbers");
    }
    SortByScore(boxes);
    if (boxes.size() > kMaxCandidates) boxes.resize(kMaxCandidates);
    if (output_.repeats()) {
      boxes = Suppress(std::move(boxes), asked.suppression);
    }
    const auto most = static_cast<size_t>(asked.suppression.max_detections);
    if (boxes.size() > most) boxes.resize(most);
    Json answer = Json::array();
    for (const Detection& box : boxes) {
      answer.push_back(JsonOf(InPicture(box, placement)));
    }
    return DumpJson(answer);
  }

 private:
  StatusOr<Asked> Read(const Json& parameters) const {
    Asked asked = defaults_;
    ASSIGN_OR_RETURN(const auto score, ReadNumber(parameters, "score_threshold",
                                                  {.min = 0, .max = 1}));
    asked.score_threshold = score.value_or(asked.score_threshold);
    ASSIGN_OR_RETURN(const auto iou, ReadNumber(parameters, "iou_threshold",
                                                {.min = 0, .max = 1}));
    SuppressionOptions& suppression = asked.suppression;
    suppression.iou_threshold = iou.value_or(suppression.iou_threshold);
    ASSIGN_OR_RETURN(const auto most,
                     ReadInt(parameters, "max_detections",
                             {.min = 1, .max = suppression.max_detections}));
    suppression.max_detections = most.value_or(suppression.max_detections);
    return asked;
  }

  static void Scale(const models::ImageSize& size, Detection& box) {
    box.x1 *= static_cast<double>(size.width);
    box.x2 *= static_cast<double>(size.width);
    box.y1 *= static_cast<double>(size.height);
    box.y2 *= static_cast<double>(size.height);
  }

  Json JsonOf(const Detection& box) const {
    std::string name = labels_.NameOf(box.class_idx);
    if (name == "score") name += " (" + std::to_string(box.class_idx) + ")";
    return {{name, {box.x1, box.y1, box.x2, box.y2}}, {"score", box.score}};
  }

  const Labels labels_;
  const DetectOutput output_;
  const Asked defaults_;
  const bool is_relative_;  // boxes are parts of the input's size
};

StatusOr<double> Threshold(const char* option, const std::string& text) {
  const Json number = Json::parse(text, nullptr, false);
  const double value = number.is_number() ? number.get<double>() : -1;
  if (value >= 0 && value <= 1) return value;
  return InvalidArgument(std::string(option) + " is '" + Shortened(text, 60) +
                         "' but must be a number from 0 to 1")
      .At("task_options." + std::string(option));
}

}  // namespace

StatusOr<std::unique_ptr<ImageAnswer>> MakeDetectAnswer(
    const TaskParts& parts) {
  const config::DetectionSettings& settings = parts.answer.detection;
  Asked defaults;
  ASSIGN_OR_RETURN(defaults.score_threshold,
                   Threshold("score_threshold", settings.score_threshold));
  ASSIGN_OR_RETURN(defaults.suppression.iou_threshold,
                   Threshold("iou_threshold", settings.iou_threshold));
  defaults.suppression.max_detections = settings.max_detections;
  defaults.suppression.class_agnostic = settings.class_agnostic;
  ASSIGN_OR_RETURN(Labels labels, Labels::Load(parts));
  ASSIGN_OR_RETURN(DetectOutput output,
                   DetectOutput::Create(parts, labels.size()));
  return std::make_unique<DetectAnswer>(std::move(labels), std::move(output),
                                        defaults,
                                        settings.box_unit == "relative");
}

}  // namespace millrace::handlers
