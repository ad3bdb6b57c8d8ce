// Good files give back what was written; every kind of lie is told apart.
#include "models/files/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Small() {
  GgufBytes out;
  out.String("general.architecture", "llama");
  out.Uint32("llama.block_count", 7);
  out.Float32("eps", 0.5f);
  out.Bool("flag", true);
  out.Strings("words", std::vector<std::string>{"a", "", "ccc"});
  out.Int32s("numbers", std::vector<int32_t>{-1, 2});
  out.Tensor("t", GgmlType::kF32, std::vector<int64_t>{2, 3},
             std::string(24, 'x'));
  out.Tensor("u", GgmlType::kQ4_1, std::vector<int64_t>{64},
             std::string(40, 'y'));
  return out.Finish();
}

// Where the bytes of a needle begin in the file.
size_t Place(const std::string& file, std::string_view needle) {
  const size_t at = file.find(needle);
  EXPECT_NE(at, std::string::npos);
  return at;
}

template <typename T>
void Patch(std::string& file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

std::string ErrorOf(const std::string& file) {
  const StatusOr<GgufFile> parsed = GgufFile::Parse(Bytes(file));
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST(Gguf, ReadsBackEveryKindOfValue) {
  const std::string bytes = Small();
  const StatusOr<GgufFile> file = GgufFile::Parse(Bytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->version(), 3);
  EXPECT_EQ(*file->String("general.architecture"), "llama");
  EXPECT_EQ(*file->Int("llama.block_count"), 7);
  EXPECT_EQ(*file->Float("eps"), 0.5);
  EXPECT_EQ(*file->Float("llama.block_count"), 7.0);
  EXPECT_TRUE(*file->Bool("flag"));
  EXPECT_EQ(*file->Strings("words"),
            (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(*file->Ints("numbers"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(*file->Int("absent", 3), 3);
  EXPECT_EQ(file->Int("absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->Int("eps", 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Strings("numbers").status().message(),
            "key 'numbers' has type array of int32; expected an array of "
            "strings");

  const GgufTensor* t = file->FindTensor("t");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->row_bytes, 8);
  EXPECT_EQ(t->data.size(), 24u);
  EXPECT_EQ(static_cast<char>(*t->row(2)), 'x');
  const GgufTensor* u = file->FindTensor("u");
  ASSERT_NE(u, nullptr);
  EXPECT_EQ(u->data.size(), 40u);
  EXPECT_EQ(static_cast<char>(u->data[39]), 'y');
  EXPECT_EQ(file->FindTensor("v"), nullptr);
}

TEST(Gguf, EveryTruncationIsAnErrorNeverACrash) {
  const std::string whole = Small();
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of exactly n bytes, so that ASan sees a read beyond them.
    const std::vector<std::byte> part(Bytes(whole).begin(),
                                      Bytes(whole).begin() + n);
    EXPECT_FALSE(GgufFile::Parse(part).ok()) << n;
  }
}

TEST(Gguf, HeaderLies) {
  std::string file = Small();
  file[0] = 'X';
  EXPECT_NE(ErrorOf(file).find("no GGUF file"), std::string::npos);
  file = Small();
  Patch<uint32_t>(file, 4, 1);
  EXPECT_NE(ErrorOf(file).find("version 1"), std::string::npos);
  Patch<uint32_t>(file, 4, 0x03000000);
  EXPECT_NE(ErrorOf(file).find("big-endian"), std::string::npos);
  file = Small();
  Patch<uint64_t>(file, 8, ~uint64_t{0});
  EXPECT_NE(ErrorOf(file).find("the number of tensors"), std::string::npos);
  file = Small();
  Patch<uint64_t>(file, 16, 1 << 20);
  EXPECT_NE(ErrorOf(file).find("the limit is 65536"), std::string::npos);
}

TEST(Gguf, KeyLies) {
  std::string file = Small();
  // The length of the value "llama" behind its key and type.
  const size_t length = Place(file, "general.architecture") + 20 + 4;
  Patch<uint64_t>(file, length, uint64_t{1} << 63);
  EXPECT_NE(ErrorOf(file).find("a string value"), std::string::npos);
  file = Small();
  Patch<uint32_t>(file, Place(file, "words") + 5, 13);
  EXPECT_NE(ErrorOf(file).find("unknown type 13"), std::string::npos);
  file = Small();
  Patch<uint32_t>(file, Place(file, "words") + 9, 9);
  EXPECT_NE(ErrorOf(file).find("array of arrays"), std::string::npos);
  file = Small();
  Patch<uint64_t>(file, Place(file, "numbers") + 7 + 8, uint64_t{1} << 61);
  EXPECT_NE(ErrorOf(file).find("the length of an array"), std::string::npos);

  GgufBytes twice;
  twice.Bool("k", true);
  twice.Bool("k", true);
  EXPECT_EQ(ErrorOf(twice.Finish()), "key 'k' appears twice");
  GgufBytes alignment;
  alignment.Uint32("general.alignment", 24);
  EXPECT_NE(ErrorOf(alignment.Finish()).find("general.alignment is 24"),
            std::string::npos);
}

TEST(Gguf, TensorLies) {
  // Header of tensor "t": length 1, 't', dims u32, 2 × u64, type, offset.
  std::string pattern(8, '\0');
  pattern[0] = 1;
  pattern += 't';
  const std::string good = Small();
  const size_t at = Place(good, pattern) + 9;
  std::string file = good;
  Patch<uint32_t>(file, at, 5);
  EXPECT_NE(ErrorOf(file).find("5 dimensions"), std::string::npos);
  file = good;
  Patch<uint64_t>(file, at + 4, 0);
  EXPECT_NE(ErrorOf(file).find("dimension of 0"), std::string::npos);
  file = good;
  Patch<uint64_t>(file, at + 4, uint64_t{1} << 40);
  Patch<uint64_t>(file, at + 12, uint64_t{1} << 40);
  EXPECT_NE(ErrorOf(file).find("impossible dimension"), std::string::npos);
  file = good;
  Patch<uint32_t>(file, at + 20, 4);  // a type that was taken out of the format
  EXPECT_NE(ErrorOf(file).find("unknown type 4"), std::string::npos);
  file = good;
  Patch<uint32_t>(file, at + 20, 8);  // Q8_0 with rows of 2
  EXPECT_NE(ErrorOf(file).find("blocks of 32"), std::string::npos);
  file = good;
  Patch<uint64_t>(file, at + 24, 8);
  EXPECT_NE(ErrorOf(file).find("multiple of the alignment"), std::string::npos);
  file = good;
  Patch<uint64_t>(file, at + 24, 1 << 20);
  EXPECT_NE(ErrorOf(file).find("outside the file"), std::string::npos);
  file = good;
  Patch<uint64_t>(file, at + 24, ~uint64_t{31});
  EXPECT_NE(ErrorOf(file).find("impossible offset"), std::string::npos);
}

TEST(Gguf, OpenNamesThePath) {
  const StatusOr<GgufFile> absent = GgufFile::Open("/nowhere/at/all.gguf");
  EXPECT_EQ(absent.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(absent.status().message(),
            "there is no file '/nowhere/at/all.gguf'");
  EXPECT_FALSE(GgufFile::Open("/").ok());

  const std::string path = TempPath("tiny.gguf");
  ASSERT_TRUE(WriteTinyGguf(TinyModel{}, path));
  const StatusOr<GgufFile> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(*file->Int("llama.block_count"), 2);
  EXPECT_NE(file->mapping(), nullptr);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace millrace::models
