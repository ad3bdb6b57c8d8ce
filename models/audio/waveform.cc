#include "models/audio/waveform.h"

#include <cmath>
#include <memory>
#include <string>

#include "models/audio/decode.h"
#include "models/audio/resample.h"

namespace millrace::models {
namespace {

constexpr size_t kBlockFrames = 4096;
// Of all channels of a file, decoded: silence needs few bytes.
constexpr int64_t kMaxDecoded = int64_t{1} << 30;

std::string Seconds(std::chrono::milliseconds time) {
  const int64_t ms = time.count();
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 == 0) return text + " s";
  const std::string rest = std::to_string(1000 + ms % 1000).substr(1);
  return text + "." + rest + " s";
}

Status TooLong(const AudioFile& file, int64_t frames,
               std::chrono::milliseconds limit) {
  return InvalidArgument(
      "the recording has " +
      (frames < 0 ? std::string() : std::to_string(frames) + " samples, ") +
      "more than " + Seconds(limit) + " at its rate of " +
      std::to_string(file.sample_rate()) +
      "; cut it, or allow longer ones (task_options: max_duration)");
}

}  // namespace

StatusOr<std::vector<float>> ReadWaveform(std::span<const uint8_t> bytes,
                                          const WaveformOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AudioFile> file,
                   AudioFile::Open(bytes));
  const int64_t max_frames =
      file->sample_rate() * options.max_duration.count() / 1000;
  if (file->num_frames() > max_frames) {
    return TooLong(*file, file->num_frames(), options.max_duration);
  }
  if (file->num_frames() > kMaxDecoded / file->channels()) {
    return InvalidArgument("the recording has " +
                           std::to_string(file->num_frames()) + " samples of " +
                           std::to_string(file->channels()) +
                           " channels; at most " + std::to_string(kMaxDecoded) +
                           " in all are read; mix it down or cut it");
  }
  ASSIGN_OR_RETURN(Resampler resampler,
                   Resampler::Create(file->sample_rate(), options.sample_rate));
  std::vector<float> samples;
  std::vector<float> block(kBlockFrames);
  int64_t frames = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t n, file->Read(block));
    if (n == 0) break;
    frames += static_cast<int64_t>(n);
    if (frames > max_frames || frames > kMaxDecoded / file->channels()) {
      return TooLong(*file, -1, options.max_duration);
    }
    RETURN_IF_ERROR(resampler.Put(std::span(block).first(n), &samples));
  }
  RETURN_IF_ERROR(resampler.Finish(&samples));
  if (samples.empty()) {
    return InvalidArgument("the recording has no samples");
  }
  return samples;
}

void NormalizeWaveform(std::span<float> samples) {
  double sum = 0;
  for (const float x : samples) sum += x;
  const double mean = sum / static_cast<double>(samples.size());
  double squares = 0;
  for (const float x : samples) squares += (x - mean) * (x - mean);
  const double variance = squares / static_cast<double>(samples.size());
  const double scale = 1 / std::sqrt(variance + 1e-7);
  for (float& x : samples) x = static_cast<float>((x - mean) * scale);
}

}  // namespace millrace::models
