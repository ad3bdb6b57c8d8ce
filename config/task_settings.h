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
  kTranscribe,
};

// "classify_text"; empty for kNone.
std::string_view TaskName(TaskKind kind);
bool IsImageTask(TaskKind kind);
bool IsTextTask(TaskKind kind);
bool IsAudioTask(TaskKind kind);

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

// From the bytes of a recording to the graph's input.
struct AudioTaskSettings {
  static constexpr int64_t kMaxDurationMs = 10 * 60 * 1000;

  std::string features = "auto";  // auto | waveform | log_mel
  int64_t sample_rate = 16'000;   // Hz, of the graph's input
  int64_t max_duration_ms = kMaxDurationMs;
  // Shorter recordings are padded with silence to so long, longer ones
  // refused; 0: as long as they are.
  int64_t chunk_length_ms = 0;
  bool normalize = false;  // waveform: mean 0, variance 1
  // Spectrograms. `mel` chooses what the others leave at auto.
  std::string mel = "whisper";     // whisper | torchaudio
  int64_t n_mels = 0;              // 0: as the graph has it, else 80
  int64_t n_fft = 400;             // samples
  int64_t win_length = 0;          // samples; 0: n_fft
  int64_t hop_length = 160;        // samples
  std::string f_min = "0";         // Hz
  std::string f_max = "0";         // Hz; 0: half the sample rate
  std::string mel_scale = "auto";  // auto | htk | slaney
  std::string mel_norm = "auto";   // auto | none | slaney
  std::string mel_log = "auto";  // auto | none | whisper | ln | db | piecewise
};

struct TaskSettings {
  TaskKind kind = TaskKind::kNone;
  // Of every task that names classes: a file beside the model (JSON object or
  // list, or one name a line); empty: numbers.
  std::string labels;
  int64_t top_k = 5;                // classify; 0: all
  std::string activation = "auto";  // of scores: auto|softmax|sigmoid|none
  ImageTaskSettings image;
  TextTaskSettings text;
  AudioTaskSettings audio;
};

// The task that is called so. INVALID_ARGUMENT lists the tasks there are.
StatusOr<TaskKind> TaskFromName(const std::string& name);

}  // namespace millrace::config
