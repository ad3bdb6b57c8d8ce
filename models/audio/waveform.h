// From the bytes of a recording to samples of the rate that a graph takes.
//
//   ASSIGN_OR_RETURN(std::vector<float> samples,
//                    ReadWaveform(bytes, {.sample_rate = 16000}));
//
// The file is read block by block, so that no more memory is taken than
// max_duration has of the wanted rate. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

struct WaveformOptions {
  int64_t sample_rate = 16'000;  // Hz
  std::chrono::milliseconds max_duration = std::chrono::minutes(10);
};

// INVALID_ARGUMENT where the recording is damaged, has no samples or is too
// long, which is seen before memory is taken where the file says its length.
StatusOr<std::vector<float>> ReadWaveform(std::span<const uint8_t> bytes,
                                          const WaveformOptions& options);

// (x - mean) / sqrt(variance + 1e-7), as transformers'
// Wav2Vec2FeatureExtractor.
void NormalizeWaveform(std::span<float> samples);

}  // namespace millrace::models
