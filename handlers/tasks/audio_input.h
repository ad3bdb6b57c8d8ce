// From a part of a request to the inputs of a graph of recordings.
//
//   ASSIGN_OR_RETURN(const AudioInput input, AudioInput::Create(parts));
//   ASSIGN_OR_RETURN(AudioRow row, input.Read(part));
//
// The graph takes samples, FP32 [1, samples] (or [samples], [1, 1, samples]),
// or a spectrogram, FP32 [1, mels, frames] or [1, frames, mels]. Beside them it
// may take how many samples or frames there are (an integer [1] whose name says
// "length") and which of them are no padding (a mask [1, samples or frames]).
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
#include "handlers/task.h"
#include "models/audio/mel.h"
#include "models/audio/waveform.h"

namespace millrace::handlers {

struct AudioRow {
  std::vector<NamedTensor> inputs;
  double seconds = 0;        // of the recording
  double input_seconds = 0;  // with the silence behind it
};

// What task_options say of spectrograms with so many bands.
StatusOr<models::MelOptions> MelOptionsOf(
    const config::AudioTaskSettings& settings, int64_t num_mels);
models::WaveformOptions WaveformOptionsOf(
    const config::AudioTaskSettings& settings);

// The samples of a part whose bytes are a file, or the base64 of one, as JSON
// carries it.
StatusOr<std::vector<float>> ReadRecording(
    const TaskPart& part, const models::WaveformOptions& options);

class AudioInput {
 public:
  // What config.yaml leaves out follows from the graph's sizes.
  // INVALID_ARGUMENT says what does not fit.
  static StatusOr<AudioInput> Create(const TaskParts& parts);

  StatusOr<AudioRow> Read(const TaskPart& part) const;

 private:
  AudioInput() = default;
  Status FindPorts(const TaskParts& parts);
  Status FitSpectrogram(const TaskParts& parts);
  Status FitLength(const config::AudioTaskSettings& settings);
  NamedTensor Counted(const models::TensorSpec& spec, int64_t num_valid,
                      int64_t num_all) const;

  models::TensorSpec main_;                  // samples or spectrogram
  std::vector<models::TensorSpec> lengths_;  // and masks
  models::WaveformOptions reading_;
  bool normalize_ = false;
  std::optional<models::MelSpectrogram> mel_;  // none: samples
  bool mels_last_ = false;
  int64_t padded_samples_ = 0;  // 0: none
};

}  // namespace millrace::handlers
