// Recordings against what soundfile, soxr, transformers and torchaudio make of
// them: audio.npz and odd_audio.npz are the output of make_audio.py and
// make_odd_audio.py in tests/data/audio.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "models/audio/decode.h"
#include "models/audio/mel.h"
#include "models/audio/resample.h"
#include "models/audio/waveform.h"
#include "models/files/npz.h"

namespace millrace::models {
namespace {

using ::testing::HasSubstr;

// Those of odd_audio.npz stand in the folder "odd".
const std::map<std::string, Tensor>& All() {
  static const auto* const all = [] {
    auto* made = new std::map<std::string, Tensor>();
    for (const auto& [path, folder] :
         {std::pair("tests/data/audio/audio.npz", ""),
          std::pair("tests/data/audio/odd_audio.npz", "odd/")}) {
      auto arrays = ReadNpz(path);
      EXPECT_TRUE(arrays.ok()) << arrays.status().ToString();
      for (NamedTensor& array : *arrays) {
        made->emplace(folder + array.name, std::move(array.tensor));
      }
    }
    return made;
  }();
  return *all;
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : All()) {
    if (name.starts_with(folder)) names.push_back(name.substr(folder.size()));
  }
  return names;
}

std::vector<float> Floats(const std::string& name) {
  const Tensor& tensor = All().at(name);
  return {tensor.data<float>(), tensor.data<float>() + tensor.num_elements()};
}

std::vector<uint8_t> File(const std::string& name,
                          const std::string& folder = "file/") {
  const Tensor& tensor = All().at(folder + name);
  return {tensor.data<uint8_t>(),
          tensor.data<uint8_t>() + tensor.num_elements()};
}

int64_t RateOf(const std::string& name) {
  return *All().at("rate/" + name).data<int64_t>();
}

StatusOr<std::vector<float>> Read(
    const std::vector<uint8_t>& file, int64_t rate,
    std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  return ReadWaveform(file, {.sample_rate = rate, .max_duration = limit});
}

std::string ErrorOf(const std::vector<uint8_t>& file, int64_t rate = 16000) {
  const auto read = Read(file, rate);
  return read.ok() ? "ok" : std::string(read.status().message());
}

double FarthestApart(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double{a[i]} - b[i]));
  }
  return most;
}

void Put32(std::vector<uint8_t>& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) {
    file[at + i] = static_cast<uint8_t>(value >> (8 * i));
  }
}

