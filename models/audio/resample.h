// Samples of one rate to those of another, by soxr at its quality HQ, as
// librosa and python-soxr do it by default:
//
//   ASSIGN_OR_RETURN(Resampler resampler, Resampler::Create(44100, 16000));
//   RETURN_IF_ERROR(resampler.Put(block, &samples));   // as they come
//   RETURN_IF_ERROR(resampler.Finish(&samples));
//
// Where both rates are the same, samples are passed on. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/base/status.h"

struct soxr;

namespace millrace::models {

class Resampler {
 public:
  static StatusOr<Resampler> Create(int64_t from_hz, int64_t to_hz);
  Resampler(Resampler&&) noexcept;
  Resampler& operator=(Resampler&&) noexcept;
  ~Resampler();

  // What comes out so far is appended to `out`.
  Status Put(std::span<const float> samples, std::vector<float>* out);
  // The rest, behind the last Put.
  Status Finish(std::vector<float>* out);

 private:
  struct Delete {
    void operator()(soxr* resampler) const;
  };
  Resampler(soxr* resampler, double ratio);
  Status Process(std::span<const float> samples, bool is_last,
                 std::vector<float>* out);

  std::unique_ptr<soxr, Delete> resampler_;  // null: one rate
  double ratio_ = 1;
};

}  // namespace millrace::models
