// Arbitrary bytes as a recording, then as a spectrogram.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/audio/mel.h"
#include "models/audio/waveform.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  constexpr int64_t kRate = 4000;
  const WaveformOptions options = {
      .sample_rate = kRate, .max_duration = std::chrono::milliseconds(500)};
  auto samples = ReadWaveform(std::span(data, size), options);
  if (!samples.ok()) return 0;
  // Resampling may round up.
  if (samples->empty() || samples->size() > kRate / 2 + 64) __builtin_trap();
  static const auto mel = MelSpectrogram::Create(
      {.sample_rate = kRate, .n_fft = 64, .hop_length = 32, .num_mels = 8});
  std::vector<float> out(
      static_cast<size_t>(8 * mel->NumFrames(samples->size())));
  mel->Compute(*samples, out.data());
  for (const float x : out) {
    if (std::isnan(x)) __builtin_trap();
  }
  NormalizeWaveform(*samples);
  return 0;
}
