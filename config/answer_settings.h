// How a graph's outputs become the answer of a task: the part of task_options
// that stands behind the graph, where TaskSettings (task_settings.h) say what
// stands before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::config {

// From the scores of a text's tokens to entities: task token_classify.
struct EntitySettings {
  // none | simple | first | average | max, as transformers has them.
  std::string aggregation_strategy = "none";
  std::vector<std::string> ignore_labels = {"O"};
};

// From a graph's boxes to those that are answered: task detect.
struct DetectionSettings {
  std::string output_format = "auto";    // auto | yolo | boxes
  std::string box_unit = "pixels";       // of the input: pixels | relative
  std::string score_threshold = "0.25";  // 0 to 1
  std::string iou_threshold = "0.45";    // 0 to 1; yolo
  int64_t max_detections = 300;          // of one picture
  bool class_agnostic = false;           // boxes of any class hide others
};

// From scores of pixels to a mask: task segment.
struct MaskSettings {
  std::string mask = "png";  // png | rle
};

// From the logits of a CTC model to a text: task transcribe.
struct TranscriptSettings {
  std::string blank;  // its label or number; empty: by its usual names, else 0
  std::string word_delimiter = "|";  // label that stands between words
  std::string language;              // as the model's maker says; empty: untold
  int64_t beam_width = 1;            // 1: the best label of each frame
};

struct AnswerSettings {
  EntitySettings entities;
  DetectionSettings detection;
  MaskSettings mask;
  TranscriptSettings transcript;
};

}  // namespace millrace::config
