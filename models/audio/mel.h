// Mel spectrograms: the power of short frames of a waveform in bands as the ear
// tells them apart.
//
//   ASSIGN_OR_RETURN(const MelSpectrogram mel, MelSpectrogram::Create({}));
//   std::vector<float> out(num_mels * mel.NumFrames(samples.size()));
//   mel.Compute(samples, out.data());      // [num_mels, frames]
//
// A frame is centred at its sample, the waveform mirrored at its ends; the
// window is Hann's (periodic), in the middle of n_fft. All is computed in
// double, as transformers does; torchaudio computes in float.
// Source: transformers' WhisperFeatureExtractor and audio_utils, torchaudio's
// MelSpectrogram, AmplitudeToDB and RNN-T pipelines. Immutable after Create.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

enum class MelScale { kHtk, kSlaney };
enum class MelNorm { kNone, kSlaney };
enum class MelLog {
  kNone,
  kWhisper,  // log10, at most 8 below the greatest, (x + 4) / 4; the last
             // frame is left out
  kLn,       // ln(x + 1e-6)
  kDecibel,  // 10 log10, at most 80 below the greatest
  // Of samples times 32767, x being their power: ln(x) above e, else x / e.
  kPiecewise,
};

struct MelOptions {
  int64_t sample_rate = 16'000;  // Hz
  int64_t n_fft = 400;           // samples of a frame, even
  int64_t win_length = 0;        // 0: n_fft
  int64_t hop_length = 160;
  int64_t num_mels = 80;
  double f_min = 0;  // Hz
  double f_max = 0;  // 0: half the sample rate
  MelScale scale = MelScale::kSlaney;
  MelNorm norm = MelNorm::kSlaney;
  MelLog log = MelLog::kWhisper;
};

class MelSpectrogram {
 public:
  // INVALID_ARGUMENT names the option that makes no sense.
  static StatusOr<MelSpectrogram> Create(const MelOptions& options);

  // Of so many samples, at least 1. May be 0 for whisper's kind.
  int64_t NumFrames(size_t num_samples) const;
  // `out` is [num_mels, NumFrames].
  void Compute(std::span<const float> samples, float* out) const;

  const MelOptions& options() const { return options_; }

 private:
  // Weights of the bins [first, first + weights.size()) of a frame.
  struct Band {
    size_t first = 0;
    std::vector<double> weights;
  };

  explicit MelSpectrogram(const MelOptions& options) : options_(options) {}
  void MakeWindow();
  void MakeBands();
  void TakeLog(std::span<float> values) const;

  MelOptions options_;
  std::vector<double> window_;  // [n_fft]
  std::vector<Band> bands_;     // [num_mels]
};

}  // namespace millrace::models
