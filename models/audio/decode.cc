#include "models/audio/decode.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/file_signature.h"

namespace millrace::models {
namespace {

// Formats that are not read.
constexpr FileSignature kForeign[] = {
    {0, "ID3", "an MP3"},
    {0, "\xff\xfb", "an MP3"},
    {0, "\xff\xfa", "an MP3"},
    {0, "\xff\xf3", "an MP3"},
    {0, "\xff\xf2", "an MP3"},
    {0, "\xff\xe3", "an MP3"},
    {0, "\xff\xf1", "an AAC"},
    {0, "\xff\xf9", "an AAC"},
    {0, "OggS", "an Ogg"},
    {0, "FORM", "an AIFF"},
    {0, ".snd", "an AU"},
    {0, "caff", "a CAF"},
    {0, "RIFX", "a big-endian WAV (RIFX)"},
    {0, "BW64", "a BW64"},
    {0, "\x1a\x45\xdf\xa3", "a WebM or Matroska"},
    {4, "ftyp", "an MP4 or M4A"},
};

// Sizes from here on are no sizes: the writer could not go back to fill them.
constexpr uint32_t kUntoldBytes = 0x7fffff00;

std::string_view TextOf(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Without the tag that programs for music put before a FLAC (ID3v2.4, 3.1).
std::span<const uint8_t> BehindTag(std::span<const uint8_t> bytes) {
  constexpr size_t kHeadBytes = 10;
  constexpr uint8_t kHasFooter = 0x10;
  if (bytes.size() < kHeadBytes || !TextOf(bytes).starts_with("ID3")) {
    return bytes;
  }
  size_t size = 0;
  for (size_t i = 6; i < kHeadBytes; ++i) size = size << 7 | (bytes[i] & 127);
  size += kHeadBytes + ((bytes[5] & kHasFooter) != 0 ? kHeadBytes : 0);
  if (size > bytes.size()) return bytes;
  const auto rest = bytes.subspan(size);
  return TextOf(rest).starts_with("fLaC") ? rest : bytes;
}

enum class Container { kWav, kFlac };

StatusOr<Container> ContainerOf(std::string_view text) {
  if (text.starts_with("fLaC")) return Container::kFlac;
  const bool is_riff = text.starts_with("RIFF") || text.starts_with("RF64");
  if (is_riff && text.size() >= 12 && text.substr(8, 4) == "WAVE") {
    return Container::kWav;
  }
  if (text.empty()) {
    return InvalidArgument("the recording has no bytes; send a WAV or a FLAC");
  }
  if (const std::string_view name = FormatName(kForeign, text); !name.empty()) {
    return Unimplemented("the recording is " + std::string(name) +
                         ", which is not read; send a WAV or a FLAC");
  }
  return InvalidArgument("the recording is no WAV and no FLAC");
}

uint32_t Little32(std::string_view text, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(text[at + i]);
  }
  return value;
}

// libsndfile reads what is there of a file that was cut off, without a word.
Status CheckWavLength(std::string_view text) {
  constexpr size_t kHeadBytes = 8;
  size_t at = 12;
  while (text.size() >= at + kHeadBytes) {
    const uint32_t size = Little32(text, at + 4);
    const size_t left = text.size() - at - kHeadBytes;
    if (text.substr(at, 4) == "data") {
      if (size <= left || size >= kUntoldBytes) return OkStatus();
      return InvalidArgument("the recording ends early: its data are " +
                             std::to_string(left) + " bytes of " +
                             std::to_string(size));
    }
    if (size > left) break;
    at += kHeadBytes + size + size % 2;
  }
  return InvalidArgument("the WAV has no data");
}

// The bytes as libsndfile reads them.
struct Source {
  std::span<const uint8_t> bytes;
  sf_count_t at = 0;

  sf_count_t size() const { return static_cast<sf_count_t>(bytes.size()); }
};

sf_count_t SourceSize(void* user) { return static_cast<Source*>(user)->size(); }

sf_count_t SourceSeek(sf_count_t offset, int whence, void* user) {
  Source& source = *static_cast<Source*>(user);
  const sf_count_t from = whence == SEEK_SET   ? 0
                          : whence == SEEK_CUR ? source.at
                                               : source.size();
  // Offsets come from the file: compared before they are added.
  if (offset < -from || offset > source.size() - from) return -1;
  source.at = from + offset;
  return source.at;
}

sf_count_t SourceRead(void* into, sf_count_t count, void* user) {
  Source& source = *static_cast<Source*>(user);
  const sf_count_t n =
      std::clamp<sf_count_t>(count, 0, source.size() - source.at);
  if (n > 0) {
    std::memcpy(into, source.bytes.data() + source.at, static_cast<size_t>(n));
  }
  source.at += n;
  return n;
}

sf_count_t SourceWrite(const void*, sf_count_t, void*) { return 0; }
sf_count_t SourceTell(void* user) { return static_cast<Source*>(user)->at; }

struct Close {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

Status CheckEncoding(int format) {
  switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_S8:
    case SF_FORMAT_PCM_U8:
    case SF_FORMAT_PCM_16:
    case SF_FORMAT_PCM_24:
    case SF_FORMAT_PCM_32:
    case SF_FORMAT_FLOAT:
    case SF_FORMAT_DOUBLE:
    case SF_FORMAT_ULAW:
    case SF_FORMAT_ALAW:
      return OkStatus();
    default:
      return Unimplemented(
          "the WAV is compressed in a way that is not read; send PCM, or a "
          "FLAC");
  }
}

class SndFile final : public AudioFile {
 public:
  explicit SndFile(std::span<const uint8_t> bytes) : source_{.bytes = bytes} {}

