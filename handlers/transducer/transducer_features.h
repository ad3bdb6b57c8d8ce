// From samples to what the encoder takes: the log-mel spectrogram of a segment
// of sound, brought to mean 0 and variance 1 by what config.yaml's file says of
// each band. A segment's spectrogram is that of its own samples, with those of
// the right context in front: `num_samples` in all.
//
//   segment i: samples [i * step - context, (i + 1) * step), zeros before 0
//
// Source: torchaudio's tutorial "Online ASR with Emformer RNN-T" and its RNN-T
// pipelines' streaming feature extractor. Immutable after Create.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "config/transducer_settings.h"
#include "handlers/make_task.h"
#include "models/audio/mel.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

class TransducerFeatures {
 public:
  // `num_mels`: as the encoder has them. INVALID_ARGUMENT and NOT_FOUND say
  // what is wrong with task_options or the file of statistics.
  static StatusOr<TransducerFeatures> Create(
      const TaskParts& parts, const config::TransducerSettings& settings,
      int64_t num_mels);

  size_t step() const { return step_; }        // samples from one to the next
  size_t context() const { return context_; }  // samples before a segment's own
  size_t num_samples() const { return step_ + context_; }

  // FP32 [1, frames, mels] of num_samples() samples.
  models::Tensor Compute(std::span<const float> samples) const;

 private:
  explicit TransducerFeatures(models::MelSpectrogram mel)
      : mel_(std::move(mel)) {}

  models::MelSpectrogram mel_;
  int64_t frames_ = 0;
  size_t step_ = 0;
  size_t context_ = 0;
  std::vector<float> mean_;            // of each band; empty: 0
  std::vector<float> inverse_stddev_;  // of each band; empty: 1
};

}  // namespace millrace::handlers
