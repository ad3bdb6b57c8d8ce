#include "models/audio/resample.h"

#include <soxr.h>

#include <cmath>
#include <string>

namespace millrace::models {
namespace {

constexpr size_t kBlockSamples = 8192;

Status Failed(soxr_error_t error) {
  return Internal(std::string("the recording could not be resampled (") +
                  soxr_strerror(error) + ")");
}

}  // namespace

Resampler::Resampler(soxr* resampler, double ratio)
    : resampler_(resampler), ratio_(ratio) {}
Resampler::Resampler(Resampler&&) noexcept = default;
Resampler& Resampler::operator=(Resampler&&) noexcept = default;
Resampler::~Resampler() = default;

void Resampler::Delete::operator()(soxr* resampler) const {
  soxr_delete(resampler);
}

StatusOr<Resampler> Resampler::Create(int64_t from_hz, int64_t to_hz) {
  if (from_hz == to_hz) return Resampler(nullptr, 1);
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);  // thread
  const auto from = static_cast<double>(from_hz);
  const auto to = static_cast<double>(to_hz);
  soxr_error_t error = nullptr;
  soxr* const made = soxr_create(from, to, 1, &error, &io, &quality, &runtime);
  if (made == nullptr) return Failed(error);
  return Resampler(made, to / from);
}

Status Resampler::Put(std::span<const float> samples, std::vector<float>* out) {
  if (resampler_ == nullptr) {
    out->insert(out->end(), samples.begin(), samples.end());
    return OkStatus();
  }
  return Process(samples, false, out);
}

Status Resampler::Finish(std::vector<float>* out) {
  return resampler_ == nullptr ? OkStatus() : Process({}, true, out);
}

Status Resampler::Process(std::span<const float> samples, bool is_last,
                          std::vector<float>* out) {
  while (true) {
    const size_t room =
        kBlockSamples + static_cast<size_t>(std::ceil(
                            static_cast<double>(samples.size()) * ratio_));
    const size_t before = out->size();
    out->resize(before + room);
    size_t taken = 0;
    size_t made = 0;
    // A null input marks the end.
    const soxr_error_t error =
        soxr_process(resampler_.get(), is_last ? nullptr : samples.data(),
                     samples.size(), &taken, out->data() + before, room, &made);
    out->resize(before + made);
    if (error != nullptr) return Failed(error);
    samples = samples.subspan(taken);
    if (samples.empty() && made < room) return OkStatus();
  }
}

}  // namespace millrace::models
