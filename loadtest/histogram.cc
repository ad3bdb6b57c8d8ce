// Values below 2048 have a bucket each. Above, a value with its highest bit at
// position b falls into bucket (value >> (b - 10)) of the 1024 of its power.
#include "loadtest/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace millrace::loadtest {
namespace {

constexpr int kBits = 10;  // 1024 buckets a power of two
constexpr int64_t kExact = int64_t{2} << kBits;

}  // namespace

size_t Histogram::Index(int64_t value) {
  if (value < kExact) return static_cast<size_t>(value);
  const int shift = std::bit_width(static_cast<uint64_t>(value)) - 1 - kBits;
  return (static_cast<size_t>(shift) << kBits) +
         static_cast<size_t>(value >> shift);
}

int64_t Histogram::Middle(size_t index) {
  if (index < static_cast<size_t>(kExact)) return static_cast<int64_t>(index);
  const int shift = static_cast<int>(index >> kBits) - 1;
  const int64_t sub =
      static_cast<int64_t>(index - (static_cast<size_t>(shift) << kBits));
  return (sub << shift) + (int64_t{1} << shift) / 2;
}

void Histogram::Add(int64_t value, int64_t count) {
  if (count <= 0) return;
  value = std::max<int64_t>(value, 0);
  const size_t index = Index(value);
  if (index >= buckets_.size()) buckets_.resize(index + 1);
  buckets_[index] += count;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += count;
  const auto real = static_cast<double>(value);
  const auto times = static_cast<double>(count);
  sum_ += real * times;
  sum_squares_ += real * real * times;
}

void Histogram::Merge(const Histogram& other) {
  if (other.count_ == 0) return;
  if (other.buckets_.size() > buckets_.size()) {
    buckets_.resize(other.buckets_.size());
  }
  for (size_t i = 0; i < other.buckets_.size(); ++i) {
    buckets_[i] += other.buckets_[i];
  }
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  count_ += other.count_;
  sum_ += other.sum_;
  sum_squares_ += other.sum_squares_;
}

double Histogram::Mean() const {
  return count_ > 0 ? sum_ / static_cast<double>(count_) : 0;
}

double Histogram::StdDev() const {
  if (count_ == 0) return 0;
  const double mean = Mean();
  const double variance =
      sum_squares_ / static_cast<double>(count_) - mean * mean;
  return std::sqrt(std::max(variance, 0.0));
}

int64_t Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<int64_t>(
      std::ceil(percent / 100 * static_cast<double>(count_) - 1e-9));
  if (rank <= 1) return min_;
  if (rank >= count_) return max_;
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(Middle(i), min_, max_);
  }
  return max_;
}

}  // namespace millrace::loadtest