// A WAV of one channel whose header says so.
std::vector<uint8_t> Wav(uint16_t format, uint16_t bits, uint32_t rate,
                         std::vector<uint8_t> data, uint16_t channels = 1) {
  std::vector<uint8_t> file(44);
  const std::string head = "RIFF....WAVEfmt ................";
  std::copy(head.begin(), head.end(), file.begin());
  Put32(file, 4, static_cast<uint32_t>(36 + data.size()));
  Put32(file, 16, 16);
  Put32(file, 20, format | uint32_t{channels} << 16);
  Put32(file, 24, rate);
  Put32(file, 28, rate * channels * bits / 8);
  Put32(file, 32,
        static_cast<uint32_t>(channels * bits / 8) | uint32_t{bits} << 16);
  const std::string name = "data";
  std::copy(name.begin(), name.end(), file.begin() + 36);
  Put32(file, 40, static_cast<uint32_t>(data.size()));
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

TEST(Decode, SamplesAreThoseOfSoundfile) {
  ASSERT_EQ(Names("file/").size(), 13u);
  for (const std::string& name : Names("file/")) {
    const auto file = File(name);
    const auto opened = AudioFile::Open(file);
    ASSERT_TRUE(opened.ok()) << name << opened.status().ToString();
    EXPECT_EQ((*opened)->sample_rate(), RateOf(name)) << name;
    const auto read = Read(file, RateOf(name));
    ASSERT_TRUE(read.ok()) << name << read.status().ToString();
    EXPECT_EQ(static_cast<int64_t>(read->size()), (*opened)->num_frames());
    // The same integers; a mean may be rounded once.
    EXPECT_LE(FarthestApart(*read, Floats("mono/" + name)), 1e-7) << name;
  }
}

TEST(Decode, OddFilesAreReadAsSoundfileReadsThem) {
  ASSERT_GE(Names("odd/mono/").size(), 26u);
  for (const std::string& name : Names("odd/mono/")) {
    const int64_t rate = *All().at("odd/rate/" + name).data<int64_t>();
    const auto read = Read(File(name, "odd/file/"), rate);
    ASSERT_TRUE(read.ok()) << name << ": " << read.status().ToString();
    EXPECT_LE(FarthestApart(*read, Floats("odd/mono/" + name)), 1e-7) << name;
    EXPECT_TRUE(Read(File(name, "odd/file/"), 16000).ok()) << name;
  }
}

TEST(Resample, AgreesWithSoxr) {
  ASSERT_GE(Names("resampled/").size(), 7u);
  for (const std::string& name : Names("resampled/")) {
    const auto read = Read(File(name), 16000);
    ASSERT_TRUE(read.ok()) << name << read.status().ToString();
    // Filters of single precision, put together in blocks of other sizes.
    EXPECT_LE(FarthestApart(*read, Floats("resampled/" + name)), 1e-5) << name;
  }
}

TEST(Resample, BlocksOfAnySizeGiveTheSame) {
  const std::vector<float> wave = Floats("mono/flac16_22k.flac");
  const auto resampled = [&](size_t block) {
    auto resampler = Resampler::Create(22050, 16000);
    EXPECT_TRUE(resampler.ok());
    std::vector<float> out;
    for (size_t at = 0; at < wave.size(); at += block) {
      const size_t n = std::min(block, wave.size() - at);
      EXPECT_TRUE(resampler->Put(std::span(wave).subspan(at, n), &out).ok());
    }
    EXPECT_TRUE(resampler->Finish(&out).ok());
    return out;
  };
  EXPECT_EQ(resampled(1), resampled(wave.size()));
}

std::vector<float> Mel(const MelOptions& options,
                       const std::vector<float>& wave) {
  const auto mel = MelSpectrogram::Create(options);
  EXPECT_TRUE(mel.ok()) << mel.status().ToString();
  std::vector<float> out(
      static_cast<size_t>(options.num_mels * mel->NumFrames(wave.size())));
  mel->Compute(wave, out.data());
  return out;
}

TEST(Mel, AgreesWithWhispersFeatureExtractor) {
  std::vector<float> wave = Floats("signal");
  const MelOptions options = {.num_mels = 80, .f_max = 8000};
  EXPECT_LE(FarthestApart(Mel(options, wave), Floats("whisper/80_0")), 1e-5);
  wave.resize(16000);  // padded with silence
  EXPECT_LE(FarthestApart(Mel(options, wave), Floats("whisper/80_1")), 1e-5);
}

// torchaudio computes in float, weights of the bands too: a band sums some ten
// powers, each with a few errors of 2^-24 of the loudest one.
// The RNN-T pipelines of torchaudio; beside torchaudio itself it stands in the
// test of what takes them (handlers/transducer).
TEST(Mel, PiecewiseIsALogarithmAboveEAndLinearBelow) {
  MelOptions options = {.scale = MelScale::kHtk, .norm = MelNorm::kNone};
  options.log = MelLog::kNone;
  std::vector<float> wave(1600);
  for (size_t i = 0; i < wave.size(); ++i) {
    // From below a step of 16 bits to loud.
    wave[i] = std::exp(static_cast<float>(i) / 100 - 16) *
              std::sin(static_cast<float>(i));
  }
  const std::vector<float> power = Mel(options, wave);
  options.log = MelLog::kPiecewise;
  const std::vector<float> got = Mel(options, wave);
  int linear = 0;
  for (size_t i = 0; i < power.size(); ++i) {
    const double x = 32767.0 * 32767.0 * power[i];
    const bool is_small = x <= std::exp(1.0);
    linear += is_small ? 1 : 0;
    EXPECT_NEAR(got[i], is_small ? x / std::exp(1.0) : std::log(x), 1e-5);
  }
  EXPECT_GT(linear, 0);
  EXPECT_LT(linear, static_cast<int>(power.size()));
}

TEST(Mel, AgreesWithTorchaudio) {
  const MelOptions htk = {
      .scale = MelScale::kHtk, .norm = MelNorm::kNone, .log = MelLog::kNone};
  MelOptions usual = htk;
  usual.hop_length = 200;
  usual.num_mels = 64;
  MelOptions window = htk;
  window.n_fft = 512;
  window.win_length = 320;
  window.num_mels = 40;
  window.f_min = 20;
  window.f_max = 7600;
  MelOptions slaney = htk;
  slaney.n_fft = 1024;
  slaney.hop_length = 256;
  slaney.scale = MelScale::kSlaney;
  slaney.norm = MelNorm::kSlaney;
  MelOptions db = usual;
  db.log = MelLog::kDecibel;
  MelOptions ln = usual;
  ln.log = MelLog::kLn;
  const std::vector<float> wave = Floats("signal");
  for (const auto& [name, options] :
       {std::pair<const char*, MelOptions>("usual", usual),
        std::pair<const char*, MelOptions>("short_window", window),
        std::pair<const char*, MelOptions>("slaney", slaney)}) {
    const auto wanted = Floats(std::string("torchaudio/") + name);
    const double loudest = *std::max_element(wanted.begin(), wanted.end());
    EXPECT_LE(FarthestApart(Mel(options, wave), wanted), 3e-6 * loudest)
        << name;
  }
  EXPECT_LE(FarthestApart(Mel(db, wave), Floats("torchaudio/db")), 1e-3);
  std::vector<float> logs = Floats("torchaudio/usual");
  for (float& x : logs) x = std::log(x + 1e-6F);
  EXPECT_LE(FarthestApart(Mel(ln, wave), logs), 2e-4);
}

TEST(Mel, ShortRecordingsAreMirroredAgainAndAgain) {
  // A constant stays constant, however often it is mirrored.
  const MelOptions options = {
      .hop_length = 1, .num_mels = 4, .log = MelLog::kNone};
  const auto one = Mel(options, {0.5F});
  const auto seven = Mel(options, std::vector<float>(7, 0.5F));
  ASSERT_EQ(one.size(), 8u);  // NumFrames(1) is 2
  for (size_t m = 0; m < 4; ++m) EXPECT_EQ(one[m * 2], seven[m * 8 + 3]);
}

TEST(Mel, OptionsWithoutSenseAreRefused) {
  const auto error = [](const MelOptions& options) {
    return std::string(MelSpectrogram::Create(options).status().message());
  };
  EXPECT_THAT(error({.n_fft = 401}), HasSubstr("even"));
  EXPECT_THAT(error({.win_length = 401}), HasSubstr("between 1 and n_fft"));
  EXPECT_THAT(error({.num_mels = 0}), HasSubstr("n_mels is 0"));
  EXPECT_THAT(error({.f_min = 9000}), HasSubstr("less than f_max"));
}

TEST(Waveform, IsNormalizedAsWav2Vec2Does) {
  std::vector<float> wave = Floats("signal");
  NormalizeWaveform(wave);
  wave.resize(500);
  EXPECT_LE(FarthestApart(wave, Floats("normalized")), 1e-5);
}

TEST(Waveform, LongRecordingsAreRefusedBeforeTheyAreRead) {
  const auto limit = std::chrono::milliseconds(119);
  const auto read = Read(File("pcm16.wav"), 16000, limit);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().message(),
            "the recording has 1920 samples, more than 0.119 s at its rate of "
            "16000; cut it, or allow longer ones (task_options: max_duration)");
  EXPECT_TRUE(Read(File("pcm16.wav"), 16000, limit + limit / 119).ok());
}

