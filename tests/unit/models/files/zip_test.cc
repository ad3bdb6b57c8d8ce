// What the writer writes the reader reads; each kind of lie is told apart.
#include "models/files/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "models/files/zip_writer.h"

namespace millrace::models {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Archive(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  std::ostringstream out;
  ZipWriter zip(out);
  for (const auto& [name, text] : entries) zip.Add(name, {Bytes(text)});
  EXPECT_TRUE(zip.Finish().ok());
  return out.str();
}

std::string ErrorOf(const std::string& bytes,
                    const ZipFile::Limits& limits = {}) {
  const auto zip = ZipFile::Parse(Bytes(bytes), limits);
  return zip.ok() ? "" : std::string(zip.status().message());
}

// A classic archive of one entry, without ZIP64, as most programs write it.
std::string Classic(const std::string& name, const std::string& packed,
                    uint16_t method, uint32_t size, uint32_t crc,
                    uint16_t flags = 0) {
  std::string out;
  const auto put = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      out += static_cast<char>(value >> (8 * i) & 0xff);
    }
  };
  const auto common = [&] {
    put(20, 2);
    put(flags, 2);
    put(method, 2);
    put(0, 4);
    put(crc, 4);
    put(packed.size(), 4);
    put(size, 4);
    put(name.size(), 2);
    put(0, 2);
  };
  put(0x04034b50, 4);
  common();
  out += name + packed;
  const size_t begin = out.size();
  put(0x02014b50, 4);
  put(20, 2);
  common();
  put(0, 2);
  put(0, 8);
  put(0, 4);  // offset
  out += name;
  const size_t end = out.size();
  put(0x06054b50, 4);
  put(0, 4);
  put(1, 2);
  put(1, 2);
  put(end - begin, 4);
  put(begin, 4);
  put(0, 2);
  return out;
}

TEST(Zip, ReadsWhatTheWriterWrote) {
  const std::string bytes = Archive({{"a/one", "first"}, {"a/two", ""}});
  const auto zip = ZipFile::Parse(Bytes(bytes));
  ASSERT_TRUE(zip.ok()) << zip.status().ToString();
  ASSERT_EQ(zip->entries().size(), 2u);
  const ZipEntry* one = zip->Find("a/one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(*ReadEntry(*one, 5), "first");
  EXPECT_TRUE(CheckEntry(*one).ok());
  EXPECT_EQ(*ReadEntry(*zip->Find("a/two"), 0), "");
  EXPECT_EQ(zip->Find("a/three"), nullptr);
}

TEST(Zip, DataOfTheWriterBeginAtMultiplesOf64Bytes) {
  const std::string bytes = Archive({{"x", "1"}, {"longer name", "2"}});
  const auto zip = ZipFile::Parse(Bytes(bytes));
  ASSERT_TRUE(zip.ok());
  for (const ZipEntry& entry : zip->entries()) {
    EXPECT_EQ((entry.bytes.data() - Bytes(bytes).data()) % 64, 0);
  }
}

TEST(Zip, UnpacksDeflatedEntriesAndChecksThem) {
  // zlib.compressobj(9, DEFLATED, -15) of 12 times "ab"
  const std::string packed("\x4b\x4c\x4a\xc4\x0a\x01", 6);
  const auto good = Classic("n", packed, 8, 24, 0xfaeacfaa);
  const auto zip = ZipFile::Parse(Bytes(good));
  ASSERT_TRUE(zip.ok()) << zip.status().ToString();
  EXPECT_EQ(*ReadEntry(zip->entries()[0], 24), "abababababababababababab");
  const auto wrong = Classic("n", packed, 8, 24, 0xfaeacfab);
  EXPECT_EQ(
      ReadEntry(ZipFile::Parse(Bytes(wrong))->entries()[0], 24).status().code(),
      StatusCode::kDataLoss);
  for (const uint32_t size : {23u, 25u}) {
    const auto lie = Classic("n", packed, 8, size, 0);
    const auto parsed = ZipFile::Parse(Bytes(lie));
    ASSERT_TRUE(parsed.ok());
    EXPECT_THAT(
        std::string(ReadEntry(parsed->entries()[0], 100).status().message()),
        HasSubstr("cannot be unpacked"));
  }
}

// Deflate's stored blocks: a bit that tells the last one, the length twice.
std::string StoredBlocks(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min<size_t>(text.size() - at, 0xffff);
    out += static_cast<char>(at + size == text.size());
    for (const size_t length : {size, size ^ 0xffff}) {
      out += static_cast<char>(length & 0xff);
      out += static_cast<char>(length >> 8);
    }
    out += text.substr(at, size);
    at += size;
  }
  return out;
}

