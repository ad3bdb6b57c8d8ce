// A histogram of positive integers with a bounded relative error, after the
// idea of HdrHistogram: each power of two is cut into 1024 equal buckets. A
// percentile is wrong by at most 1/2048 of its value; count, sum, least and
// greatest value are exact. Memory grows with the greatest value, not with the
// number of values: times up to an hour in nanoseconds need 270 KiB.
//
//   Histogram latency_ns;
//   latency_ns.Add(1'250'000);
//   int64_t p99 = latency_ns.Percentile(99);
//
// Not thread-safe: each thread fills its own, Merge adds them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::loadtest {

class Histogram {
 public:
  // `count` times; negative values count as 0.
  void Add(int64_t value, int64_t count = 1);
  void Merge(const Histogram& other);

  int64_t count() const { return count_; }
  int64_t min() const { return count_ > 0 ? min_ : 0; }
  int64_t max() const { return count_ > 0 ? max_ : 0; }
  double sum() const { return sum_; }
  double Mean() const;
  double StdDev() const;  // of the population

  // The least value with `percent` of all values at or below it (nearest
  // rank), 0 when empty. percent is within [0, 100].
  int64_t Percentile(double percent) const;

  // Calls visit(value, count) for each bucket that is not empty, in rising
  // order; value is the middle of the bucket.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i] > 0) visit(Middle(i), buckets_[i]);
    }
  }

 private:
  static size_t Index(int64_t value);
  static int64_t Middle(size_t index);

  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  int64_t min_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
  double sum_squares_ = 0;
};

}  // namespace millrace::loadtest