TEST(BadFiles, AreRefusedWithAReason) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("no bytes"));
  const auto text = [](std::string_view bytes) {
    return ErrorOf({bytes.begin(), bytes.end()});
  };
  EXPECT_THAT(text("hello there"), HasSubstr("no WAV and no FLAC"));
  EXPECT_THAT(text("OggS"), HasSubstr("is an Ogg"));
  EXPECT_THAT(text("....ftypM4A "), HasSubstr("is an MP4"));
  EXPECT_THAT(text("RIFF....WAVE"), HasSubstr("has no data"));
  EXPECT_THAT(ErrorOf(Wav(1, 16, 999, {0, 0})), HasSubstr("999 samples a sec"));
  EXPECT_THAT(ErrorOf(Wav(1, 16, 2'000'000'000, {0, 0})),
              HasSubstr("2000000000 samples a second but may have 1000 to"));
  EXPECT_THAT(ErrorOf(Wav(1, 16, 8000, std::vector<uint8_t>(400), 100)),
              HasSubstr("100 channels"));
  EXPECT_THAT(ErrorOf(Wav(1, 16, 16000, {})), HasSubstr("has no samples"));
  EXPECT_THAT(ErrorOf(Wav(0x11, 4, 16000, std::vector<uint8_t>(64))),
              testing::AnyOf(HasSubstr("compressed"), HasSubstr("cannot be")));
}

TEST(BadFiles, OddOnesAreRefusedToo) {
  int refused = 0;
  for (const std::string& name : Names("odd/file/")) {
    if (!name.starts_with("bad_")) continue;
    ++refused;
    const auto read = Read(File(name, "odd/file/"), 16000);
    ASSERT_FALSE(read.ok()) << name;
    const bool is_empty = name.find("no_samples") != std::string::npos;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr(is_empty ? "the recording has no samples" : ""))
        << name;
    const bool is_other = name.starts_with("bad_big_endian");
    EXPECT_EQ(read.status().code(), is_other ? StatusCode::kUnimplemented
                                             : StatusCode::kInvalidArgument)
        << name << ": " << read.status().ToString();
  }
  EXPECT_GE(refused, 10);
}