TEST(Zip, UnpacksLargeEntriesInPieces) {
  std::string text;
  for (int i = 0; text.size() < (5u << 20) / 2; ++i) text += std::to_string(i);
  const std::string stored = Archive({{"n", text}});
  const uint32_t crc = ZipFile::Parse(Bytes(stored))->entries()[0].crc32;
  const auto size = static_cast<uint32_t>(text.size());
  const std::string deflated = Classic("n", StoredBlocks(text), 8, size, crc);
  for (const std::string& bytes : {stored, deflated}) {
    const auto zip = ZipFile::Parse(Bytes(bytes));
    ASSERT_TRUE(zip.ok()) << zip.status().ToString();
    const ZipEntry& entry = zip->entries()[0];
    std::vector<size_t> sizes;
    std::string all;
    const auto take = [&](std::span<const std::byte> piece) {
      sizes.push_back(piece.size());
      all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return sizes.size() == 4 ? Internal("full") : OkStatus();
    };
    ASSERT_TRUE(UnpackEntry(entry, size, take).ok());
    EXPECT_EQ(sizes, (std::vector<size_t>{1u << 20, 1u << 20,
                                          text.size() - (2u << 20)}));
    EXPECT_TRUE(all == text);
    // What takes no more ends it with its own words.
    EXPECT_THAT(std::string(UnpackEntry(entry, size, take).message()), "full");
    EXPECT_EQ(sizes.size(), 4u);
    EXPECT_EQ(UnpackEntry(entry, size - 1, take).code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(sizes.size(), 4u);
  }
  const std::string wrong = Classic("n", StoredBlocks(text), 8, size, crc + 1);
  EXPECT_EQ(ReadEntry(ZipFile::Parse(Bytes(wrong))->entries()[0], size)
                .status()
                .code(),
            StatusCode::kDataLoss);
}

TEST(Zip, RefusesAnEntryLargerThanAllowed) {
  const std::string bytes = Archive({{"n", "12345"}});
  const auto zip = ZipFile::Parse(Bytes(bytes));
  ASSERT_TRUE(zip.ok());
  EXPECT_EQ(ReadEntry(zip->entries()[0], 4).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Zip, RefusesNamesThatLeadOutOfTheFolder) {
  for (const char* name :
       {"../x", "a/../x", "/etc/x", "a\\x", "C:x", "a/./b", "a\nb", "..", ""}) {
    EXPECT_NE(ErrorOf(Archive({{name, "x"}})), "") << name;
  }
  EXPECT_EQ(ErrorOf(Archive({{"a/.data/..x/y..", "x"}})), "");
}

TEST(Zip, RefusesTwoEntriesOfOneName) {
  EXPECT_THAT(ErrorOf(Archive({{"n", "1"}, {"n", "2"}})),
              HasSubstr("two entries called 'n'"));
}

TEST(Zip, RefusesEntriesThatOverlap) {
  std::string bytes = Archive({{"n", "1"}, {"m", "2"}});
  // Both records of the directory point at the same local header, whose name
  // then is the other's.
  const size_t first = bytes.find("PK\x01\x02");
  const size_t second = bytes.find("PK\x01\x02", first + 4);
  const size_t record = second - first;
  std::memset(bytes.data() + second + record - 8, 0, 8);
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("is called 'n' in its own header"));
  const std::string same = Classic("n", "123", 0, 3, 0);
  EXPECT_EQ(ErrorOf(same), "");
}

TEST(Zip, RefusesWhatItCannotRead) {
  EXPECT_THAT(ErrorOf(Classic("n", "1", 12, 1, 0)), HasSubstr("method 12"));
  EXPECT_THAT(ErrorOf(Classic("n", "1", 0, 1, 0, 1)), HasSubstr("encrypted"));
  EXPECT_THAT(ErrorOf(Classic("n", "1", 0, 2, 0)), HasSubstr("two sizes"));
  EXPECT_THAT(ErrorOf(Archive({{"n", "1"}, {"m", "2"}}), {.max_entries = 1}),
              HasSubstr("the limit is 1"));
}

TEST(Zip, EveryTruncationIsRefused) {
  const std::string bytes = Archive({{"a/one", "first"}, {"a/two", "second"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(ErrorOf(bytes.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace millrace::models
