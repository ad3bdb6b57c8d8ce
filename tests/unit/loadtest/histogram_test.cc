// Percentiles against those of the sorted values themselves.
#include "loadtest/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace millrace::loadtest {
namespace {

int64_t NearestRank(const std::vector<int64_t>& sorted, double percent) {
  const auto rank = static_cast<size_t>(
      std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-9));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

TEST(Histogram, AnEmptyOneIsAllZeros) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0);
  EXPECT_EQ(histogram.Mean(), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.Percentile(99), 0);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (int64_t value = 1; value <= 100; ++value) histogram.Add(value);
  EXPECT_EQ(histogram.Percentile(50), 50);
  EXPECT_EQ(histogram.Percentile(99), 99);
  EXPECT_EQ(histogram.Percentile(99.9), 100);
  EXPECT_EQ(histogram.Percentile(0), 1);
  EXPECT_DOUBLE_EQ(histogram.Mean(), 50.5);
  EXPECT_NEAR(histogram.StdDev(), 28.866, 1e-3);
}

TEST(Histogram, PercentilesOfNineDecadesAreWithinOneIn2048) {
  std::mt19937_64 random(5);
  Histogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    const double exponent = static_cast<double>(random() % 36'000) / 1000;
    values.push_back(static_cast<int64_t>(std::exp2(exponent)));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {0.1, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto exact = static_cast<double>(NearestRank(values, percent));
    EXPECT_NEAR(static_cast<double>(histogram.Percentile(percent)), exact,
                exact / 2048 + 0.5)
        << percent;
  }
}

TEST(Histogram, MergedPartsEqualTheWhole) {
  Histogram whole;
  Histogram left;
  Histogram right;
  for (int64_t i = 1; i <= 5000; ++i) {
    const int64_t value = i * i;
    whole.Add(value);
    (i % 3 == 0 ? left : right).Add(value);
  }
  left.Merge(right);
  left.Merge(Histogram());
  EXPECT_EQ(left.count(), whole.count());
  EXPECT_EQ(left.min(), 1);
  EXPECT_EQ(left.max(), 25'000'000);
  EXPECT_DOUBLE_EQ(left.Mean(), whole.Mean());
  for (const double percent : {1.0, 50.0, 99.0}) {
    EXPECT_EQ(left.Percentile(percent), whole.Percentile(percent));
  }
}

TEST(Histogram, BucketsRiseAndHoldAllValues) {
  Histogram histogram;
  for (const int64_t value : {-5, 0, 3, 3, 70'000, 1 << 30}) {
    histogram.Add(value);
  }
  int64_t last = -1;
  int64_t count = 0;
  histogram.ForEach([&](int64_t value, int64_t times) {
    EXPECT_GT(value, last);
    last = value;
    count += times;
  });
  EXPECT_EQ(count, 6);
  EXPECT_EQ(histogram.min(), 0) << "negative values count as 0";
}

}  // namespace
}  // namespace millrace::loadtest
