// WAV and FLAC files to samples of one channel, by libsndfile:
//
//   ASSIGN_OR_RETURN(auto file, AudioFile::Open(bytes));
//   std::vector<float> block(4096);
//   ASSIGN_OR_RETURN(size_t n, file->Read(block));   // 0: the end
//
// The format is found by the first bytes. Whole numbers become -1 to 1, as
// libsndfile and torchaudio have them; several channels become their mean. WAV
// may hold PCM of 8 to 32 bits, FP32, FP64, A-law and mu-law. A file that ends
// early is an error, but for a WAV that was written to a pipe and does not tell
// its length. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "config/base/status.h"

namespace millrace::models {

class AudioFile {
 public:
  static constexpr int64_t kMinRate = 1000;  // Hz
  static constexpr int64_t kMaxRate = 384'000;
  static constexpr int64_t kMaxChannels = 16;

  // `bytes` outlive the file. INVALID_ARGUMENT says what is wrong with it;
  // UNIMPLEMENTED names a format or an encoding that is not read.
  static StatusOr<std::unique_ptr<AudioFile>> Open(
      std::span<const uint8_t> bytes);
  virtual ~AudioFile() = default;

  virtual int64_t sample_rate() const = 0;  // Hz
  virtual int64_t channels() const = 0;
  virtual int64_t num_frames() const = 0;  // -1: the file does not tell

  // Fills what it can of `mono`. INVALID_ARGUMENT where the file is damaged,
  // ends early or has a sample that is no number.
  virtual StatusOr<size_t> Read(std::span<float> mono) = 0;
};

}  // namespace millrace::models
