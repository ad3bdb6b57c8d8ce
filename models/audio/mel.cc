#include "models/audio/mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <kissfft.hh>
#include <numbers>
#include <string>

namespace millrace::models {
namespace {

constexpr int64_t kMaxFrameSamples = 1 << 15;
constexpr int64_t kMaxMels = 4096;
constexpr double kFloor = 1e-10;  // below it is silence

// Slaney's scale is linear below 1000 Hz (15 mel) and logarithmic above, 27
// mel for each factor of 6.4.
constexpr double kSlaneyHz = 1000;
constexpr double kSlaneyMel = 15;
constexpr double kMelPerHz = 3.0 / 200;
const double kLogStep = std::log(6.4) / 27;

double ToMel(MelScale scale, double hz) {
  if (scale == MelScale::kHtk) return 2595 * std::log10(1 + hz / 700);
  return hz < kSlaneyHz ? hz * kMelPerHz
                        : kSlaneyMel + std::log(hz / kSlaneyHz) / kLogStep;
}

double ToHz(MelScale scale, double mel) {
  if (scale == MelScale::kHtk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < kSlaneyMel ? mel / kMelPerHz
                          : kSlaneyHz * std::exp(kLogStep * (mel - kSlaneyMel));
}

// Both reference implementations halve the rate in whole numbers.
double HalfRate(const MelOptions& options) {
  return static_cast<double>(options.sample_rate / 2);
}

Status Wrong(const std::string& option, const std::string& why) {
  return InvalidArgument(option + " " + why).At(option);
}

// Where the waveform, mirrored at both ends without repeating them, has sample
// `at`.
size_t Mirrored(int64_t at, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  at = ((at % period) + period) % period;
  return static_cast<size_t>(at < size ? at : period - at);
}

}  // namespace

StatusOr<MelSpectrogram> MelSpectrogram::Create(const MelOptions& options) {
  MelOptions checked = options;
  if (options.n_fft < 2 || options.n_fft > kMaxFrameSamples ||
      options.n_fft % 2 != 0) {
    return Wrong("n_fft", "is " + std::to_string(options.n_fft) +
                              " but must be an even number of 2 to " +
                              std::to_string(kMaxFrameSamples));
  }
  if (checked.win_length == 0) checked.win_length = checked.n_fft;
  if (checked.win_length < 1 || checked.win_length > checked.n_fft) {
    return Wrong("win_length", "is " + std::to_string(checked.win_length) +
                                   " but must be between 1 and n_fft, " +
                                   std::to_string(checked.n_fft));
  }
  if (checked.hop_length < 1) return Wrong("hop_length", "must be at least 1");
  if (checked.num_mels < 1 || checked.num_mels > kMaxMels) {
    return Wrong("n_mels", "is " + std::to_string(checked.num_mels) +
                               " but must be between 1 and " +
                               std::to_string(kMaxMels));
  }
  if (checked.f_max == 0) checked.f_max = HalfRate(checked);
  if (!(checked.f_min >= 0 && checked.f_min < checked.f_max)) {
    return Wrong("f_min", "must be at least 0 and less than f_max");
  }
  MelSpectrogram mel(checked);
  mel.MakeWindow();
  mel.MakeBands();
  return mel;
}

void MelSpectrogram::MakeWindow() {
  const auto length = static_cast<size_t>(options_.win_length);
  window_.assign(static_cast<size_t>(options_.n_fft), 0);
  const size_t left = (window_.size() - length) / 2;
  for (size_t i = 0; i < length; ++i) {
    const double phase = 2 * std::numbers::pi * static_cast<double>(i) /
                         static_cast<double>(length);
    window_[left + i] = 0.5 - 0.5 * std::cos(phase);
  }
}

// Triangles in Hz whose corners are equally far from each other in mel.
void MelSpectrogram::MakeBands() {
  const size_t num_bins = static_cast<size_t>(options_.n_fft) / 2 + 1;
  const auto num_mels = static_cast<size_t>(options_.num_mels);
  const double low = ToMel(options_.scale, options_.f_min);
  const double high = ToMel(options_.scale, options_.f_max);
  std::vector<double> corners(num_mels + 2);
  for (size_t i = 0; i < corners.size(); ++i) {
    const double part =
        static_cast<double>(i) / static_cast<double>(num_mels + 1);
    corners[i] = ToHz(options_.scale, low + part * (high - low));
  }
  const double bin_hz = HalfRate(options_) / static_cast<double>(num_bins - 1);
  for (size_t m = 0; m < num_mels; ++m) {
    const double left = corners[m];
    const double middle = corners[m + 1];
    const double right = corners[m + 2];
    const double area =
        options_.norm == MelNorm::kSlaney ? 2 / (right - left) : 1;
    Band band;
    for (size_t bin = 0; bin < num_bins; ++bin) {
      const double hz = static_cast<double>(bin) * bin_hz;
      const double weight = std::min((hz - left) / (middle - left),
                                     (right - hz) / (right - middle));
      if (weight <= 0) continue;
      if (band.weights.empty()) band.first = bin;
      band.weights.push_back(weight * area);
    }
    bands_.push_back(std::move(band));
  }
}

int64_t MelSpectrogram::NumFrames(size_t num_samples) const {
  const int64_t hops = static_cast<int64_t>(num_samples) / options_.hop_length;
  return options_.log == MelLog::kWhisper ? hops : hops + 1;
}

void MelSpectrogram::Compute(std::span<const float> samples, float* out) const {
  const auto size = static_cast<int64_t>(samples.size());
  const auto num_frames = static_cast<size_t>(NumFrames(samples.size()));
  const auto n_fft = static_cast<size_t>(options_.n_fft);
  const kissfft<double> fft(n_fft / 2, false);
  std::vector<double> frame(n_fft);
  std::vector<std::complex<double>> bins(n_fft / 2);
  std::vector<double> power(n_fft / 2 + 1);
  for (size_t t = 0; t < num_frames; ++t) {
    const int64_t first =
        static_cast<int64_t>(t) * options_.hop_length - options_.n_fft / 2;
    for (size_t i = 0; i < n_fft; ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      const size_t from =
          at >= 0 && at < size ? static_cast<size_t>(at) : Mirrored(at, size);
      frame[i] = window_[i] * samples[from];
    }
    fft.transform_real(frame.data(), bins.data());
    // The first holds two real bins, the first and the last.
    power.front() = bins[0].real() * bins[0].real();
    power.back() = bins[0].imag() * bins[0].imag();
    for (size_t bin = 1; bin < bins.size(); ++bin) {
      power[bin] = std::norm(bins[bin]);
    }
    for (size_t m = 0; m < bands_.size(); ++m) {
      double sum = 0;
      for (size_t i = 0; i < bands_[m].weights.size(); ++i) {
        sum += bands_[m].weights[i] * power[bands_[m].first + i];
      }
      out[m * num_frames + t] = static_cast<float>(sum);
    }
  }
  TakeLog(std::span(out, bands_.size() * num_frames));
}

void MelSpectrogram::TakeLog(std::span<float> values) const {
  if (options_.log == MelLog::kNone || values.empty()) return;
  if (options_.log == MelLog::kLn) {
    for (float& x : values) x = std::log(x + 1e-6F);
    return;
  }
  if (options_.log == MelLog::kPiecewise) {
    constexpr double kGain = 32767.0 * 32767.0;
    for (float& value : values) {
      const double x = kGain * static_cast<double>(value);
      value = static_cast<float>(x > std::numbers::e ? std::log(x)
                                                     : x / std::numbers::e);
    }
    return;
  }
  const bool is_whisper = options_.log == MelLog::kWhisper;
  const double scale = is_whisper ? 1 : 10;
  float greatest = -INFINITY;
  for (float& x : values) {
    x = static_cast<float>(
        scale * std::log10(std::max(static_cast<double>(x), kFloor)));
    greatest = std::max(greatest, x);
  }
  const float least = greatest - (is_whisper ? 8.0F : 80.0F);
  for (float& x : values) {
    x = std::max(x, least);
    if (is_whisper) x = (x + 4) / 4;
  }
}

}  // namespace millrace::models
