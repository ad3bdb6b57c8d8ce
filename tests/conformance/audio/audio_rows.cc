// audio_rows FOLDER < PATHS
//
// What a recording becomes at 16000 Hz: for the n-th path, FOLDER/n.samples,
// FOLDER/n.whisper (log-mel as Whisper takes it) and FOLDER/n.power (mel power
// as torchaudio's MelSpectrogram), all FP32. Prints a line for each: "ok", or
// why the recording is refused.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "models/audio/mel.h"
#include "models/audio/waveform.h"

namespace {

using namespace millrace;
using namespace millrace::models;

void Write(const std::string& path, std::span<const float> values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
}

Status WriteMel(const MelOptions& options, std::span<const float> samples,
                const std::string& path) {
  ASSIGN_OR_RETURN(const MelSpectrogram mel, MelSpectrogram::Create(options));
  std::vector<float> rows(
      static_cast<size_t>(options.num_mels * mel.NumFrames(samples.size())));
  if (!rows.empty()) mel.Compute(samples, rows.data());
  Write(path, rows);
  return OkStatus();
}

Status Convert(const std::string& path, const std::string& to) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  ASSIGN_OR_RETURN(
      const std::vector<float> samples,
      ReadWaveform({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                   {}));
  Write(to + ".samples", samples);
  RETURN_IF_ERROR(WriteMel({}, samples, to + ".whisper"));
  return WriteMel(
      {.scale = MelScale::kHtk, .norm = MelNorm::kNone, .log = MelLog::kNone},
      samples, to + ".power");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " FOLDER < PATHS\n";
    return 2;
  }
  std::string path;
  for (int n = 0; std::getline(std::cin, path); ++n) {
    const Status status =
        Convert(path, std::string(argv[1]) + "/" + std::to_string(n));
    std::cout << (status.ok() ? "ok" : status.message()) << "\n";
  }
  return 0;
}
