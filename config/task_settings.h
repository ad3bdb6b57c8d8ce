// What a model does beyond its tensors, as its config.yaml declares it:
//
//   task: classify
//   task_options:
//     labels: index_to_name.json
//     resize: 256
//     center_crop: 224
//
// A task is one word; its options are settings of their own table, so that
// their errors read like all others: VisitTaskSettings (settings_visitor.h)
// tells which a task takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::config {

enum class TaskKind {
  kNone,
  kClassify,
  kDetect,
  kSegment,
  kEmbed,
  kRerank,
  kClassifyText,
  kTokenClassify,
};

// "classify_text"; empty for kNone.
std::string_view TaskName(TaskKind kind);
bool IsImageTask(TaskKind kind);
bool IsTextTask(TaskKind kind);

// From the bytes of a picture to the graph's input.
struct ImageTaskSettings {
  static constexpr int64_t kMaxPixels = int64_t{64} << 20;

  // Pixels: the shorter side, or height and width; empty: none.
  std::vector<std::string> resize;
  std::string interpolation = "bilinear";  // bilinear | bicubic | nearest
  std::vector<std::string> center_crop;    // pixels: a side, or height, width
  std::string color = "rgb";               // rgb | bgr | gray
  // value = (pixel * rescale_factor - mean) / std, by channel. Numbers;
  // rescale_factor may be "1/255".
  std::string rescale_factor = "1/255";
  std::vector<std::string> mean;  // empty: 0
  std::vector<std::string> std;   // empty: 1
  std::string layout = "auto";    // auto | nchw | nhwc
  int64_t max_pixels = kMaxPixels;
  // Lets JPEG be decoded at 1/2, 1/4 or 1/8 where that is still larger than
  // what resize wants. Faster; pixels differ a little.
  bool scaled_decoding = false;
};

// From texts to the graph's inputs and from its output to a row of numbers.
struct TextTaskSettings {
  std::string tokenizer = "tokenizer.json";  // file beside the model
  std::string pooling = "auto";              // auto | mean | cls | max | last
  std::string normalize = "auto";            // auto | true | false
  int64_t max_length = 0;      // tokens; 0: as the files beside it say
  bool auto_truncate = false;  // cuts longer texts; else they are refused
};

struct TaskSettings {
  TaskKind kind = TaskKind::kNone;
  // Of every task that names classes: a file beside the model (JSON object or
  // list, or one name a line); empty: numbers.
  std::string labels;
  int64_t top_k = 5;                   // classify; 0: all
  std::string activation = "softmax";  // of scores: softmax | sigmoid | none
  ImageTaskSettings image;
  TextTaskSettings text;
};

// The task that is called so. INVALID_ARGUMENT lists the tasks there are.
StatusOr<TaskKind> TaskFromName(const std::string& name);

}  // namespace millrace::config