TEST(BadFiles, SamplesThatAreNoNumbersAreRefused) {
  std::vector<uint8_t> data(12);
  Put32(data, 8, 0x7fc00000);  // NaN
  EXPECT_EQ(ErrorOf(Wav(3, 32, 16000, data)),
            "sample 2 of the recording is not a finite number");
}

TEST(BadFiles, CutOffFilesAreRefused) {
  for (const std::string& name : Names("file/")) {
    std::vector<uint8_t> file = File(name);
    if (name == "rf64.wav") continue;  // libsndfile believes the file's length
    file.resize(file.size() * 3 / 4);
    EXPECT_THAT(ErrorOf(file),
                testing::AnyOf(HasSubstr("ends early"), HasSubstr("damaged")))
        << name;
    file.resize(20);
    EXPECT_NE(ErrorOf(file), "ok") << name;
  }
}

TEST(Decode, AWavFromAPipeDoesNotTellItsLength) {
  std::vector<uint8_t> file = File("pcm16.wav");
  for (const uint32_t untold : {0xffffffffU, 0x7fffffffU}) {
    Put32(file, 4, untold);
    Put32(file, 40, untold);
    const auto read = Read(file, 16000);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, Floats("mono/pcm16.wav"));
  }
}

TEST(Decode, AFlacFromAPipeDoesNotTellItsLength) {
  std::vector<uint8_t> file = File("flac16_22k.flac");
  // STREAMINFO's last 36 bits before the digest: samples in all.
  file[21] &= 0xf0;
  for (size_t i = 22; i < 26; ++i) file[i] = 0;
  const auto read = Read(file, 22050);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_LE(FarthestApart(*read, Floats("mono/flac16_22k.flac")), 1e-7);
  // And one that tells more than it has.
  file[25] = 255;
  file[24] = 255;
  EXPECT_THAT(ErrorOf(file), HasSubstr("ends early"));
}

}  // namespace
}  // namespace millrace::models
