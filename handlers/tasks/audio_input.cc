#include "handlers/tasks/audio_input.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "config/base/base64.h"
#include "config/base/utf8.h"
#include "config/task_settings.h"

namespace millrace::handlers {
namespace {

using config::AudioTaskSettings;
using models::DType;
using models::TensorSpec;

constexpr int64_t kUsualMels = 80;
// A spectrogram has at least so many bands, a channel axis has fewer.
constexpr int64_t kLeastMels = 8;
constexpr int64_t kMaxInputBytes = int64_t{1} << 30;  // of one recording

Status Wrong(std::string_view option, const std::string& why) {
  return InvalidArgument(std::string(option) + " " + why)
      .At("task_options." + std::string(option));
}

StatusOr<double> ReadHz(std::string_view option, const std::string& text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value) || value < 0) {
    return Wrong(option,
                 "is '" + Shortened(text, 100) + "' but must be Hz, 0 or more");
  }
  return value;
}

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A file, or the base64 of one, maybe as a data URL.
std::optional<std::string> FromBase64(std::string_view bytes) {
  constexpr size_t kLongestPrefix = 64;
  if (bytes.starts_with("RIFF") || bytes.starts_with("RF64") ||
      bytes.starts_with("fLaC")) {
    return std::nullopt;
  }
  if (bytes.starts_with("data:")) {
    const size_t comma = bytes.substr(0, kLongestPrefix).find(',');
    if (comma != std::string_view::npos) bytes.remove_prefix(comma + 1);
  }
  auto decoded = DecodeBase64(bytes);
  return decoded.has_value() && !decoded->empty() ? decoded : std::nullopt;
}

bool IsIndex(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32;
}

bool IsMain(const TensorSpec& spec) {
  return spec.dtype == DType::kF32 && spec.rank_known && !spec.dims.empty() &&
         spec.dims.size() <= 3 && spec.name.find("mask") == std::string::npos;
}

// How many samples or frames, or which.
bool IsCount(const TensorSpec& spec) {
  if (!spec.rank_known) return false;
  const bool is_length = IsIndex(spec.dtype) && spec.dims.size() <= 1 &&
                         spec.name.find("len") != std::string::npos;
  const bool is_mask = (IsIndex(spec.dtype) || spec.dtype == DType::kF32 ||
                        spec.dtype == DType::kBool) &&
                       spec.dims.size() == 2 &&
                       spec.name.find("mask") != std::string::npos;
  return is_length || is_mask;
}

bool TakesOne(int64_t size) { return size < 0 || size == 1; }

template <typename T>
void FillOnes(models::Tensor& tensor, int64_t count) {
  std::fill_n(tensor.data<T>(), count, T{1});
}

}  // namespace

StatusOr<models::MelOptions> MelOptionsOf(const AudioTaskSettings& settings,
                                          int64_t num_mels) {
  const bool whisper = settings.mel == "whisper";
  models::MelOptions options = {.sample_rate = settings.sample_rate,
                                .n_fft = settings.n_fft,
                                .win_length = settings.win_length,
                                .hop_length = settings.hop_length,
                                .num_mels = num_mels};
  if (settings.mel_scale == "auto" ? !whisper : settings.mel_scale == "htk") {
    options.scale = models::MelScale::kHtk;
  }
  if (settings.mel_norm == "auto" ? !whisper : settings.mel_norm == "none") {
    options.norm = models::MelNorm::kNone;
  }
  const std::string log = settings.mel_log != "auto" ? settings.mel_log
                          : whisper                  ? "whisper"
                                                     : "ln";
  options.log = log == "whisper" ? models::MelLog::kWhisper
                : log == "ln"    ? models::MelLog::kLn
                : log == "db"    ? models::MelLog::kDecibel
                : log == "none"  ? models::MelLog::kNone
                                 : models::MelLog::kPiecewise;
  ASSIGN_OR_RETURN(options.f_min, ReadHz("f_min", settings.f_min));
  ASSIGN_OR_RETURN(options.f_max, ReadHz("f_max", settings.f_max));
  return options;
}

models::WaveformOptions WaveformOptionsOf(const AudioTaskSettings& settings) {
  return {.sample_rate = settings.sample_rate,
          .max_duration = std::chrono::milliseconds(settings.max_duration_ms)};
}

StatusOr<std::vector<float>> ReadRecording(
    const TaskPart& part, const models::WaveformOptions& options) {
  const std::optional<std::string> decoded = FromBase64(part.bytes);
  return models::ReadWaveform(AsBytes(decoded ? *decoded : part.bytes),
                              options);
}

