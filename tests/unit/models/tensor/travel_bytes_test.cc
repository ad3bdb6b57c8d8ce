#include "models/tensor/travel_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "models/tensor/strings.h"

namespace millrace::models {
namespace {

using namespace std::string_literals;

std::string Told(const Shape& shape, const std::string& bytes) {
  const StatusOr<Tensor> strings = StringsFromBytes(shape, bytes);
  return strings.ok() ? "OK" : std::string(strings.status().message());
}

TEST(TravelBytes, NumbersTravelAsTheyAre) {
  const Tensor tensor = Tensor::Scalar(int64_t{258});
  EXPECT_EQ(TravelBytes(tensor).view(), "\2\1\0\0\0\0\0\0"s);
}

TEST(TravelBytes, EachStringStandsBehindItsLength) {
  const std::array<std::string_view, 3> values = {"ab", "",
                                                  std::string_view("\0c", 2)};
  const Tensor tensor = MakeStrings({3, 1}, values);
  const std::string packed = "\2\0\0\0ab\0\0\0\0\2\0\0\0\0c"s;
  EXPECT_EQ(TravelBytes(tensor).view(), packed);
  const StatusOr<Tensor> read = StringsFromBytes({3, 1}, packed);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->dtype(), kString);
  EXPECT_EQ(read->shape(), (Shape{3, 1}));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(StringsIn(*read)[i], values[i]);
}

TEST(TravelBytes, NoStringsHaveNoBytes) {
  EXPECT_EQ(Told({0, 4}, ""), "OK");
  EXPECT_EQ(Told({0}, "x"), "has 1 bytes behind the 0 elements of its shape");
}

TEST(TravelBytes, WhatIsNotAsManyStringsIsRefused) {
  EXPECT_EQ(Told({1}, "\1\0"s), "has 2 bytes but BYTES [1] takes at least 4");
  EXPECT_EQ(Told({1}, "\2\0\0\0a"s),
            "ends within element 0; each element of BYTES is its length as "
            "four bytes, little-endian, then its bytes");
  EXPECT_NE(Told({2}, "\3\0\0\0abc\1"s).find("within element 1"),
            std::string::npos);
  EXPECT_NE(Told({2},
                 "\xff\xff\xff\xff"
                 "abcd"s)
                .find("within element 0"),
            std::string::npos);
  EXPECT_EQ(Told({1}, "\1\0\0\0ab"s),
            "has 1 bytes behind the 1 elements of its shape");
}

}  // namespace
}  // namespace millrace::models