  Status Start(Container container) {
    SF_VIRTUAL_IO io = {SourceSize, SourceSeek, SourceRead, SourceWrite,
                        SourceTell};
    file_.reset(sf_open_virtual(&io, SFM_READ, &info_, &source_));
    if (file_ == nullptr) {
      return InvalidArgument(std::string("the recording cannot be read (") +
                             sf_strerror(nullptr) + ")");
    }
    if (container == Container::kWav) {
      RETURN_IF_ERROR(CheckEncoding(info_.format));
    }
    if (info_.samplerate < kMinRate || info_.samplerate > kMaxRate) {
      return InvalidArgument(
          "the recording has " + std::to_string(info_.samplerate) +
          " samples a second but may have " + std::to_string(kMinRate) +
          " to " + std::to_string(kMaxRate) + "; resample it");
    }
    if (info_.channels < 1 || info_.channels > kMaxChannels) {
      return InvalidArgument("the recording has " +
                             std::to_string(info_.channels) +
                             " channels but may have 1 to " +
                             std::to_string(kMaxChannels) + "; mix it down");
    }
    // What FLAC files say that were written to a pipe.
    is_told_ = info_.frames > 0 && info_.frames != SF_COUNT_MAX;
    must_be_whole_ = container == Container::kFlac && is_told_;
    return OkStatus();
  }

  int64_t sample_rate() const override { return info_.samplerate; }
  int64_t channels() const override { return info_.channels; }
  int64_t num_frames() const override { return is_told_ ? info_.frames : -1; }

  StatusOr<size_t> Read(std::span<float> mono) override {
    const auto channels = static_cast<size_t>(info_.channels);
    const sf_count_t wanted = static_cast<sf_count_t>(mono.size());
    block_.resize(mono.size() * channels);
    const sf_count_t got = sf_readf_float(file_.get(), block_.data(), wanted);
    if (got < 0 || sf_error(file_.get()) != SF_ERR_NO_ERROR) {
      return InvalidArgument("the recording is damaged behind sample " +
                             std::to_string(frames_) + " (" +
                             sf_strerror(file_.get()) + ")");
    }
    if (got < wanted && must_be_whole_ && frames_ + got < info_.frames) {
      return InvalidArgument("the recording ends early: it has " +
                             std::to_string(frames_ + got) + " samples of " +
                             std::to_string(info_.frames));
    }
    for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
      double sum = 0;
      for (size_t c = 0; c < channels; ++c) sum += block_[i * channels + c];
      mono[i] = static_cast<float>(sum / static_cast<double>(channels));
      if (!std::isfinite(mono[i])) {
        return InvalidArgument(
            "sample " + std::to_string(frames_ + static_cast<int64_t>(i)) +
            " of the recording is not a finite number");
      }
    }
    frames_ += got;
    return static_cast<size_t>(got);
  }

 private:
  Source source_;
  SF_INFO info_ = {};
  std::unique_ptr<SNDFILE, Close> file_;  // reads source_
  bool is_told_ = false;
  bool must_be_whole_ = false;
  int64_t frames_ = 0;  // read so far
  std::vector<float> block_;
};

}  // namespace

StatusOr<std::unique_ptr<AudioFile>> AudioFile::Open(
    std::span<const uint8_t> bytes) {
  bytes = BehindTag(bytes);
  ASSIGN_OR_RETURN(const Container container, ContainerOf(TextOf(bytes)));
  if (container == Container::kWav && bytes[1] == 'I') {
    RETURN_IF_ERROR(CheckWavLength(TextOf(bytes)));
  }
  auto file = std::make_unique<SndFile>(bytes);
  RETURN_IF_ERROR(file->Start(container));
  return std::unique_ptr<AudioFile>(std::move(file));
}

}  // namespace millrace::models