StatusOr<AudioInput> AudioInput::Create(const TaskParts& parts) {
  const AudioTaskSettings& settings = parts.settings->audio;
  AudioInput input;
  RETURN_IF_ERROR(input.FindPorts(parts));
  input.reading_ = WaveformOptionsOf(settings);
  input.normalize_ = settings.normalize;
  const std::vector<int64_t>& dims = input.main_.dims;
  const bool can_be_mel = dims.size() == 3 && TakesOne(dims[0]);
  const bool looks_like_mel =
      can_be_mel && (dims[1] < 0 || dims[1] >= kLeastMels);
  const bool is_mel = settings.features == "log_mel" ||
                      (settings.features == "auto" && looks_like_mel);
  const std::string has = "'" + input.main_.name + "' is " + input.main_.text;
  if (is_mel) {
    if (!can_be_mel) {
      return Wrong("features",
                   "is log_mel, which needs an input FP32 [1, mels, frames] "
                   "or [1, frames, mels], and " +
                       has);
    }
    RETURN_IF_ERROR(input.FitSpectrogram(parts));
  } else if (!std::all_of(dims.begin(), dims.end() - 1, TakesOne)) {
    return Wrong(
        "features",
        "is waveform, which needs an input FP32 [1, samples], and " + has);
  }
  RETURN_IF_ERROR(input.FitLength(settings));
  return input;
}

Status AudioInput::FindPorts(const TaskParts& parts) {
  const TensorSpec* main = nullptr;
  for (const TensorSpec& spec : parts.tensors->inputs()) {
    if (IsCount(spec)) {
      lengths_.push_back(spec);
    } else if (main == nullptr && IsMain(spec)) {
      main = &spec;
    } else {
      return InvalidArgument(
                 "task 'transcribe' does not know what to put into the input "
                 "'" +
                 spec.name + "' (" + spec.text +
                 "); it knows one FP32 input of samples or a spectrogram, "
                 "lengths and masks; leave task out to serve tensors")
          .At("task");
    }
  }
  if (main == nullptr) {
    return InvalidArgument(
               "task 'transcribe' needs an input FP32 of samples or a "
               "spectrogram; leave task out to serve tensors")
        .At("task");
  }
  main_ = *main;
  return OkStatus();
}

// Which of its sizes are bands: the one that n_mels says, else the fixed one.
Status AudioInput::FitSpectrogram(const TaskParts& parts) {
  const AudioTaskSettings& settings = parts.settings->audio;
  const int64_t first = main_.dims[1];
  const int64_t last = main_.dims[2];
  int64_t num_mels = settings.n_mels;
  if (num_mels > 0) {
    mels_last_ =
        first != num_mels && (last == num_mels || (first < 0 && last >= 0));
  } else if (first >= 0 && last >= 0) {
    return Wrong("n_mels", "is not given, and the sizes of '" + main_.name +
                               "' (" + main_.text +
                               ") do not say which are bands; give it");
  } else {
    mels_last_ = last >= 0;
    num_mels = std::max(first, last);
    if (num_mels < 0) num_mels = kUsualMels;
  }
  const int64_t has = mels_last_ ? last : first;
  if (has >= 0 && has != num_mels) {
    return Wrong("n_mels", "is " + std::to_string(num_mels) + " but '" +
                               main_.name + "' is " + main_.text);
  }
  ASSIGN_OR_RETURN(const models::MelOptions options,
                   MelOptionsOf(settings, num_mels));
  StatusOr<models::MelSpectrogram> mel =
      models::MelSpectrogram::Create(options);
  if (!mel.ok()) return mel.status();
  mel_.emplace(*std::move(mel));
  return OkStatus();
}

// A graph that takes one length alone has recordings padded to it.
Status AudioInput::FitLength(const AudioTaskSettings& settings) {
  padded_samples_ = settings.chunk_length_ms * settings.sample_rate / 1000;
  const bool in_the_middle = mel_.has_value() && mels_last_;
  const int64_t fixed = in_the_middle ? main_.dims[1] : main_.dims.back();
  if (fixed < 0) return OkStatus();
  const auto length_of = [&](int64_t samples) {
    return mel_ ? mel_->NumFrames(static_cast<size_t>(samples)) : samples;
  };
  if (padded_samples_ == 0) {
    const int64_t hop = mel_ ? mel_->options().hop_length : 1;
    const bool one_more = mel_ && length_of(0) == 1;
    padded_samples_ = (fixed - (one_more ? 1 : 0)) * hop;
  }
  if (padded_samples_ > 0 && length_of(padded_samples_) == fixed) {
    return OkStatus();
  }
  return Wrong("chunk_length", "gives " +
                                   std::to_string(length_of(padded_samples_)) +
                                   (mel_ ? " frames" : " samples") + " but '" +
                                   main_.name + "' is " + main_.text);
}

