#include "models/files/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Made by tests/data/make_npz.py with numpy.
constexpr char kKinds[] = "tests/data/npz/kinds.npz";
constexpr char kPacked[] = "tests/data/npz/packed.npz";

std::string Npy(const std::string& header, const std::string& data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size());
  out += '\0';
  return out + header + data;
}

std::string ErrorOf(const std::string& npy) {
  const auto tensor = ParseNpy(std::as_bytes(std::span(npy)));
  return tensor.ok() ? "" : std::string(tensor.status().message());
}

TEST(Npz, ReadsEveryTypeThatNumpyWrites) {
  for (const char* path : {kKinds, kPacked}) {
    const auto arrays = ReadNpz(path);
    ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
    std::map<std::string, const Tensor*> by_name;
    for (const NamedTensor& array : *arrays) {
      by_name[array.name] = &array.tensor;
    }
    ASSERT_EQ(by_name.size(), 15u);
    for (const char* name : {"uint8", "uint16", "uint32", "uint64", "int8",
                             "int16", "int32", "int64", "float32"}) {
      EXPECT_EQ(by_name.at(name)->shape(), (Shape{2, 3})) << name;
    }
    EXPECT_THAT(std::span(by_name.at("int64")->data<int64_t>(), 6),
                ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(std::span(by_name.at("float64")->data<double>(), 6),
                ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(std::span(by_name.at("bool")->data<bool>(), 3),
                ElementsAre(false, true, true));
    EXPECT_EQ(by_name.at("scalar")->shape(), Shape{});
    EXPECT_EQ(by_name.at("empty")->shape(), (Shape{0, 4}));
  }
}

TEST(Npz, ArraysInFortranOrderBecomeRowMajor) {
  const auto arrays = ReadNpz(kKinds);
  ASSERT_TRUE(arrays.ok());
  const Tensor& last = arrays->back().tensor;
  EXPECT_EQ(arrays->back().name, "fortran");
  EXPECT_EQ(last.shape(), (Shape{2, 3}));
  EXPECT_THAT(std::span(last.data<int32_t>(), 6),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Npz, GivesBackWhatItWrote) {
  const std::string path = TempPath("npz_test.npz");
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x", Tensor::From<float>(DType::kF32, {1, 2},
                                             std::vector<float>{1, 2})});
  arrays.push_back({"n", Tensor::Scalar(int64_t{7})});
  Tensor narrow = Tensor::Make(DType::kBF16, {1});
  narrow.data<uint16_t>()[0] = 0x3fc0;  // 1.5
  arrays.push_back({"b", std::move(narrow)});
  ASSERT_TRUE(WriteNpz(path, arrays).ok());

  const auto back = ReadNpz(path);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  ASSERT_EQ(back->size(), 3u);
  EXPECT_EQ((*back)[0].name, "x");
  EXPECT_EQ((*back)[0].tensor.data<float>()[1], 2);
  EXPECT_EQ((*back)[1].tensor.shape(), Shape{});
  EXPECT_EQ((*back)[1].tensor.data<int64_t>()[0], 7);
  EXPECT_EQ((*back)[2].tensor.data<float>()[0], 1.5f);
}

// The widths of all these strings together are 2^63 bytes, and 2^64, which an
// int64_t has as less than the limit.
TEST(Npz, StringsBeyondAllNumbersAreLargerThanTheLimit) {
  for (const char* shape : {"137438953472", "274877906944"}) {
    const std::string header =
        "{'descr': '<U16777216', 'fortran_order': False, 'shape': (" +
        std::string(shape) + ",), }";
    EXPECT_THAT(ErrorOf(Npy(header, "abcd")),
                HasSubstr("larger than the limit"))
        << shape;
  }
  EXPECT_THAT(ErrorOf(Npy("{'descr': '<U16777216', 'fortran_order': False, "
                          "'shape': (0, 137438953472), }",
                          "")),
              "");
}

TEST(Npz, ToldApartWhatIsWrong) {
  const std::string good =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  EXPECT_EQ(ErrorOf(Npy(good, "abcd")), "");
  EXPECT_THAT(ErrorOf(Npy(good, "abc")), HasSubstr("truncated"));
  EXPECT_THAT(ErrorOf("PK"), HasSubstr("magic"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': '>f4', 'fortran_order': False, "
                          "'shape': (1,), }",
                          "abcd")),
              HasSubstr("'>f4' cannot be read"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, "
                          "'shape': (1,), }",
                          "abcd")),
              HasSubstr("structured"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': '<f4', 'shape': (1,), }", "abcd")),
              HasSubstr("no dictionary"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (-1,), }",
                          "abcd")),
              HasSubstr("no dictionary"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (99999999999, 99999999999), }",
                          "")),
              HasSubstr("2^48"));
  EXPECT_THAT(ErrorOf(Npy("{'descr': '<f8', 'fortran_order': False, "
                          "'shape': (99999999999,), }",
                          "")),
              HasSubstr("larger than the limit"));
}

}  // namespace
}  // namespace millrace::models
