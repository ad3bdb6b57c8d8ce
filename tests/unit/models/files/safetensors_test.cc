// Files of the safetensors package give back what it wrote; every kind of lie
// is told apart.
#include "models/files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

constexpr char kKinds[] = "tests/data/safetensors/kinds.safetensors";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "run from the root of the repository";
  return std::string(std::istreambuf_iterator<char>(in), {});
}

StatusOr<SafetensorsFile> Parse(const std::string& bytes,
                                const SafetensorsFile::Limits& limits = {}) {
  return SafetensorsFile::Parse(std::as_bytes(std::span(bytes)), limits);
}

std::string ErrorOf(const std::string& bytes,
                    const SafetensorsFile::Limits& limits = {}) {
  const StatusOr<SafetensorsFile> file = Parse(bytes, limits);
  return file.ok() ? "" : std::string(file.status().message());
}

// A file of this header and as many bytes of data.
std::string With(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + std::string(data_bytes, 'd');
}

template <typename T>
std::vector<T> ValuesOf(const SafetensorsTensor& tensor) {
  std::vector<T> out(tensor.data.size() / sizeof(T));
  std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
  return out;
}

TEST(Safetensors, ReadsWhatThePythonPackageWrote) {
  const StatusOr<SafetensorsFile> file = SafetensorsFile::Open(kKinds);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->tensors().size(), 13u);
  EXPECT_EQ(file->metadata().at("made by"), "a test");
  const auto find = [&](const char* name) -> const SafetensorsTensor& {
    const SafetensorsTensor* tensor = file->FindTensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    return *tensor;
  };
  EXPECT_EQ(find("t.float32").dtype, "F32");
  EXPECT_EQ(find("t.float32").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ValuesOf<float>(find("t.float32")),
            (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ValuesOf<double>(find("t.float64")),
            (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ValuesOf<int32_t>(find("t.int32")),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ValuesOf<int64_t>(find("t.int64")).back(), 5);
  EXPECT_EQ(HalfToFloat(ValuesOf<uint16_t>(find("t.float16"))[5]), 5.0f);
  EXPECT_EQ(BFloat16ToFloat(ValuesOf<uint16_t>(find("t.bfloat16"))[5]), 5.0f);
  EXPECT_EQ(find("t.float8_e4m3fn").dtype, "F8_E4M3");
  EXPECT_EQ(find("scalar").shape.size(), 0u);
  EXPECT_EQ(ValuesOf<float>(find("scalar")), std::vector<float>{0.5f});
  EXPECT_EQ(find("empty").num_elements, 0);
  EXPECT_EQ(find("deep").shape, (std::vector<int64_t>{2, 1, 2, 1, 2}));
  EXPECT_EQ(ValuesOf<int8_t>(find("deep")).back(), 7);
  EXPECT_EQ(find("na\u00efve \"name\"").num_elements, 1);
  EXPECT_EQ(file->FindTensor("t.float3"), nullptr);

  const auto none =
      SafetensorsFile::Open("tests/data/safetensors/none.safetensors");
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_TRUE(none->tensors().empty());
}

TEST(Safetensors, EveryTruncationIsAnErrorNeverACrash) {
  const std::string whole = ReadAll(kKinds);
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(Parse(whole.substr(0, n)).ok()) << n;
  }
  EXPECT_NE(ErrorOf(whole + "x").find("1 bytes behind its last tensor"),
            std::string::npos);
}

TEST(Safetensors, HeaderLies) {
  EXPECT_NE(ErrorOf("").find("too few"), std::string::npos);
  EXPECT_EQ(ErrorOf(std::string(8, '\xff')),
            "the header is 18446744073709551615 bytes long, the limit is "
            "100000000; is this a safetensors file?");
  EXPECT_NE(ErrorOf(With("{}", 0).substr(0, 9)).find("truncated"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With(" {}", 0)).find("does not begin with '{'"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(With("{}   ", 0)), "");  // padding behind it is usual
  EXPECT_NE(ErrorOf(With("{\"a\"", 0)).find("malformed JSON"),
            std::string::npos);
  const std::string scalar =
      R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})";
  EXPECT_EQ(ErrorOf(With("{\"a\":" + scalar + "}", 4)), "");
  EXPECT_NE(ErrorOf(With("{\"a\":" + scalar + ",\"a\":" + scalar + "}", 4))
                .find("'a' appears twice"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(With("{\"a\":" + scalar + "}", 4), {.max_tensors = 0}),
            "the file has 1 tensors, the limit is 0");
  EXPECT_NE(ErrorOf(With(R"({"__metadata__":[]})", 0)).find("no object"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With(R"({"__metadata__":{"a":1}})", 0)).find("no string"),
            std::string::npos);
}

TEST(Safetensors, TensorLies) {
  const auto error = [](const std::string& tensor, size_t data_bytes) {
    return ErrorOf(With("{\"w\":" + tensor + "}", data_bytes));
  };
  const auto lie = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets, size_t data_bytes = 24) {
    return error("{\"dtype\":" + dtype + ",\"shape\":" + shape +
                     ",\"data_offsets\":" + offsets + "}",
                 data_bytes);
  };
  EXPECT_EQ(lie("\"F32\"", "[2,3]", "[0,24]"), "");
  EXPECT_EQ(error("1", 0), "tensor 'w' is no object in the header");
  EXPECT_EQ(error("{}", 0), "tensor 'w' has the unknown dtype (none)");
  EXPECT_EQ(lie("\"F33\"", "[2,3]", "[0,24]"),
            "tensor 'w' has the unknown dtype \"F33\"");
  EXPECT_EQ(lie("32", "[2,3]", "[0,24]"),
            "tensor 'w' has the unknown dtype 32");
  EXPECT_NE(lie("\"F32\"", "6", "[0,24]").find("no list 'shape'"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[-2,3]", "[0,24]").find("has -2 in 'shape'"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[2.0,3]", "[0,24]").find("has 2.0 in 'shape'"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[1099511627776,1099511627776]", "[0,24]")
                .find("impossible shape"),
            std::string::npos);
  EXPECT_EQ(lie("\"F32\"", "[2,2]", "[0,24]"),
            "tensor 'w' has 4 values of F32, but 24 bytes");
  EXPECT_EQ(lie("\"F4\"", "[3]", "[0,1]", 1),
            "tensor 'w' has 3 values of F4, but 1 bytes");
  EXPECT_NE(lie("\"F32\"", "[2,3]", "[24,0]").find("no begin and end"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[2,3]", "[0]").find("no begin and end"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[2,3]", "[0,24]", 23).find("truncated or corrupt"),
            std::string::npos);
  EXPECT_NE(lie("\"F32\"", "[2,3]", "[1,25]", 25).find("neither gap"),
            std::string::npos);
  const auto two = [](const char* second) {
    return ErrorOf(
        With(std::string(R"({"b":{"dtype":"I8","shape":[4],)") +
                 R"("data_offsets":)" + second +
                 R"(},"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
             8));
  };
  EXPECT_EQ(two("[4,8]"), "");
  EXPECT_EQ(two("[3,7]"),
            "tensor 'b' begins at byte 3 of the data, but the one before it "
            "ends at 4: there must be neither gap nor overlap");
}

TEST(Safetensors, OpenNamesThePath) {
  EXPECT_EQ(SafetensorsFile::Open("/nowhere/x.safetensors").status().code(),
            StatusCode::kNotFound);
  const auto file = SafetensorsFile::Open("tests/data/tiny_gguf.cc");
  EXPECT_TRUE(file.status().message().starts_with("'tests/data/tiny_gguf.cc'"));
}

}  // namespace
}  // namespace millrace::models