NamedTensor AudioInput::Counted(const TensorSpec& spec, int64_t num_valid,
                                int64_t num_all) const {
  if (spec.dims.size() < 2) {
    models::Tensor length = models::Tensor::Make(
        spec.dtype, spec.dims.empty() ? models::Shape() : models::Shape({1}));
    if (spec.dtype == DType::kI64) {
      *length.data<int64_t>() = num_valid;
    } else {
      *length.data<int32_t>() = static_cast<int32_t>(num_valid);
    }
    return {spec.name, std::move(length)};
  }
  models::Tensor mask = models::Tensor::Make(spec.dtype, {1, num_all});
  switch (spec.dtype) {
    case DType::kI64:
      FillOnes<int64_t>(mask, num_valid);
      break;
    case DType::kI32:
      FillOnes<int32_t>(mask, num_valid);
      break;
    case DType::kF32:
      FillOnes<float>(mask, num_valid);
      break;
    default:
      FillOnes<uint8_t>(mask, num_valid);
  }
  return {spec.name, std::move(mask)};
}

StatusOr<AudioRow> AudioInput::Read(const TaskPart& part) const {
  ASSIGN_OR_RETURN(std::vector<float> samples, ReadRecording(part, reading_));
  const auto rate = static_cast<double>(reading_.sample_rate);
  const auto num_samples = static_cast<int64_t>(samples.size());
  AudioRow row;
  row.seconds = static_cast<double>(num_samples) / rate;
  if (padded_samples_ > 0 && num_samples > padded_samples_) {
    return InvalidArgument("the recording has " + std::to_string(num_samples) +
                           " samples at " +
                           std::to_string(reading_.sample_rate) +
                           " Hz but the model takes at most " +
                           std::to_string(padded_samples_) + "; cut it");
  }
  if (normalize_) models::NormalizeWaveform(samples);
  if (padded_samples_ > 0) {
    samples.resize(static_cast<size_t>(padded_samples_));
  }
  row.input_seconds = static_cast<double>(samples.size()) / rate;
  int64_t num_valid = num_samples;
  int64_t num_all = static_cast<int64_t>(samples.size());
  if (mel_.has_value()) {
    num_all = mel_->NumFrames(samples.size());
    num_valid = mel_->NumFrames(static_cast<size_t>(num_samples));
    if (num_all == 0) {
      return InvalidArgument("the recording has " +
                             std::to_string(num_samples) +
                             " samples but a frame needs at least " +
                             std::to_string(mel_->options().hop_length));
    }
  }
  const int64_t bands = mel_ ? mel_->options().num_mels : 1;
  if (num_all > kMaxInputBytes / 4 / bands) {
    return InvalidArgument("the recording becomes more than " +
                           std::to_string(kMaxInputBytes) +
                           " bytes of input; cut it");
  }
  models::Shape shape({1, bands, num_all});
  if (!mel_ && main_.dims.size() == 1) shape = models::Shape({num_all});
  if (!mel_ && main_.dims.size() == 2) shape = models::Shape({1, num_all});
  if (mel_ && mels_last_) shape = models::Shape({1, num_all, bands});
  models::Tensor tensor = models::Tensor::Make(DType::kF32, shape);
  if (!mel_) {
    std::copy(samples.begin(), samples.end(), tensor.data<float>());
  } else if (!mels_last_) {
    mel_->Compute(samples, tensor.data<float>());
  } else {
    std::vector<float> values(static_cast<size_t>(bands * num_all));
    mel_->Compute(samples, values.data());
    float* out = tensor.data<float>();
    for (int64_t t = 0; t < num_all; ++t) {
      for (int64_t m = 0; m < bands; ++m) {
        *out++ = values[static_cast<size_t>(m * num_all + t)];
      }
    }
  }
  row.inputs.push_back({main_.name, std::move(tensor)});
  for (const TensorSpec& spec : lengths_) {
    row.inputs.push_back(Counted(spec, num_valid, num_all));
  }
  return row;
}

}  // namespace millrace::handlers
